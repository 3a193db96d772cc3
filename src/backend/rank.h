// The order in which logits stand by rank, as TopLogits has it: for the host and for kernels.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace honeycrisp::backend {

/// Whether no token may be chosen with such a logit among them: NaN or +infinity.
constexpr bool is_unusable(float logit) { return !(logit <= std::numeric_limits<float>::max()); }

/// Grows with the rank of token `id`; no two tokens have the same. Above 0.
constexpr uint64_t rank_of(float logit, uint32_t id) {
  uint32_t key = UINT32_MAX;
  if (!is_unusable(logit)) {
    const uint32_t bits = std::bit_cast<uint32_t>(logit == 0 ? 0.0f : logit);
    key = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  }
  return uint64_t{key} << 32 | uint32_t(~id);
}
constexpr uint32_t token_of(uint64_t rank) { return ~uint32_t(rank); }

}  // namespace honeycrisp::backend
