// The grids of the IQ formats, unpacked.
#include "quant/tables.h"

#include "quant/grids.h"

namespace honeycrisp::quant {
namespace {

// Element j of a row is kLevels[its bits j * Bits ..].
template <int Bits, class T, size_t Levels, size_t Rows>
constexpr auto expand(const uint16_t (&packed)[Rows], const std::array<T, Levels>& levels) {
  Grid<T, 16 / Bits, Rows> grid{};
  for (size_t row = 0; row < Rows; ++row) {
    for (int j = 0; j < 16 / Bits; ++j) {
      // `at` makes a code without a level a compile-time error
      grid[row][size_t(j)] = levels.at(size_t(packed[row] >> (j * Bits) & ((1 << Bits) - 1)));
    }
  }
  return grid;
}

constexpr std::array<uint8_t, 3> kLevelsIQ2 = {8, 25, 43};
constexpr std::array<uint8_t, 8> kLevelsIQ3_XXS = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr std::array<uint8_t, 8> kLevelsIQ3_S = {1, 3, 5, 7, 9, 11, 13, 15};
constexpr std::array<int8_t, 3> kLevelsIQ1 = {-1, 0, 1};

}  // namespace

constexpr Grid<uint8_t, 8, 256> kGridIQ2_XXS = expand<2>(kPackedIQ2_XXS, kLevelsIQ2);
constexpr Grid<uint8_t, 8, 512> kGridIQ2_XS = expand<2>(kPackedIQ2_XS, kLevelsIQ2);
constexpr Grid<uint8_t, 8, 1024> kGridIQ2_S = expand<2>(kPackedIQ2_S, kLevelsIQ2);
constexpr Grid<uint8_t, 4, 256> kGridIQ3_XXS = expand<4>(kPackedIQ3_XXS, kLevelsIQ3_XXS);
constexpr Grid<uint8_t, 4, 512> kGridIQ3_S = expand<4>(kPackedIQ3_S, kLevelsIQ3_S);
constexpr Grid<int8_t, 8, 2048> kGridIQ1 = expand<2>(kPackedIQ1, kLevelsIQ1);

}  // namespace honeycrisp::quant
