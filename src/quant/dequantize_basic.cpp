// Blocks with one level of scales: Q4_0 ... Q8_0, the ternary formats and the FP4 formats. Formulas: blocks.h.
#include "base/half.h"
#include "quant/bits.h"
#include "quant/dequantize.h"
#include "quant/tables.h"

#include <bit>
#include <cmath>

namespace honeycrisp::quant {

void Traits<Format::kQ4_0>::dequantize_block(const BlockQ4_0& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * float(nibble(b.codes[j], 0) - 8);
    out[j + 16] = d * float(nibble(b.codes[j], 1) - 8);
  }
}

void Traits<Format::kQ4_1>::dequantize_block(const BlockQ4_1& b, float* out) {
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * float(nibble(b.codes[j], 0)) + m;
    out[j + 16] = d * float(nibble(b.codes[j], 1)) + m;
  }
}

namespace {
uint32_t high_bits(const uint8_t (&high)[4]) {
  return uint32_t(high[0]) | uint32_t(high[1]) << 8 | uint32_t(high[2]) << 16 | uint32_t(high[3]) << 24;
}
}  // namespace

void Traits<Format::kQ5_0>::dequantize_block(const BlockQ5_0& b, float* out) {
  const float d = f16_to_f32(b.d);
  const uint32_t high = high_bits(b.high);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * float((nibble(b.codes[j], 0) | bit(high, j) << 4) - 16);
    out[j + 16] = d * float((nibble(b.codes[j], 1) | bit(high, j + 16) << 4) - 16);
  }
}

void Traits<Format::kQ5_1>::dequantize_block(const BlockQ5_1& b, float* out) {
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  const uint32_t high = high_bits(b.high);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * float(nibble(b.codes[j], 0) | bit(high, j) << 4) + m;
    out[j + 16] = d * float(nibble(b.codes[j], 1) | bit(high, j + 16) << 4) + m;
  }
}

void Traits<Format::kQ8_0>::dequantize_block(const BlockQ8_0& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 32; ++i) out[i] = float(b.codes[i]) * d;
}

namespace {
// `width` bytes hold `trits` runs of `width` elements. The product keeps 8 bits: what the earlier trits carried out
// is gone, and the next one is on top.
void dequantize_trits(const uint8_t* codes, int width, int trits, float d, float* out) {
  constexpr uint8_t kPowersOf3[5] = {1, 3, 9, 27, 81};
  for (int k = 0; k < trits; ++k) {
    for (int j = 0; j < width; ++j) {
      const int rest = codes[j] * kPowersOf3[k] & 255;
      out[k * width + j] = d * float((rest * 3 >> 8) - 1);
    }
  }
}
}  // namespace

void Traits<Format::kTQ1_0>::dequantize_block(const BlockTQ1_0& b, float* out) {
  const float d = f16_to_f32(b.d);
  dequantize_trits(b.codes, 32, 5, d, out);
  dequantize_trits(b.codes + 32, 16, 5, d, out + 160);
  dequantize_trits(b.tail, 4, 4, d, out + 240);
}

void Traits<Format::kTQ2_0>::dequantize_block(const BlockTQ2_0& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int h = 0; h < 2; ++h) {
    for (int s = 0; s < 4; ++s) {
      for (int l = 0; l < 32; ++l) out[128 * h + 32 * s + l] = d * float(crumb(b.codes[32 * h + l], s) - 1);
    }
  }
}

namespace {
// code * 2^(exponent - 128) for the two exponents whose scale is a subnormal f32, put together from bits so that a
// thread which flushes subnormals computes the same.
float tiny_e2m1(int exponent, int doubled) {
  const uint32_t steps = uint32_t(std::abs(doubled)) << (21 + exponent);  // multiples of 2^-149, at most 12 << 22
  const int excess = int(std::bit_width(steps)) - 24;                     // bits beyond a mantissa: they are zeros
  const uint32_t magnitude = excess <= 0 ? steps : (steps >> excess) + (uint32_t(excess) << 23);
  return std::bit_cast<float>(magnitude | (doubled < 0 ? 0x80000000u : 0u));
}
}  // namespace

void Traits<Format::kMXFP4>::dequantize_block(const BlockMXFP4& b, float* out) {
  if (b.exponent < 2) {
    for (int j = 0; j < 16; ++j) {
      out[j] = tiny_e2m1(b.exponent, kE2M1Doubled[size_t(nibble(b.codes[j], 0))]);
      out[j + 16] = tiny_e2m1(b.exponent, kE2M1Doubled[size_t(nibble(b.codes[j], 1))]);
    }
    return;
  }
  const float d = std::bit_cast<float>(uint32_t(b.exponent - 1) << 23);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * float(kE2M1Doubled[size_t(nibble(b.codes[j], 0))]);
    out[j + 16] = d * float(kE2M1Doubled[size_t(nibble(b.codes[j], 1))]);
  }
}

namespace {
// Half of an unsigned E4M3 number; the other half of the product lies in the doubled codes.
float half_of_e4m3(uint8_t x) {
  if (x == 0x7f) return 0.0f;
  const uint32_t exponent = x >> 3 & 15, mantissa = x & 7;
  if (exponent == 0) return float(mantissa) * 0x1p-10f;
  return std::bit_cast<float>((exponent + 119) << 23 | mantissa << 20);  // 119 = 127 - 7 - 1
}
}  // namespace

void Traits<Format::kNVFP4>::dequantize_block(const BlockNVFP4& b, float* out) {
  for (int s = 0; s < 4; ++s) {
    const float d = half_of_e4m3(b.d[s]);
    for (int j = 0; j < 8; ++j) {
      out[16 * s + j] = d * float(kE2M1Doubled[size_t(nibble(b.codes[8 * s + j], 0))]);
      out[16 * s + j + 8] = d * float(kE2M1Doubled[size_t(nibble(b.codes[8 * s + j], 1))]);
    }
  }
}

}  // namespace honeycrisp::quant
