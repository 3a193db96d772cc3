// Constant tables of the codebook formats, expanded for use on the host; GPU backends upload them as they are.
// Row i of a grid is the group of 8 (or 4) values of grid index i, element 0 first. The values are facts of the format
// (ggml's iq2xxs_grid ... iq1s_grid, in the packed form that gguf-py publishes).
#pragma once

#include "quant/blocks.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace honeycrisp::quant {

template <class T, size_t Width, size_t Rows>
using Grid = std::array<std::array<T, Width>, Rows>;

extern const Grid<uint8_t, 8, 256> kGridIQ2_XXS;
extern const Grid<uint8_t, 8, 512> kGridIQ2_XS;
extern const Grid<uint8_t, 8, 1024> kGridIQ2_S;
extern const Grid<uint8_t, 4, 256> kGridIQ3_XXS;
extern const Grid<uint8_t, 4, 512> kGridIQ3_S;
extern const Grid<int8_t, 8, 2048> kGridIQ1;  // IQ1_S and IQ1_M

inline constexpr std::array<int8_t, 16> kValuesIQ4_NL = {HC_IQ4_NL_VALUES};
inline constexpr std::array<int8_t, 16> kE2M1Doubled = {HC_E2M1_DOUBLED};

/// Sign byte of each 7-bit sign index: its own bits, and bit 7 such that the number of set bits is even.
inline constexpr auto kEvenSigns = [] {
  std::array<uint8_t, 128> signs{};
  for (uint32_t i = 0; i < signs.size(); ++i) signs[i] = uint8_t(i | (uint32_t(std::popcount(i)) & 1) << 7);
  return signs;
}();

}  // namespace honeycrisp::quant
