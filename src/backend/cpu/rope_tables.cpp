#include "backend/cpu/rope_tables.h"

#include <array>
#include <cmath>

namespace honeycrisp::backend::cpu {

namespace {

constexpr int kTerms = 8;
// What the series' term i has of the term before it, without x.
constexpr std::array<double, kTerms + 1> ratios(int offset) {
  std::array<double, kTerms + 1> r{};
  for (int i = 1; i <= kTerms; ++i) r[size_t(i)] = 1.0 / (2 * i * (2 * i + offset));
  return r;
}
constexpr auto kSinRatio = ratios(1), kCosRatio = ratios(-1);

}  // namespace

// Reduction to |r| ≤ π/4 by π/2 in three parts, of which the first two have 30 bits so that n times them is exact; then
// Taylor's series, whose next terms are below 5e-17.
CosSin cos_sin(double angle) {
  if (std::fabs(angle) > kLargestAngle) return {std::cos(angle), std::sin(angle)};
  const double n = std::nearbyint(angle * 0x1.45f306dc9c883p-1);
  const double r = ((angle - n * 0x1.921fb54000000p+0) - n * 0x1.10b4611800000p-30) - n * 0x1.313198a2e0370p-61;
  const double x = r * r;
  // r − r³/3! + r⁵/5! − …, and 1 − r²/2! + r⁴/4! − …, from the smallest term on
  double sin = 1, cos = 1;
  for (int i = kTerms; i > 0; --i) {
    sin = 1 - sin * x * kSinRatio[size_t(i)];
    cos = 1 - cos * x * kCosRatio[size_t(i)];
  }
  sin *= r;
  switch (int64_t(n) & 3) {
    case 0: return {cos, sin};
    case 1: return {-sin, cos};
    case 2: return {-cos, -sin};
    default: return {sin, -cos};
  }
}

void RopeTables::reserve(uint32_t n_positions) {
  for (size_t id = 0; id < ropes_.size(); ++id) {
    const program::Rope& rope = ropes_[id];
    const size_t copies = rope.interleaved ? 2 : 1, n = copies * rope.inverse_frequency.size();
    while (tables_[id].size() * kBlock < n_positions) {
      const size_t first = tables_[id].size() * kBlock;
      std::vector<float> block(kBlock * n * 2);
      float* cosines = block.data();
      for (size_t position = first; position < first + kBlock; ++position, cosines += 2 * n) {
        float* sines = cosines + n;
        for (size_t i = 0; i < n; i += copies) {
          const CosSin turn = cos_sin(double(position) * rope.inverse_frequency[i / copies]);
          cosines[i] = cosines[i + copies - 1] = float(rope.magnitude * turn.cos);
          sines[i] = sines[i + copies - 1] = float(rope.magnitude * turn.sin);
          if (rope.interleaved) sines[i] = -sines[i];
        }
      }
      tables_[id].push_back(std::move(block));
    }
  }
}

void RopeTables::rotate(const Isa& isa, program::RopeId id, uint32_t position, float* head) const {
  const program::Rope& rope = ropes_[id];
  const auto n = uint32_t(rope.inverse_frequency.size() * (rope.interleaved ? 2 : 1));
  const float* cosines = tables_[id][position / kBlock].data() + size_t{position % kBlock} * n * 2;
  if (rope.interleaved)
    isa.rotate_neighbours(head, cosines, cosines + n, n);
  else
    isa.rotate_halves(head, head + rope.pair_distance, cosines, cosines + n, n);
}

uint64_t RopeTables::memory_bytes() const {
  uint64_t bytes = 0;
  for (const auto& blocks : tables_)
    for (const auto& block : blocks) bytes += block.capacity() * sizeof(float);
  return bytes;
}

}  // namespace honeycrisp::backend::cpu
