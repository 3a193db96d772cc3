// cos and sin of every rope of a program in device memory: f64 rounded to f32, [positions][pairs]{cos, sin}.
// Tables grow with the context by doubling, and then move.
#pragma once

#include "backend/cuda/device.h"
#include "program/program.h"

#include <vector>

namespace honeycrisp::backend::cuda {

class RopeTables {
 public:
  explicit RopeTables(const program::Program& program)
      : ropes_(program.ropes), tables_(ropes_.size()), pointers_(ropes_.size()) {}

  /// Makes the tables reach position n − 1; true if they moved. The device must be idle.
  Result<bool> reserve(uint32_t n_positions);
  uint32_t n_positions() const { return n_positions_; }
  const std::vector<const float*>& tables() const { return pointers_; }
  uint64_t memory_bytes() const;

 private:
  const std::vector<program::Rope>& ropes_;
  uint32_t n_positions_ = 0;
  std::vector<Memory> tables_;
  std::vector<const float*> pointers_;
};

}  // namespace honeycrisp::backend::cuda
