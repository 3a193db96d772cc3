// Names for the bit fields that block layouts are made of; the same as in the notation of blocks.h.
#pragma once

#include <cstdint>

namespace honeycrisp::quant {

constexpr int nibble(uint32_t v, int k) { return int(v >> (4 * k) & 15); }
constexpr int crumb(uint32_t v, int k) { return int(v >> (2 * k) & 3); }
constexpr int bit(uint32_t v, int k) { return int(v >> k & 1); }

}  // namespace honeycrisp::quant
