#include "quant/dequantize.h"

#include "quant/golden_data.h"
#include "quant/tables.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <set>

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace honeycrisp::quant {
namespace {

template <class T>
std::vector<float> dequantize_values(Format f, const std::vector<T>& values) {
  std::vector<float> out(values.size() * sizeof(T) / info(f).block_bytes * info(f).block_elements);
  dequantize_row(f, reinterpret_cast<const std::byte*>(values.data()), out.data(), out.size());
  return out;
}

std::vector<std::byte> random_bytes(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(n);
  for (std::byte& b : bytes) b = std::byte(random());
  return bytes;
}

// Formats without golden blocks; each has a test of its own below that computes all or typical values another way.
const std::set<Format> kScalarsTestedHere = {Format::kF32, Format::kF16, Format::kF64, Format::kI8,
                                             Format::kI16, Format::kI32, Format::kI64};

class DequantizeFormat : public testing::TestWithParam<Format> {};
INSTANTIATE_TEST_SUITE_P(All, DequantizeFormat, testing::ValuesIn(all_formats()), format_test_name);

TEST_P(DequantizeFormat, golden_blocks_are_bit_equal) {
  const std::string name(to_string(GetParam()));
  if (kScalarsTestedHere.contains(GetParam())) {
    EXPECT_FALSE(std::filesystem::exists(golden_path(name + ".blocks"))) << "golden data that no test reads";
    return;
  }
  const auto blocks = read_golden<std::byte>(name + ".blocks");
  ASSERT_EQ(blocks.size(), 48 * info(GetParam()).block_bytes);
  expect_same_floats(dequantize_values(GetParam(), blocks), read_golden<float>(name + ".f32"));
}

TEST_P(DequantizeFormat, any_bytes_at_any_address_give_the_same_values) {
  const size_t n_blocks = 500;
  const auto bytes = random_bytes(n_blocks * info(GetParam()).block_bytes, 1);
  const auto expected = dequantize_values(GetParam(), bytes);
  std::vector<std::byte> shifted(bytes.size() + 1);
  std::copy(bytes.begin(), bytes.end(), shifted.begin() + 1);
  std::vector<float> actual(expected.size());
  dequantize_row(GetParam(), shifted.data() + 1, actual.data(), actual.size());
  expect_same_floats(actual, expected);
}

TEST_P(DequantizeFormat, zero_elements_touch_nothing) {
  float guard = 7;
  dequantize_row(GetParam(), nullptr, &guard, 0);
  EXPECT_EQ(guard, 7);
}

#ifdef __SSE2__
TEST_P(DequantizeFormat, flushing_subnormals_changes_nothing) {
  const size_t n_blocks = 500;
  auto bytes = random_bytes(n_blocks * info(GetParam()).block_bytes, 2);
  // small numbers in every byte position: scales that are subnormal or next to it
  for (size_t i = 0; i < bytes.size(); i += 3) bytes[i] &= std::byte{1};
  const auto expected = dequantize_values(GetParam(), bytes);
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040);  // flush results to zero, read subnormals as zero
  const auto actual = dequantize_values(GetParam(), bytes);
  _mm_setcsr(saved);
  expect_same_floats(actual, expected);
}
#endif

TEST(Dequantize, f32_keeps_all_bits) {
  const std::vector<float> values = {0.0f, -0.0f, 1.5f, 1e-45f, std::numeric_limits<float>::infinity(), NAN};
  expect_same_floats(dequantize_values(Format::kF32, values), values);
}

TEST(Dequantize, f16_is_exact_for_all_bits) {
  std::vector<uint16_t> all;
  std::vector<float> expected;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int exponent = int(bits >> 10 & 31), mantissa = int(bits & 1023);
    float magnitude = std::ldexp(float(exponent ? mantissa + 1024 : mantissa), std::max(exponent, 1) - 25);
    if (exponent == 31) magnitude = mantissa ? NAN : INFINITY;
    all.push_back(uint16_t(bits));
    expected.push_back(bits & 0x8000 ? -magnitude : magnitude);
  }
  expect_same_floats(dequantize_values(Format::kF16, all), expected);
}

TEST(Dequantize, integers_round_to_the_nearest_float) {
  expect_same_floats(dequantize_values(Format::kI8, std::vector<int8_t>{0, -1, 127, -128}),
                     std::vector<float>{0, -1, 127, -128});
  expect_same_floats(dequantize_values(Format::kI16, std::vector<int16_t>{-32768, 32767}),
                     std::vector<float>{-32768, 32767});
  expect_same_floats(dequantize_values(Format::kI32, std::vector<int32_t>{16777217, 16777219, INT32_MIN}),
                     std::vector<float>{16777216, 16777220, -0x1p31f});
  expect_same_floats(dequantize_values(Format::kI64, std::vector<int64_t>{INT64_MIN, INT64_MAX, 1}),
                     std::vector<float>{-0x1p63f, 0x1p63f, 1});
}

