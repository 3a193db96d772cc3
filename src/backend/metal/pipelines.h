// The registry of pipelines: each kernel is compiled once per set of function constants, at first use.
#pragma once

#include "backend/metal/device.h"

#include <initializer_list>
#include <map>
#include <string>
#include <tuple>

namespace honeycrisp::backend::metal {

class Pipelines {
 public:
  explicit Pipelines(Device& device) : device_(device) {}

  /// `file`: stem of the .metal file; `threads`: of a threadgroup, most of all launches. Error: what the compiler says,
  /// or that the device cannot run so many threads of this kernel, with kernel and constants.
  Result<const Pipeline*> get(std::string_view file, std::string_view kernel, uint32_t threads,
                              std::span<const Constant> constants);
  Result<const Pipeline*> get(std::string_view file, std::string_view kernel, uint32_t threads,
                              std::initializer_list<Constant> constants) {
    return get(file, kernel, threads, std::span(constants.begin(), constants.size()));
  }
  size_t compiled() const { return pipelines_.size(); }

 private:
  using Key = std::tuple<std::string, std::string, std::vector<Constant>>;  // file, kernel, constants by index
  Device& device_;
  std::map<Key, std::shared_ptr<const Pipeline>> pipelines_;
};

}  // namespace honeycrisp::backend::metal
