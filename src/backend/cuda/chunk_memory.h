// How much memory the chunks of attention take while they wait to be joined: how many rows may run together, and what
// is allocated for them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace honeycrisp::backend::cuda {

/// Rows that together would take more run one after another. One row alone may: nothing smaller runs.
inline constexpr uint64_t kMostChunkBytes = 256 << 20;
static_assert(std::has_single_bit(kMostChunkBytes), "chunk_bytes() rounds up to it at most");

/// Of up to `most` rows, whose chunks take row_bytes each, those that run together.
constexpr uint32_t rows_together(uint64_t row_bytes, uint32_t most) {
  return uint32_t(std::clamp<uint64_t>(kMostChunkBytes / std::max<uint64_t>(1, row_bytes), 1, most));
}
/// What is allocated for `needed` bytes: it doubles as the context grows, below the limit.
constexpr uint64_t chunk_bytes(uint64_t needed) { return needed > kMostChunkBytes ? needed : std::bit_ceil(needed); }

}  // namespace honeycrisp::backend::cuda