TEST(Dequantize, f64_rounds_to_the_nearest_float) {
  const std::vector<double> values = {0.0,         -0.0,
                                      0.1,         -1e300,
                                      1e-300,      -5e-324,
                                      0x1p-149,    0x1p-150,
                                      -0x1.8p-149, 0x1.000001p-150,
                                      1e40,        0x1p-126,
                                      0x1.0p-127,  0x1.fffffep-127,
                                      NAN,         INFINITY,
                                      3.4e38,      0x1.ffffffp-127};
  std::vector<float> expected;
  for (double x : values) expected.push_back(float(x));
  expect_same_floats(dequantize_values(Format::kF64, values), expected);
}

TEST(Dequantize, mxfp4_is_exact_for_all_scales_and_codes) {
  for (int exponent = 0; exponent < 256; ++exponent) {
    BlockMXFP4 block{uint8_t(exponent), {}};
    for (int j = 0; j < 16; ++j) block.codes[j] = uint8_t(j | (15 - j) << 4);
    const auto x = dequantize_values(Format::kMXFP4, std::vector{block});
    for (size_t i = 0; i < 32; ++i) {
      const int doubled = kE2M1Doubled[i < 16 ? i : 31 - i];
      ASSERT_TRUE(same_float(x[i], float(std::ldexp(double(doubled), exponent - 128)))) << exponent << " " << i;
    }
  }
}

TEST(Dequantize, nvfp4_is_exact_for_all_scales) {
  for (int scale = 0; scale < 256; ++scale) {
    BlockNVFP4 block{{uint8_t(scale), 0, 0, 0}, {}};
    for (uint8_t& c : block.codes) c = 0xf7;  // 6 and -6
    const auto x = dequantize_values(Format::kNVFP4, std::vector{block});
    const int exponent = scale >> 3 & 15, mantissa = scale & 7;
    const double value = scale == 0x7f ? 0
                         : exponent    ? std::ldexp(8.0 + mantissa, exponent - 10)
                                       : std::ldexp(mantissa, -9);
    for (size_t i = 0; i < 8; ++i) {
      ASSERT_EQ(x[i], float(6 * value)) << scale;
      ASSERT_EQ(x[i + 8], float(-6 * value)) << scale;
    }
    for (size_t i = 16; i < 64; ++i) ASSERT_EQ(x[i], 0) << scale;
  }
}

TEST(Dequantize, infinite_and_nan_scales_propagate) {
  BlockQ8_0 block{};
  block.codes[0] = 1;
  block.codes[1] = -1;
  block.d = 0x7c00;  // infinity
  auto x = dequantize_values(Format::kQ8_0, std::vector{block});
  EXPECT_EQ(x[0], INFINITY);
  EXPECT_EQ(x[1], -INFINITY);
  EXPECT_TRUE(std::isnan(x[2]));  // 0 * infinity
  block.d = 0x7e00;               // NaN
  x = dequantize_values(Format::kQ8_0, std::vector{block});
  for (float v : x) EXPECT_TRUE(std::isnan(v));
}

TEST(Dequantize, subnormal_scales_keep_their_value) {
  BlockQ4_0 block{1, {}};  // d = 2^-24
  for (uint8_t& c : block.codes) c = 0x0f;
  const auto x = dequantize_values(Format::kQ4_0, std::vector{block});
  EXPECT_EQ(x[0], 7 * 0x1p-24f);
  EXPECT_EQ(x[16], -8 * 0x1p-24f);
}

TEST(DequantizeDeathTest, partial_blocks_are_our_fault) {
  std::vector<std::byte> bytes(34);
  std::vector<float> out(64);
  EXPECT_DEATH(dequantize_row(Format::kQ8_0, bytes.data(), out.data(), 33), "33 elements of Q8_0");
}

template <class G>
void expect_distinct_rows(const G& grid, const char* name) {
  EXPECT_EQ(std::set(grid.begin(), grid.end()).size(), grid.size()) << name;
}

TEST(Tables, grid_rows_are_distinct) {
  expect_distinct_rows(kGridIQ2_XXS, "IQ2_XXS");
  expect_distinct_rows(kGridIQ2_XS, "IQ2_XS");
  expect_distinct_rows(kGridIQ2_S, "IQ2_S");
  expect_distinct_rows(kGridIQ3_XXS, "IQ3_XXS");
  expect_distinct_rows(kGridIQ3_S, "IQ3_S");
  expect_distinct_rows(kGridIQ1, "IQ1");
}

TEST(Tables, even_signs_have_even_parity_and_keep_seven_bits) {
  for (uint32_t i = 0; i < kEvenSigns.size(); ++i) {
    EXPECT_EQ(kEvenSigns[i] & 127u, i);
    EXPECT_EQ(std::popcount(kEvenSigns[i]) % 2, 0);
  }
}

}  // namespace
}  // namespace honeycrisp::quant
