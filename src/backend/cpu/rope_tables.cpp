#include "backend/cpu/rope_tables.h"

#include <cmath>

namespace honeycrisp::backend::cpu {

void RopeTables::reserve(uint32_t n_positions) {
  for (size_t id = 0; id < ropes_.size(); ++id) {
    const program::Rope& rope = ropes_[id];
    while (tables_[id].size() * kBlock < n_positions) {
      const size_t first = tables_[id].size() * kBlock;
      std::vector<float> block;
      block.reserve(kBlock * rope.inverse_frequency.size() * 2);
      for (size_t position = first; position < first + kBlock; ++position)
        for (double frequency : rope.inverse_frequency) {
          const double angle = double(position) * frequency;
          block.push_back(float(rope.magnitude * std::cos(angle)));
          block.push_back(float(rope.magnitude * std::sin(angle)));
        }
      tables_[id].push_back(std::move(block));
    }
  }
}

void RopeTables::rotate(program::RopeId id, uint32_t position, float* head) const {
  const program::Rope& rope = ropes_[id];
  const size_t pairs = rope.inverse_frequency.size();
  const float* table = tables_[id][position / kBlock].data() + position % kBlock * pairs * 2;
  const size_t stride = rope.interleaved ? 2 : 1, distance = rope.interleaved ? 1 : rope.pair_distance;
  for (size_t i = 0; i < pairs; ++i) {
    float& a = head[stride * i];
    float& b = head[stride * i + distance];
    const float cosine = table[2 * i], sine = table[2 * i + 1], a0 = a, b0 = b;
    a = a0 * cosine - b0 * sine;
    b = a0 * sine + b0 * cosine;
  }
}

uint64_t RopeTables::memory_bytes() const {
  uint64_t bytes = 0;
  for (const auto& blocks : tables_)
    for (const auto& block : blocks) bytes += block.capacity() * sizeof(float);
  return bytes;
}

}  // namespace honeycrisp::backend::cpu
