// The largest logits of a token, found where all of them were computed: what most samplers need.
#pragma once

#include <array>
#include <cstdint>

namespace honeycrisp {

/// Most of them that may be asked for.
inline constexpr uint32_t kMostTopLogits = 64;

/// By rank: the largest first, ties by id, the lowest first (−0 and +0 tie). NaN and +infinity, with which no token may
/// be chosen, stand before all others, by id.
struct TopLogits {
  uint32_t n = 0;           // as many as were asked for, or all of a smaller vocabulary; 0: none were asked for
  uint32_t n_unusable = 0;  // NaN or +infinity: of all logits, not of these alone
  std::array<float, kMostTopLogits> logits = {};
  std::array<int32_t, kMostTopLogits> tokens = {};
};

}  // namespace honeycrisp
