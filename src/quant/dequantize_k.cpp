// K-quants: blocks of 256 elements whose sub-blocks have quantized scales. Formulas: blocks.h.
#include "base/half.h"
#include "quant/bits.h"
#include "quant/dequantize.h"

namespace honeycrisp::quant {

void Traits<Format::kQ2_K>::dequantize_block(const BlockQ2_K& b, float* out) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int k = 0; k < 16; ++k) {  // sub-blocks of 16
    const uint8_t* codes = b.codes + 32 * (k / 8) + 16 * (k % 2);
    const int s = k / 2 % 4;
    const float scale = d * float(nibble(b.scales[k], 0)), min = dmin * float(nibble(b.scales[k], 1));
    for (int j = 0; j < 16; ++j) out[16 * k + j] = scale * float(crumb(codes[j], s)) - min;
  }
}

void Traits<Format::kQ3_K>::dequantize_block(const BlockQ3_K& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int k = 0; k < 16; ++k) {
    const uint8_t* codes = b.codes + 32 * (k / 8) + 16 * (k % 2);
    const uint8_t* high = b.high + 16 * (k % 2);
    const int s = k / 2 % 4;
    const float scale = d * float((nibble(b.scales[k % 8], k / 8) | crumb(b.scales[8 + k % 4], k / 4) << 4) - 32);
    for (int j = 0; j < 16; ++j) {
      // a cleared bit means minus four
      out[16 * k + j] = scale * float((crumb(codes[j], s) | bit(high[j], k / 2) << 2) - 4);
    }
  }
}

namespace {

struct ScaleAndMin {
  float scale, min;
};

// Sub-block k (of 8) of the 6-bit scales and minimums that Q4_K and Q5_K share.
ScaleAndMin scale_and_min(const uint8_t (&scales)[12], int k) {
  if (k < 4) return {float(scales[k] & 63), float(scales[k + 4] & 63)};
  return {float(nibble(scales[k + 4], 0) | (scales[k - 4] >> 6) << 4),
          float(nibble(scales[k + 4], 1) | (scales[k] >> 6) << 4)};
}

}  // namespace

void Traits<Format::kQ4_K>::dequantize_block(const BlockQ4_K& b, float* out) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int k = 0; k < 8; ++k) {  // sub-blocks of 32
    const uint8_t* codes = b.codes + 32 * (k / 2);
    const ScaleAndMin sm = scale_and_min(b.scales, k);
    const float scale = d * sm.scale, min = dmin * sm.min;
    for (int j = 0; j < 32; ++j) out[32 * k + j] = scale * float(nibble(codes[j], k % 2)) - min;
  }
}

void Traits<Format::kQ5_K>::dequantize_block(const BlockQ5_K& b, float* out) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int k = 0; k < 8; ++k) {
    const uint8_t* codes = b.codes + 32 * (k / 2);
    const ScaleAndMin sm = scale_and_min(b.scales, k);
    const float scale = d * sm.scale, min = dmin * sm.min;
    for (int j = 0; j < 32; ++j) {
      out[32 * k + j] = scale * float(nibble(codes[j], k % 2) | bit(b.high[j], k) << 4) - min;
    }
  }
}

void Traits<Format::kQ6_K>::dequantize_block(const BlockQ6_K& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int k = 0; k < 16; ++k) {  // sub-blocks of 16
    const uint8_t* codes = b.codes + 64 * (k / 8) + 16 * (k % 4);
    const uint8_t* high = b.high + 32 * (k / 8) + 16 * (k % 2);
    const int n = k / 4 % 2, s = k / 2 % 4;
    const float scale = d * float(b.scales[k]);
    for (int j = 0; j < 16; ++j) out[16 * k + j] = scale * float((nibble(codes[j], n) | crumb(high[j], s) << 4) - 32);
  }
}

}  // namespace honeycrisp::quant
