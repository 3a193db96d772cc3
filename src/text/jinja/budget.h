// What one parse or render may consume, and the failure that ends it. Inside this folder a failure travels as the
// exception `Failure`, as Python's do, because almost every operation of the language can fail; Template::parse and
// Template::render turn it into a Result, and nothing is thrown across them.
#pragma once

#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <fmt/format.h>
#include <string>
#include <utility>

namespace honeycrisp::text::jinja {

/// Bounds of one render. The defaults leave room for conversations of many megabytes.
struct Limits {
  uint64_t steps = 50'000'000;          // nodes evaluated, and elements or 16-byte pieces touched by them
  uint64_t text_bytes = 256ull << 20;   // bytes of all strings built on the way, the output included
  uint64_t output_bytes = 64ull << 20;  // bytes of the result
  uint32_t depth = 320;                 // nested evaluations: expressions, statements, macro calls, values
};

/// Bytes of stack that a parse or render may use; beyond it the nesting is refused. Threads need 64 KiB more than this.
inline constexpr size_t kMaxStackBytes = 160 * 1024;
/// Nesting of lists and dicts in each other.
inline constexpr uint32_t kMaxValueDepth = 100;

struct Failure {
  ErrorCode code;
  std::string message;
  bool is_raised_by_template = false;  // raise_exception: `message` is the template author's
};

/// A fault of the template, or a value that it cannot handle: Python's TypeError, ValueError, UndefinedError and so on.
template <class... A>
[[noreturn]] void raise(fmt::format_string<A...> f, A&&... args) {
  throw Failure{ErrorCode::kUnsupported, fmt::format(f, std::forward<A>(args)...)};
}
[[noreturn]] inline void raise_exhausted(const char* what) {
  throw Failure{ErrorCode::kOutOfMemory, fmt::format("the template exceeds its budget of {}", what)};
}

class Budget {
 public:
  explicit Budget(const Limits& limits)
      : limits_(limits), stack_base_(reinterpret_cast<uintptr_t>(__builtin_frame_address(0))) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  void step(uint64_t count = 1) {
    if (count > limits_.steps) raise_exhausted("steps");
    limits_.steps -= count;
  }
  /// Before `bytes` of new text are made.
  void text(uint64_t bytes) {
    if (bytes > limits_.text_bytes) raise_exhausted("text");
    limits_.text_bytes -= bytes;
    step(bytes / 16 + 1);
  }
  /// Before a list or dict of `count` elements is made.
  void elements(uint64_t count) {
    if (count > limits_.steps / 4) raise_exhausted("steps");
    step(count * 4);
  }
  uint64_t output_bytes() const { return limits_.output_bytes; }

  void enter() {
    const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    const uintptr_t used = here < stack_base_ ? stack_base_ - here : here - stack_base_;
    if (depth_ >= limits_.depth || used > kMaxStackBytes) raise("nested too deeply (recursion limit)");
    ++depth_;
  }
  void leave() { --depth_; }

 private:
  Limits limits_;  // what is left
  uintptr_t stack_base_;
  uint32_t depth_ = 0;
};

class DepthGuard {
 public:
  explicit DepthGuard(Budget& budget) : budget_(budget) { budget_.enter(); }
  ~DepthGuard() { budget_.leave(); }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  Budget& budget_;
};

}  // namespace honeycrisp::text::jinja
