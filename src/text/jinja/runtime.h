// What filters, tests, functions and methods see of the render that runs them.
#pragma once

#include "text/jinja/objects.h"

#include <ctime>
#include <functional>
#include <string>
#include <string_view>

namespace honeycrisp::text::jinja {

class Runtime {
 public:
  Runtime(const Limits& limits, const std::function<std::tm()>& clock) : budget_(limits), clock_(clock) {}
  virtual ~Runtime() = default;
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  Budget& budget() { return budget_; }
  std::tm now() const;

  /// Calls a macro, function, method, loop or joiner.
  virtual Value call(const Value& callee, Arguments& arguments) = 0;
  /// The first argument is the value that the filter or test is applied to. A failure if there is none of that name.
  Value call_filter(std::string_view name, Arguments& arguments);
  bool call_test(std::string_view name, Arguments& arguments);

  /// The render breaks reference cycles at its end, so every namespace is made here.
  Value make_namespace();

  /// Keeps a loop that remembers values (loop.changed) to the end of the render, for the same reason.
  void keep_loop(const Value& loop) { loops_.push_back(loop); }

 protected:
  void release_cycles();

 private:
  Budget budget_;
  const std::function<std::tm()>& clock_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<Value> loops_;
};

}  // namespace honeycrisp::text::jinja
