// cos and sin of every rope of a program, f64 rounded to f32, made once per position in blocks as the context grows.
// Computed here, not by the C library, whose last bit differs from system to system.
#pragma once

#include "backend/cpu/isa/kernels.h"
#include "program/program.h"

#include <cstdint>
#include <vector>

namespace honeycrisp::backend::cpu {

struct CosSin {
  double cos, sin;
};
/// Within 2.5e-16 up to kLargestAngle: contexts of four million positions. Beyond, where only a file's own frequencies
/// can lead, it is the C library's.
inline constexpr double kLargestAngle = 0x1p22;
CosSin cos_sin(double angle);

class RopeTables {
 public:
  explicit RopeTables(const program::Program& program) : ropes_(program.ropes), tables_(program.ropes.size()) {}

  /// Makes the tables reach position n − 1.
  void reserve(uint32_t n_positions);

  /// Rotates one head in place.
  void rotate(const Isa& isa, program::RopeId id, uint32_t position, float* head) const;

  uint64_t memory_bytes() const;

 private:
  static constexpr uint32_t kBlock = 256;  // positions

  const std::vector<program::Rope>& ropes_;
  // [ropes][blocks] of [256]{[n] cos, [n] sin}; a block never moves. n is the number of pairs, or where the two of a
  // pair are neighbours twice that: see Isa::rotate_neighbours.
  std::vector<std::vector<std::vector<float>>> tables_;
};

}  // namespace honeycrisp::backend::cpu
