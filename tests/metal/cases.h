// The test kernels' launches, each against a plain computation in double precision: what the kernels' own tests and the
// mutants both run. Knows the device's public API only.
#pragma once

#include "backend/metal/soft/device.h"

#include <string>
#include <vector>

namespace honeycrisp::backend::metal::soft::testing {

struct Case {
  const char* name;
  const char* file;  // of its kernels, without ".metal"
  /// Empty if every result is right, else what is wrong first. Runs odd sizes and tails.
  std::string (*run)(Device&, const std::shared_ptr<const Library>&);
};
const std::vector<Case>& cases();
/// The same of the backend's kernels, by whole ops against `reference`; what a library lacks is the backend's own.
const std::vector<Case>& op_cases();

/// A buffer with these elements.
template <class T>
std::shared_ptr<Buffer> buffer_of(Device& device, const std::vector<T>& values) {
  auto b = device.new_buffer(values.size() * sizeof(T)).value();
  std::copy(values.begin(), values.end(), static_cast<T*>(b->contents()));
  return b;
}

}  // namespace honeycrisp::backend::metal::soft::testing
