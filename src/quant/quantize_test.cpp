#include "quant/quantize.h"

#include "base/half.h"
#include "quant/dequantize.h"
#include "quant/golden_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <rapidcheck/gtest.h>
#include <set>

namespace honeycrisp::quant {
namespace {

using testing::HasSubstr;

std::vector<Format> quantizable_formats() {
  std::vector<Format> formats;
  for (Format f : all_formats()) {
    if (can_quantize(f)) formats.push_back(f);
  }
  return formats;
}

std::vector<std::byte> quantized(Format f, const std::vector<float>& x) {
  std::vector<std::byte> bytes(row_bytes(f, x.size()));
  const auto result = quantize_row(f, x.data(), bytes.data(), x.size());
  EXPECT_TRUE(result) << result.error().message;
  return bytes;
}

std::vector<float> round_trip(Format f, const std::vector<float>& x) {
  const auto bytes = quantized(f, x);
  std::vector<float> y(x.size());
  dequantize_row(f, bytes.data(), y.data(), y.size());
  return y;
}

Error quantize_error(Format f, const std::vector<float>& x) {
  std::vector<std::byte> bytes(row_bytes(f, x.size()) + info(f).block_bytes);
  const auto result = quantize_row(f, x.data(), bytes.data(), x.size());
  EXPECT_FALSE(result);
  return result ? Error{} : result.error();
}

// The error that rounding may leave on an element of a block with these extremes, were its scales exact, in steps of
// the scale; and the largest factors that multiply the stored scale and minimum.
struct Bound {
  Format format;
  float scale_divisor;   // scale = extreme (or range) / divisor
  bool range;            // the scale covers max - min, not the largest magnitude
  float error_in_steps;  // symmetric codes have one step less on the side opposite to the extreme
  float largest_code;
};
constexpr Bound kBounds[] = {
    {Format::kQ4_0, 8, false, 1.0f, 8},  {Format::kQ4_1, 15, true, 0.5f, 15},    {Format::kQ5_0, 16, false, 1.0f, 16},
    {Format::kQ5_1, 31, true, 0.5f, 31}, {Format::kQ8_0, 127, false, 0.5f, 127}, {Format::kTQ1_0, 1, false, 0.5f, 1},
    {Format::kTQ2_0, 1, false, 0.5f, 1},
};

class QuantizeFormat : public testing::TestWithParam<Format> {};
INSTANTIATE_TEST_SUITE_P(All, QuantizeFormat, testing::ValuesIn(quantizable_formats()), format_test_name);

TEST_P(QuantizeFormat, golden_rows_are_byte_equal) {
  const std::string name(to_string(GetParam()));
  const auto rows = read_golden<float>("rows_4x512.f32");
  ASSERT_EQ(rows.size(), 4 * 512u);
  if (GetParam() == Format::kF16) {  // all its values are tested below
    EXPECT_FALSE(std::filesystem::exists(golden_path("rows_4x512.f16"))) << "golden data that no test reads";
    return;
  }
  EXPECT_EQ(quantized(GetParam(), rows), read_golden<std::byte>("rows_4x512." + name));
}

TEST_P(QuantizeFormat, zeros_stay_zeros) {
  for (float zero : {0.0f, -0.0f}) {
    for (float y : round_trip(GetParam(), std::vector<float>(256, zero))) EXPECT_EQ(y, 0);
  }
}

TEST_P(QuantizeFormat, tiny_values_become_tiny_values) {
  for (float x : {1e-45f, -1e-45f, 1e-40f, 0x1p-128f, 0x1p-126f, -1e-30f}) {
    std::vector<float> row(256, 0.0f);
    row[3] = x;
    row[77] = -x / 2;
    for (float y : round_trip(GetParam(), row)) EXPECT_LE(std::abs(y), 2 * std::abs(x));
  }
}

TEST_P(QuantizeFormat, non_finite_elements_are_named) {
  for (float bad : {INFINITY, -INFINITY, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> row(512, 1.0f);
    row[300] = bad;
    const Error error = quantize_error(GetParam(), row);
    EXPECT_EQ(error.code, ErrorCode::kInvalidInput);
    EXPECT_THAT(error.message, HasSubstr("element 300"));
  }
}

TEST_P(QuantizeFormat, huge_values_are_kept_or_refused_never_infinite) {
  for (float huge : {1e5f, 1e6f, 3e38f, std::numeric_limits<float>::max()}) {
    std::vector<float> row(256, 1.0f);
    row[40] = huge;
    row[41] = -huge;
    std::vector<std::byte> bytes(row_bytes(GetParam(), row.size()));
    if (const auto result = quantize_row(GetParam(), row.data(), bytes.data(), row.size()); !result) {
      EXPECT_EQ(result.error().code, ErrorCode::kInvalidInput);
      EXPECT_THAT(result.error().message, HasSubstr("too large"));
      continue;
    }
    std::vector<float> y(row.size());
    dequantize_row(GetParam(), bytes.data(), y.data(), y.size());
    for (float v : y) EXPECT_TRUE(std::isfinite(v)) << huge;
    EXPECT_NEAR(y[40] / huge, 1, 0.3f);
  }
}

TEST_P(QuantizeFormat, partial_blocks_are_refused) {
  const uint32_t elements = info(GetParam()).block_elements;
  if (elements == 1) return;
  const Error error = quantize_error(GetParam(), std::vector<float>(elements + 1, 1.0f));
  EXPECT_EQ(error.code, ErrorCode::kInvalidInput);
  EXPECT_THAT(error.message, HasSubstr(std::to_string(elements + 1)));
}

// Eighths that lie on the format's steps: first, first + step, ... (`count` of them, repeated).
struct ExactValues {
  Format format;
  int first, step, count;
};
constexpr ExactValues kExactValues[] = {
    {Format::kF32, -8, 1, 16},  {Format::kF16, -8, 1, 16},   {Format::kBF16, -8, 1, 16},  {Format::kQ4_0, -8, 1, 16},
    {Format::kQ4_1, 3, 1, 16},  {Format::kQ5_0, -16, 1, 32}, {Format::kQ5_1, -40, 1, 32}, {Format::kQ8_0, 127, -4, 32},
    {Format::kTQ1_0, -1, 1, 3}, {Format::kTQ2_0, -1, 1, 3},  {Format::kMXFP4, -6, 6, 3},
};

TEST_P(QuantizeFormat, values_on_its_steps_survive_unchanged) {
  const auto* values =
      std::find_if(std::begin(kExactValues), std::end(kExactValues), [](auto& v) { return v.format == GetParam(); });
  ASSERT_NE(values, std::end(kExactValues)) << "a quantizer without a row in kExactValues";
  std::vector<float> row(512);
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = 0.125f * float(values->first + values->step * int(i % size_t(values->count)));
  }
  expect_same_floats(round_trip(GetParam(), row), row);
}

TEST_P(QuantizeFormat, any_finite_bits_are_stored_finite_or_refused) {
  std::mt19937 random(3);
  std::vector<float> row(256), y(256);
  std::vector<std::byte> bytes(row_bytes(GetParam(), row.size()));
  size_t stored = 0;
  for (int round = 0; round < 2000; ++round) {
    // any sign and mantissa, exponents up to a ceiling of the row's own
    const uint32_t exponents = 1 + random() % 255;
    for (float& x : row) x = std::bit_cast<float>(uint32_t((random() & 0x807fffff) | random() % exponents << 23));
    if (!quantize_row(GetParam(), row.data(), bytes.data(), row.size())) continue;
    ++stored;
    dequantize_row(GetParam(), bytes.data(), y.data(), y.size());
    for (float v : y) ASSERT_TRUE(std::isfinite(v));
  }
  EXPECT_GT(stored, 500u);
}

// What these values, followed by zeros to the end of the block, read as after quantizing.
std::vector<float> first_values(Format f, std::vector<float> x) {
  const size_t n = x.size();
  x.resize(info(f).block_elements);
  auto y = round_trip(f, x);
  y.resize(n);
  return y;
}

TEST(Quantize, ties_go_where_the_reference_sends_them) {
  // away from zero
  EXPECT_EQ(first_values(Format::kQ8_0, {127, 0.5f, -0.5f, 2.5f, -2.5f}), (std::vector<float>{127, 1, -1, 3, -3}));
  EXPECT_EQ(first_values(Format::kTQ2_0, {1, 0.5f, -0.5f}), (std::vector<float>{1, 1, -1}));
  // the scale takes the sign of the first of two extremes; the other one has no code of its own
  EXPECT_EQ(first_values(Format::kQ4_0, {8, -8}), (std::vector<float>{8, -7}));
  EXPECT_EQ(first_values(Format::kQ5_0, {-16, 16}), (std::vector<float>{-16, 15}));
  // up in codes: towards the larger value, or against the sign of the extreme
  EXPECT_EQ(first_values(Format::kQ4_1, {15, 0, 0.5f}), (std::vector<float>{15, 0, 1}));
  EXPECT_EQ(first_values(Format::kQ4_0, {-8, 0.5f, -0.5f}), (std::vector<float>{-8, 1, 0}));
  // to the smaller magnitude
  EXPECT_EQ(first_values(Format::kMXFP4, {6, 2.5f, 5, -2.5f, -0.25f}), (std::vector<float>{6, 2, 4, -2, 0}));
}

TEST(Quantize, mxfp4_scale_rounds_log2_in_f32) {
  const float below_1024 = std::nextafter(1024.0f, 0.0f), below_4 = std::nextafter(4.0f, 0.0f);
  std::vector<float> row(32, below_1024);
  EXPECT_EQ(quantized(Format::kMXFP4, row)[0], std::byte{127 + 10 - 2});
  row.assign(32, below_4);
  EXPECT_EQ(quantized(Format::kMXFP4, row)[0], std::byte{127 + 1 - 2});
}

TEST(Quantize, f16_takes_the_nearest_of_all_values_and_the_even_of_two) {
  for (uint16_t low = 0; low < 0x7bff; ++low) {
    const uint16_t high = uint16_t(low + 1);
    const float a = f16_to_f32(low), b = f16_to_f32(high), middle = a + (b - a) / 2;
    const std::vector<float> row = {a, std::nextafter(middle, a), middle, std::nextafter(middle, b), -middle};
    const uint16_t even = low % 2 ? high : low;
    const std::vector<float> expected = {a, a, f16_to_f32(even), b, -f16_to_f32(even)};
    expect_same_floats(round_trip(Format::kF16, row), expected);
  }
}

TEST(Quantize, formats_are_refused_only_when_they_would_store_infinity) {
  EXPECT_EQ(quantized(Format::kF16, {65519.0f}), quantized(Format::kF16, {65504.0f}));
  EXPECT_THAT(quantize_error(Format::kF16, {0.0f, 65520.0f}).message, HasSubstr("element 1"));
  EXPECT_THAT(quantize_error(Format::kBF16, {0.0f, std::numeric_limits<float>::max()}).message, HasSubstr("element 1"));
  std::vector<float> row(64, 1.0f);
  row[50] = 8 * 65520.0f;
  EXPECT_THAT(quantize_error(Format::kQ4_0, row).message, HasSubstr("elements 32 to 63"));
}

TEST(Quantize, formats_without_quantizer_are_named) {
  for (Format f : {Format::kQ4_K, Format::kIQ2_XXS, Format::kNVFP4, Format::kI8, Format::kF64}) {
    EXPECT_FALSE(can_quantize(f));
    const Error error = quantize_error(f, std::vector<float>(256));
    EXPECT_EQ(error.code, ErrorCode::kUnsupported);
    EXPECT_THAT(error.message, HasSubstr(std::string(to_string(f))));
  }
}

TEST(Quantize, tq1_0_keeps_every_group_of_five_trits) {
  for (int number = 0; number < 243; ++number) {
    std::vector<float> row(256, -1.0f);
    for (int k = 0, rest = number; k < 5; ++k, rest /= 3)
      row[size_t(32 * k)] = row[size_t(160 + 16 * k)] = float(rest % 3 - 1);
    expect_same_floats(round_trip(Format::kTQ1_0, row), row);
  }
}

TEST(Quantize, mxfp4_values_survive_unchanged_for_all_scales) {
  constexpr float kValues[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.5f, -1, -1.5f, -2, -3, -4, -6, 6};
  for (int exponent = -127; exponent <= 125; ++exponent) {
    std::vector<float> row;
    for (int i = 0; i < 32; ++i) row.push_back(std::ldexp(kValues[i % 16], exponent));
    expect_same_floats(round_trip(Format::kMXFP4, row), row);
  }
}

TEST(Quantize, error_is_bounded_by_the_scale) {
  const auto element = rc::gen::map(rc::gen::pair(rc::gen::inRange(-1000, 1001), rc::gen::inRange(-20, 5)),
                                    [](auto p) { return std::ldexp(float(p.first), p.second); });
  for (const Bound& bound : kBounds) {
    const size_t n = info(bound.format).block_elements;
    const bool ok = rc::check(std::string(to_string(bound.format)), [&] {
      const auto x = *rc::gen::container<std::vector<float>>(n, element);
      const auto y = round_trip(bound.format, x);
      const auto [min, max] = std::minmax_element(x.begin(), x.end());
      const float extent = bound.range ? *max - *min : std::max(std::abs(*min), std::abs(*max));
      const float scale = extent / bound.scale_divisor;
      // storing as f16 moves the scale (and the minimum) by half a unit in the last place
      const auto f16_error = [](float v) { return std::max(std::abs(v) * 0x1p-11f, 0x1p-25f); };
      const float allowed = scale * bound.error_in_steps * 1.0001f + bound.largest_code * f16_error(scale) +
                            (bound.range ? f16_error(*min) : 0);
      for (size_t i = 0; i < n; ++i) RC_ASSERT(std::abs(x[i] - y[i]) <= allowed);
    });
    EXPECT_TRUE(ok) << to_string(bound.format);
  }
}

RC_GTEST_PROP(QuantizeProperty, mxfp4_takes_the_nearest_code, ()) {
  const auto element = rc::gen::map(rc::gen::inRange(-100000, 100001), [](int v) { return float(v) * 0x1p-12f; });
  const auto x = *rc::gen::container<std::vector<float>>(32, element);
  const auto bytes = quantized(Format::kMXFP4, x);
  const auto y = round_trip(Format::kMXFP4, x);
  for (size_t i = 0; i < x.size(); ++i) {
    for (int code = 0; code < 16; ++code) {
      BlockMXFP4 other{uint8_t(bytes[0]), {uint8_t(code)}};
      float value[32];
      Traits<Format::kMXFP4>::dequantize_block(other, value);
      RC_ASSERT(std::abs(x[i] - y[i]) <= std::abs(x[i] - value[0]));
    }
  }
}

}  // namespace
}  // namespace honeycrisp::quant
