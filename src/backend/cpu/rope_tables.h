// cos and sin of every rope of a program, f64 rounded to f32, made once per position in blocks as the context grows.
#pragma once

#include "program/program.h"

#include <cstdint>
#include <vector>

namespace honeycrisp::backend::cpu {

class RopeTables {
 public:
  explicit RopeTables(const program::Program& program) : ropes_(program.ropes), tables_(program.ropes.size()) {}

  /// Makes the tables reach position n − 1.
  void reserve(uint32_t n_positions);

  /// Rotates one head in place.
  void rotate(program::RopeId id, uint32_t position, float* head) const;

  uint64_t memory_bytes() const;

 private:
  static constexpr uint32_t kBlock = 256;  // positions

  const std::vector<program::Rope>& ropes_;
  // [ropes][blocks] of [256][pairs] {cos, sin}; a block never moves
  std::vector<std::vector<std::vector<float>>> tables_;
};

}  // namespace honeycrisp::backend::cpu
