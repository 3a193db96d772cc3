// Packed tiles of every format on the host, by the device's own functions: what packing keeps, and products of a tile
// in both paths against sums in f64. Needs no device and no CUDA.
#include "backend/cuda/kernels/block_scale.cuh"
#include "backend/cuda/kernels/half_tile.cuh"
#include "backend/cuda/kernels/packing.cuh"
#include "backend/cuda/kernels/step_tile.cuh"
#include "backend/cuda/kernels/tile_product.cuh"
#include "support/random_weights.h"
#include "warp.h"

#include <gtest/gtest.h>

namespace honeycrisp::backend::cuda {
namespace {

using test_support::Random;
using test_support::random_weights;

constexpr double kRounding = 0x1p-24;

struct alignas(16) TileBytes {
  uint8_t bytes[8192];
};

// Rows of a weight, their values, and their tiles.
template <Format F>
struct Packed {
  uint32_t rows, cols, k_tiles;
  std::vector<float> values;
  std::vector<TileBytes> tiles;

  Packed(const std::vector<std::byte>& file, uint32_t n_rows, uint32_t n_cols)
      : rows(n_rows),
        cols(n_cols),
        k_tiles((cols + kTileCols - 1) / kTileCols),
        values(size_t{rows} * cols),
        tiles(size_t{(rows + kTileRows - 1) / kTileRows} * k_tiles) {
    static_assert(tile_bytes(F) <= sizeof(TileBytes) && tile_bytes(F) % 16 == 0);  // copied and read by 16 bytes
    quant::dequantize_row(F, file.data(), values.data(), values.size());
    const PackSource source{reinterpret_cast<const uint8_t*>(file.data()), rows, cols};
    for (uint32_t i = 0; i < tiles.size(); ++i)
      for (uint32_t at = 0; at < tile_bytes(F) / 2; ++at) {
        const uint16_t word = packed_word<F>(source, i / k_tiles * kTileRows, i % k_tiles * kTileCols, int(at));
        std::memcpy(tiles[i].bytes + 2 * at, &word, 2);
      }
  }
  const uint8_t* tile(uint32_t row_tile, uint32_t k_tile) const { return tiles[row_tile * k_tiles + k_tile].bytes; }
  double value(uint32_t row, uint32_t column) const {
    return row < rows && column < cols ? double(values[size_t{row} * cols + column]) : 0.0;
  }
};

template <Format F>
constexpr uint32_t odd_columns() {
  return quant::info(F).block_elements == 256 ? 512 : 256 + 64;
}

template <Format F>
void expect_lossless(const std::vector<std::byte>& file, uint32_t rows) {
  const Packed<F> packed(file, rows, odd_columns<F>());
  for (uint32_t row = 0; row < rows; ++row)
    for (uint32_t o = 0; 8 * o < packed.cols; ++o)
      for (uint32_t column = 8 * o; column < 8 * o + 8; ++column) {
        const float expected = packed.values[size_t{row} * packed.cols + column];
        const float found = packed_value<F>(packed.tile(row / kTileRows, column / kTileCols), int(row % kTileRows),
                                            int(column % kTileCols));
        if (std::isnan(expected) && std::isnan(found)) continue;
        ASSERT_EQ(std::bit_cast<uint32_t>(found), std::bit_cast<uint32_t>(expected)) << row << ", " << column;
      }
}

// Bounds the terms that products of the tile's element add up: |scale · code|, |scale · offset| and |minimum|, which
// follow from the values with all bits of codes unset and set.
template <Format F>
std::vector<double> largest_terms(const uint8_t* tile) {
  std::vector<double> terms(kTileRows * kTileCols);
  if constexpr (is_packed_float(F)) {
    for (uint32_t i = 0; i < terms.size(); ++i)
      terms[i] = double(std::abs(packed_value<F>(tile, int(i / kTileCols), int(i % kTileCols))));
    return terms;
  }
  for (int fill : {0, 255}) {
    TileBytes filled;
    std::memcpy(filled.bytes, tile, tile_bytes(F));
    std::memset(filled.bytes, fill, size_t(layout_of(F).scales_at()) + (F == Format::kQ6_K ? 1024 : 0));
    for (uint32_t i = 0; i < terms.size(); ++i)
      terms[i] += double(std::abs(packed_value<F>(filled.bytes, int(i / kTileCols), int(i % kTileCols))));
  }
  return terms;
}

// ---- the persistent kernel's products

// A row's activations of a tile: integers of eleven significant bits and powers of two, and what is staged of them, as
// limbs of a byte and as f16.
struct RowOfTile {
  int x[kTileCols];
  int exponents[8];  // of the blocks' scales, relative to the tile's: 0 .. -24
  KnownOfTile known{}, known_of_halves{};
  alignas(16) uint32_t limbs[kLimbWords] = {}, halves[kHalfWords] = {};

