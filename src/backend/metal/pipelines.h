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

  /// `file`: stem of the .metal file. Error: what the compiler says, with kernel and constants.
  Result<const Pipeline*> get(std::string_view file, std::string_view kernel, std::span<const Constant> constants);
  Result<const Pipeline*> get(std::string_view file, std::string_view kernel,
                              std::initializer_list<Constant> constants) {
    return get(file, kernel, std::span(constants.begin(), constants.size()));
  }
  size_t compiled() const { return pipelines_.size(); }

 private:
  using Key = std::tuple<std::string, std::string, std::vector<Constant>>;  // file, kernel, constants by index
  Device& device_;
  std::map<Key, std::shared_ptr<const Pipeline>> pipelines_;
};

}  // namespace honeycrisp::backend::metal
