// A hash of results, for tests that hold them against a constant in the tree: the same on every machine and compiler.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace honeycrisp::test_support {

inline constexpr uint64_t kNoBits = 0xcbf29ce484222325;

/// FNV-1a of the values' bits, going on from `hash`.
inline uint64_t hash_bits(std::span<const float> values, uint64_t hash = kNoBits) {
  for (float value : values)
    for (uint32_t bits = std::bit_cast<uint32_t>(value), i = 0; i < 4; ++i, bits >>= 8)
      hash = (hash ^ (bits & 0xff)) * 0x100000001b3;
  return hash;
}

}  // namespace honeycrisp::test_support
