#include "base/half.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace honeycrisp {
namespace {

/// The value of binary16 bits by its definition.
double decode_f16(uint16_t h) {
  const int exponent = (h >> 10) & 31, mantissa = h & 1023;
  const double sign = h & 0x8000 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  if (exponent == 31) return mantissa ? std::numeric_limits<double>::quiet_NaN() : sign * INFINITY;
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(Half, every_f16_decodes_to_its_definition_and_comes_back) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t h = uint16_t(bits);
    const float f = f16_to_f32(h);
    if (std::isnan(decode_f16(h))) {
      ASSERT_TRUE(std::isnan(f)) << bits;
      ASSERT_EQ(f32_to_f16(f), h | 0x200) << bits;  // the payload stays, the NaN becomes quiet
      continue;
    }
    ASSERT_EQ(double(f), decode_f16(h)) << bits;
    ASSERT_EQ(std::signbit(f), (h & 0x8000) != 0) << bits;
    ASSERT_EQ(f32_to_f16(f), h) << bits;
  }
}

TEST(Half, f32_between_two_f16_goes_to_the_nearest_and_ties_to_even) {
  for (uint16_t h = 0; h < 0x7BFF; ++h) {
    const float low = f16_to_f32(h), high = f16_to_f32(uint16_t(h + 1));
    const float middle = float((double(low) + double(high)) / 2);  // exact: 12 significant bits
    const uint16_t even = uint16_t(h + (h & 1));
    ASSERT_EQ(f32_to_f16(middle), even) << h;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, low)), h) << h;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, high)), h + 1) << h;
    ASSERT_EQ(f32_to_f16(-middle), 0x8000 | even) << h;
  }
}

TEST(Half, f32_beyond_f16_becomes_infinity_or_zero) {
  EXPECT_EQ(f32_to_f16(65504.0f), 0x7BFF);
  EXPECT_EQ(f32_to_f16(std::nextafter(65520.0f, 0.0f)), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(f32_to_f16(-1e30f), 0xFC00);
  EXPECT_EQ(f32_to_f16(INFINITY), 0x7C00);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0);
  EXPECT_EQ(f32_to_f16(std::nextafter(0x1p-25f, 1.0f)), 1);
  EXPECT_EQ(f32_to_f16(-0.0f), 0x8000);
}

TEST(Half, every_bf16_comes_back_and_rounding_ties_to_even) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t h = uint16_t(bits);
    const float f = bf16_to_f32(h);
    ASSERT_EQ(f32_to_bf16(f), std::isnan(f) ? h | 0x40 : h) << bits;
    if ((h & 0x7FFF) >= 0x7F80) continue;
    const auto with_low_bits = [h](uint32_t low) { return std::bit_cast<float>(uint32_t(h) << 16 | low); };
    ASSERT_EQ(f32_to_bf16(with_low_bits(0x7FFF)), h) << bits;
    ASSERT_EQ(f32_to_bf16(with_low_bits(0x8000)), h + (h & 1)) << bits;
    ASSERT_EQ(f32_to_bf16(with_low_bits(0x8001)), h + 1) << bits;
  }
}

}  // namespace
}  // namespace honeycrisp