  double value(uint32_t column) const { return std::ldexp(double(known.whole) * x[column], exponents[column / 32]); }
  void prepare(float whole) {
    known.whole = known_of_halves.whole = whole;
    for (int blk = 0; blk < 8; ++blk) {
      int sum = 0, low_sum = 0;
      const float scale = std::ldexp(1.0f, exponents[blk]);
      for (int j = 0; j < 32; ++j) {
        const int v = x[32 * blk + j], high = j / 16, t = j % 16 / 4, byte = byte_of_element(j % 4);
        sum += v;
        if (high == 0) low_sum += v;
        for (int limb = 0; limb < 2; ++limb)
          limbs[blk / 2 * 32 + limb * 16 + t * 4 + blk % 2 * 2 + high] |= uint32_t(limb == 0 ? (v >> 7) & 255 : v & 127)
                                                                          << (8 * byte);
        const float half = scale * float(v);
        EXPECT_EQ(f16_to_f32(f32_to_f16(half)), half) << v;
        halves[blk * 16 + int(half_word(uint32_t(j) & ~1u))] |= uint32_t{f32_to_f16(half)} << (16 * (j % 2));
      }
      known.scale[blk] = scale;
      known.sum[blk] = scale * float(sum);
      known.low_sum[blk] = scale * float(low_sum);
      known_of_halves.sum[blk] = known.sum[blk] / kUnscale;
      known_of_halves.low_sum[blk] = known.low_sum[blk] / kUnscale;
    }
  }
};

constexpr int kMostActivation = 127 * 128 - 8;  // (BlockScale)

// To eleven significant bits.
int rounded(int v) {
  int bits = 0;
  while (std::abs(v) >> bits >= 2048) ++bits;
  return v / (1 << bits) * (1 << bits);
}

std::vector<RowOfTile> random_activations(Random& random, int n) {
  std::vector<RowOfTile> rows(static_cast<size_t>(n));
  for (int row = 0; row < n; ++row) {
    RowOfTile& a = rows[size_t(row)];
    for (int& exponent : a.exponents) exponent = -int(random.bits() % (row == 4 ? 25 : 9));
    for (int& x : a.x) x = rounded(int(random.bits() % uint32_t(2 * kMostActivation + 1)) - kMostActivation);
    if (row == 1)  // the largest sums
      for (int& x : a.x) x = kMostActivation;
    if (row == 2)
      for (int& x : a.x) x = -kMostActivation;
    if (row == 3)
      for (int i = 0; i < int(kTileCols); ++i) a.x[i] = i == 77 ? -1 : 0;
    a.prepare(std::ldexp(1.0f, -9));
  }
  return rows;
}

// No high limb is 127, whatever the largest value of a block, or its word could be poison; and f16 hold all integers.
TEST(CudaBlockScale, keeps_integers_below_127_times_128_and_their_error_below_half_a_bit_of_eleven) {
  for (uint32_t mantissa = 0; mantissa < 1u << 23; mantissa += mantissa < 0x7d0000 ? 97 : 1) {
    const float v = std::bit_cast<float>(127u << 23 | mantissa);
    const BlockScale scale(magnitude_bits(v));
    const int x = scale.integer(v);
    ASSERT_LT(x, 127 * 128) << v;
    ASSERT_GE(x, 8064) << v;
    ASSERT_EQ(f16_to_f32(f32_to_f16(float(x))), float(x)) << v;
    ASSERT_EQ(scale.integer(-v), -x) << v;
    ASSERT_LE(std::abs(double(scale.after) * x - double(v)), double(v) * 0x1p-11) << v;
  }
  for (const float v : {0.0f, 1e-38f, 3.4e38f}) EXPECT_LT(BlockScale(magnitude_bits(v)).integer(v), 127 * 128) << v;
  EXPECT_TRUE(std::isnan(BlockScale(magnitude_bits(INFINITY)).after));
}

enum class Form { kLimbs, kHalves };

template <Format F, int kRows, Form kForm>
std::vector<float> products_of_rows(const uint8_t* tile, const std::vector<RowOfTile>& rows) {
  constexpr bool kLimbs = kForm == Form::kLimbs;
  std::vector<float> partial(size_t(kTileRows) * kRows), products(partial.size());
  struct alignas(16) Staged {
    uint32_t words[kHalfWords * kRows];
  } staged;
  KnownOfTile known[kRows];
  for (int row = 0; row < kRows; ++row) {
    const RowOfTile& from = rows[size_t(row)];
    known[row] = kLimbs ? from.known : from.known_of_halves;
    for (int i = 0; i < kHalfWords; i += 4) {
      const int to = kLimbs ? i : half_place(row, i / 16, i / 4 % 4);
      std::memcpy(staged.words + row * kHalfWords + to, (kLimbs ? from.limbs : from.halves) + i, 16);
    }
  }
  run_warp([&](int lane) {
    Tile<F> r;
    load_tile<F, PlainLoad>(r, tile, lane);
    if constexpr (kLimbs && kRows == 1) {
      Diagonal diagonal;
      diagonal.load(staged.words, known[0], lane);
      multiply_diagonal<F>(partial.data(), r, diagonal, lane);
    } else if constexpr (kLimbs) {
      multiply_limbs<F, kRows>(partial.data(), r, staged.words, known, lane);
    } else {
      multiply_halves<F, kRows>(partial.data(), r, staged.words, known, lane);
    }
  });
  for (int row = 0; row < kRows; ++row)
    for (int r16 = 0; r16 < int(kTileRows); ++r16)
      products[size_t(row) * kTileRows + size_t(r16)] = partial[size_t(kRows == 1 ? r16 : partial_at(row, r16))];
  return products;
}

template <Format F>
void expect_products_of_integers(Random& random, std::optional<uint8_t> fill) {
  const Packed<F> packed(random_weights(random, F, uint64_t{19} * odd_columns<F>(), fill), 19, odd_columns<F>());
  const std::vector<RowOfTile> rows = random_activations(random, 8);
  for (uint32_t i = 0; i < packed.tiles.size(); i += 3) {  // a whole tile, and the last, which no side fills
    const uint32_t row0 = i / packed.k_tiles * kTileRows, column0 = i % packed.k_tiles * kTileCols;
    const uint8_t* tile = packed.tiles[i].bytes;
    const std::vector<float> eight = products_of_rows<F, 8, Form::kHalves>(tile, rows);
    const auto expect_same = [&](const std::vector<float>& found, size_t first, const char* of) {
      EXPECT_EQ(std::memcmp(&eight[first * kTileRows], found.data(), found.size() * sizeof(float)), 0) << of << first;
    };
    expect_same(products_of_rows<F, 4, Form::kHalves>(tile, rows), 0, "four rows");
    for (size_t row : {size_t{0}, size_t{1}, size_t{2}, size_t{4}, size_t{7}})
      expect_same(products_of_rows<F, 1, Form::kHalves>(tile, {rows[row]}), row, "one row ");
    if constexpr (!is_packed_float(F)) {
      expect_same(products_of_rows<F, 8, Form::kLimbs>(tile, rows), 0, "eight rows of limbs");
      expect_same(products_of_rows<F, 4, Form::kLimbs>(tile, rows), 0, "four rows of limbs");
      for (size_t row : {size_t{0}, size_t{1}, size_t{2}, size_t{4}, size_t{7}})
        expect_same(products_of_rows<F, 1, Form::kLimbs>(tile, {rows[row]}), row, "one row of limbs ");
    }
    const std::vector<double> terms = largest_terms<F>(tile);
    for (uint32_t row = 0; row < 8; ++row)
      for (uint32_t r16 = 0; r16 < kTileRows && row0 + r16 < packed.rows; ++r16) {
        double expected = 0, magnitude = 0;
        for (uint32_t column = 0; column < kTileCols && column0 + column < packed.cols; ++column) {
          expected += packed.value(row0 + r16, column0 + column) * rows[row].value(column);
          magnitude += 2 * terms[r16 * kTileCols + column] * std::abs(rows[row].value(column));
        }
        // On its way to the sum a term is rounded when a scale or minimum is decoded (2), limbs join (1), the offset is
        // subtracted (1), blocks are added (4), pairs (2) and in the end (1); with a weight's own roundings (3) 14.
        EXPECT_NEAR(double(eight[row * kTileRows + r16]), expected, 14 * kRounding * magnitude) << row << ", " << r16;
      }
  }
}

// ---- the graph's products

// Of one row, or of four; [row][16].
template <Format F, int kRows>
std::vector<float> products_in_halves(const uint8_t* tile, const std::vector<std::vector<float>>& x) {
  std::vector<float> partial(size_t(kTileRows) * kRows), products(partial.size());
  run_warp([&](int lane) {
    Tile<F> r;
    load_tile<F>(r, tile, lane);
    using Staged = Activations<F, kRows>;
    float v[Staged::kBlocks][8];
    for (int i = 0; i < Staged::kBlocks; ++i)
      for (int e = 0; e < 8; ++e) {
        const int blk = kRows == 1 ? lane / 8 * 2 + i : i;
        v[i][e] = x[size_t(kRows == 1 ? 0 : lane / 8)][size_t(32 * blk + e / 4 * 16 + lane % 4 * 4 + e % 4)];
      }
    Staged staged;
    staged.make(v, lane);
    multiply<F>(partial.data(), r, staged, lane);
  });
  for (size_t i = 0; i < partial.size(); ++i) products[i % kRows * kTileRows + i / kRows] = partial[i];
  return products;
}

template <Format F>
void expect_products_of_halves(Random& random) {
  const Packed<F> packed(random_weights(random, F, uint64_t{kTileRows} * 256), kTileRows, 256);
  std::vector<std::vector<float>> x;
  for (float largest : {1.0f, 3e4f, 1e-6f, 0.0f}) x.push_back(random.floats(kTileCols, -largest, largest));
  const std::vector<float> four = products_in_halves<F, 4>(packed.tile(0, 0), x);
  const std::vector<double> terms = largest_terms<F>(packed.tile(0, 0));
  for (size_t i = 0; i < x.size(); ++i) {
    const std::vector<float> one = products_in_halves<F, 1>(packed.tile(0, 0), {x[i]});
    EXPECT_EQ(std::memcmp(&four[i * kTileRows], one.data(), one.size() * sizeof(float)), 0) << i;
    double largest = 0;
    for (float v : x[i]) largest = std::max(largest, double(std::abs(v)));
    for (uint32_t row = 0; row < kTileRows; ++row) {
      double expected = 0, magnitude = 0, all_terms = 0;
      for (uint32_t k = 0; k < kTileCols; ++k) {
        const double term = 2 * terms[row * kTileCols + k];
        expected += packed.value(row, k) * double(x[i][k]);
        magnitude += term * double(std::abs(x[i][k]));
        all_terms += term;
      }
      // Activations as two f16 are rounded to 2^-22, or to 2^-24 of the low part's unit, the largest / 2^25. Then:
      // scales and minimums (2), four mma of a sum (8), its parts (1), the offset (1), blocks (8), pairs (2), the end
      // (2).
      const double bound = (4 + 24) * kRounding * magnitude + largest * 0x1p-48 * all_terms;
      EXPECT_NEAR(double(one[row]), expected, bound) << i << ", " << row;
    }
  }
}

template <Format F>
void expect_values(Random& random) {
  const Packed<F> packed(random_weights(random, F, uint64_t{kTileRows} * 256), kTileRows, 256);
  std::vector<float> values(packed.values.size());
  run_warp([&](int lane) {
    Tile<F> r;
    load_tile<F>(r, packed.tile(0, 0), lane);
    for_each_four<F>(r, lane, [&](int i, int high, int r8, const float(&v)[4]) {
      for (int e = 0; e < 4; ++e)
        values[size_t((lane / 4 + 8 * r8) * 256 + 32 * i + 16 * high + lane % 4 * 4 + e)] = v[e];
    });
  });
  const std::vector<double> terms = largest_terms<F>(packed.tile(0, 0));
  for (size_t i = 0; i < values.size(); ++i)  // three roundings here, three there
    ASSERT_NEAR(values[i], packed.values[i], 6 * kRounding * terms[i]) << i;
}

struct Case {
  const char* name;
  void (*pack)();
  void (*integers)();
  void (*halves)();
};

template <Format F>
Case case_of(const char* name) {
  return {name,
          [] {
            Random random(1 + uint64_t(F));
            const uint64_t n = uint64_t{19} * odd_columns<F>();
            expect_lossless<F>(random_weights(random, F, n), 19);
            // Infinite scales and all; a block begins with any byte, which of some formats is a scale.
            constexpr uint32_t kRows = 64, kBlockBytes = quant::info(F).block_bytes;
            std::vector<std::byte> any(quant::row_bytes(F, uint64_t{kRows} * odd_columns<F>()));
            for (size_t i = 0; i < any.size(); ++i)
              any[i] = std::byte(i % kBlockBytes == 0 ? i / kBlockBytes : random.bits());
            expect_lossless<F>(any, kRows);
          },
          [] {
            Random random(2 + uint64_t(F));
            expect_products_of_integers<F>(random, std::nullopt);
            if constexpr (!is_packed_float(F)) expect_products_of_integers<F>(random, uint8_t{0xff});
            expect_products_of_integers<F>(random, uint8_t{0});
          },
          [] {
            Random random(3 + uint64_t(F));
            if constexpr (!is_packed_float(F)) expect_products_of_halves<F>(random);  // else the graph has none
          }};
}

const Case kCases[] = {
#define HC_X(e) case_of<Format::e>(&#e[1]),
    HC_CUDA_PACKED(HC_X)
#undef HC_X
};

class CudaPackedTiles : public ::testing::TestWithParam<Case> {};

TEST_P(CudaPackedTiles, packing_keeps_every_value) { GetParam().pack(); }
TEST_P(CudaPackedTiles, persistent_products_are_near_f64_and_the_same_for_any_rows) { GetParam().integers(); }
TEST_P(CudaPackedTiles, products_of_the_graph_are_near_f64_and_the_same_for_any_rows) { GetParam().halves(); }

INSTANTIATE_TEST_SUITE_P(All, CudaPackedTiles, ::testing::ValuesIn(kCases),
                         [](const auto& tested) { return std::string(tested.param.name); });

// The largest weights times the largest integers stay finite; an infinite weight reaches its row alone.
template <Format F>
void expect_extremes(uint16_t largest, uint16_t infinite) {
  Random random(5);
  std::vector<std::byte> file(size_t{kTileRows} * kTileCols * 2);
  const auto put = [&](uint32_t row, uint32_t column, uint16_t bits) {
    std::memcpy(&file[(size_t{row} * kTileCols + column) * 2], &bits, 2);
  };
  for (uint32_t column = 32; column < 64; ++column) put(2, column, largest);
  put(5, 3, infinite);
  put(9, 40, largest);
  const Packed<F> packed(file, kTileRows, kTileCols);
  std::vector<RowOfTile> rows = random_activations(random, 8);
  for (RowOfTile& row : rows) row.known.whole = row.known_of_halves.whole = 0x1p-20f;
  const std::vector<float> products = products_of_rows<F, 8, Form::kHalves>(packed.tile(0, 0), rows);
  for (size_t row : {size_t{0}, size_t{1}, size_t{2}}) {
    const float* of_row = &products[row * kTileRows];
    for (uint32_t r16 = 0; r16 < kTileRows; ++r16) EXPECT_EQ(std::isfinite(of_row[r16]), r16 != 5) << r16;
    EXPECT_EQ(of_row[9], float(packed.value(9, 40) * rows[row].value(40)));
    const std::vector<float> one = products_of_rows<F, 1, Form::kHalves>(packed.tile(0, 0), {rows[row]});
    for (uint32_t r16 = 0; r16 < kTileRows; ++r16) EXPECT_TRUE(r16 == 5 || one[r16] == of_row[r16]) << r16;
  }
}
TEST(CudaTilesOfFloats, extremes_of_weights_stay_what_they_are) {
  expect_extremes<Format::kF16>(0x7bff, 0x7c00);
  expect_extremes<Format::kBF16>(0x7f7f, 0x7f80);
}

TEST(CudaTileValues, of_formats_that_prompts_make_half_tiles_of_are_those_of_the_file) {
  Random random(4);
#define HC_X(e)                                           \
  {                                                       \
    SCOPED_TRACE(#e);                                     \
    if constexpr (!is_unpacked_in_registers(Format::e)) { \
      expect_values<Format::e>(random);                   \
    }                                                     \
  }
  HC_CUDA_PACKED(HC_X)
#undef HC_X
}

}  // namespace
}  // namespace honeycrisp::backend::cuda
