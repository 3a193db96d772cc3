// Holds each op that the device ran against `reference` on the same inputs: for people who debug a kernel, by
// HONEYCRISP_METAL_COMPARE=1. Owns the copy of the buffers that `reference` runs on, and caches and states of its own,
// into which it appends what the device's inputs give: an op's fault is told of that op and of no later one.
// Knows nothing of devices and kernels.
#pragma once

#include "backend/reference/ops.h"

namespace honeycrisp::backend::metal {

class OpCompare {
 public:
  /// A kernel in f32 is off by 1e-6 to 1e-4, a value rounded the other way into the cache included; a wrong one by
  /// more.
  static constexpr double kMostError = 1e-3;

  OpCompare(const program::Program& program, CacheType type)
      : program_(program), kv_(program, type), states_(program) {}

  reference::KvStore& kv() { return kv_; }
  reference::StateStore& states() { return states_; }

  /// Keeps what the op will read. `buffers`: [buffers][rows · width].
  void before(std::span<const std::span<float>> buffers);
  /// Runs the op on what was kept. Error: which buffer differs too much, how much and where, or that one was written
  /// which the op has no business with. `logits`: [rows that want them][vocabulary].
  Result<void> after(size_t step, const Batch& batch, std::span<const std::span<float>> buffers,
                     std::span<const float> logits);

 private:
  const program::Program& program_;
  reference::KvStore kv_;
  reference::StateStore states_;
  std::vector<std::vector<float>> inputs_;  // [buffers][rows · width]
};

}  // namespace honeycrisp::backend::metal
