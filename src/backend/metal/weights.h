// The weights of a program as buffers, without a copy: the pages of memory that hold them are wrapped, split at tensors
// where a buffer would exceed the device's limit.
#pragma once

#include "backend/metal/op_encoder.h"

#include <vector>

namespace honeycrisp::backend::metal {

class Weights {
 public:
  /// Errors: a tensor larger than the device's largest buffer, memory that cannot be wrapped; with name and sizes.
  static Result<Weights> wrap(Device& device, const program::Program& program);

  WeightView view(const program::Program& program, const program::Matrix& matrix) const;

 private:
  std::vector<std::shared_ptr<Buffer>> buffers_;
  std::vector<View> views_;  // [weights]
};

}  // namespace honeycrisp::backend::metal
