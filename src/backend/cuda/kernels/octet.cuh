// Eight consecutive weights of a row of any format in the file's layout, as exact f32: one overload per block struct.
// The same arithmetic, in the same order, as quant/dequantize_*.cpp, whose bits the tests compare; formulas are in
// quant/blocks.h.
#pragma once

#include "quant/blocks.h"
#include "quant/formats.h"

#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace honeycrisp::backend::cuda {

using quant::Format;

__device__ uint8_t grid_iq2_xxs[256 * 8];
__device__ uint8_t grid_iq2_xs[512 * 8];
__device__ uint8_t grid_iq2_s[1024 * 8];
__device__ uint8_t grid_iq3_xxs[256 * 4];
__device__ uint8_t grid_iq3_s[512 * 4];
__device__ int8_t grid_iq1[2048 * 8];
__constant__ int8_t kIq4NlValues[16] = {HC_IQ4_NL_VALUES};
__constant__ int8_t kE2m1Doubled[16] = {HC_E2M1_DOUBLED};

__device__ __forceinline__ float f16(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
__device__ __forceinline__ int nibble(uint32_t v, int k) { return int(v >> (4 * k) & 15); }
__device__ __forceinline__ int crumb(uint32_t v, int k) { return int(v >> (2 * k) & 3); }
__device__ __forceinline__ int bit(uint32_t v, int k) { return int(v >> k & 1); }
__device__ __forceinline__ uint32_t even_signs(uint32_t index) {
  return index | (uint32_t(__popc(int(index))) & 1) << 7;
}

// Octet `o` counts from the beginning of the block. Codes of 32-element blocks: octets 0, 1 low, 2, 3 high nibbles.

__device__ inline void octet(const quant::BlockQ4_0& b, int o, float (&v)[8]) {
  const float d = f16(b.d);
  for (int i = 0; i < 8; ++i) v[i] = d * float(nibble(b.codes[o % 2 * 8 + i], o / 2) - 8);
}
__device__ inline void octet(const quant::BlockQ4_1& b, int o, float (&v)[8]) {
  const float d = f16(b.d), m = f16(b.m);
  for (int i = 0; i < 8; ++i) v[i] = d * float(nibble(b.codes[o % 2 * 8 + i], o / 2)) + m;
}
__device__ inline void octet(const quant::BlockQ5_0& b, int o, float (&v)[8]) {
  const float d = f16(b.d);
  for (int i = 0; i < 8; ++i) v[i] = d * float((nibble(b.codes[o % 2 * 8 + i], o / 2) | bit(b.high[o], i) << 4) - 16);
}
__device__ inline void octet(const quant::BlockQ5_1& b, int o, float (&v)[8]) {
  const float d = f16(b.d), m = f16(b.m);
  for (int i = 0; i < 8; ++i) v[i] = d * float(nibble(b.codes[o % 2 * 8 + i], o / 2) | bit(b.high[o], i) << 4) + m;
}
__device__ inline void octet(const quant::BlockQ8_0& b, int o, float (&v)[8]) {
  const float d = f16(b.d);
  for (int i = 0; i < 8; ++i) v[i] = float(b.codes[o * 8 + i]) * d;
}
__device__ inline void octet(const quant::BlockIQ4_NL& b, int o, float (&v)[8]) {
  const float d = f16(b.d);
  for (int i = 0; i < 8; ++i) v[i] = d * float(kIq4NlValues[nibble(b.codes[o % 2 * 8 + i], o / 2)]);
}
/// 2^(exponent - 128); the two smallest are subnormal.
__device__ __forceinline__ float scale_of_e8m0(uint32_t exponent) {
  return __uint_as_float(exponent < 2 ? 0x200000u << exponent : (exponent - 1) << 23);
}
__device__ inline void octet(const quant::BlockMXFP4& b, int o, float (&v)[8]) {
  const float d = scale_of_e8m0(b.exponent);
  for (int i = 0; i < 8; ++i) v[i] = d * float(kE2m1Doubled[nibble(b.codes[o % 2 * 8 + i], o / 2)]);
}
__device__ inline float half_of_e4m3(uint8_t x) {
  if (x == 0x7f) return 0;
  const uint32_t exponent = x >> 3 & 15, mantissa = x & 7;
  return exponent == 0 ? float(mantissa) * 0x1p-10f : __uint_as_float((exponent + 119) << 23 | mantissa << 20);
}
__device__ inline void octet(const quant::BlockNVFP4& b, int o, float (&v)[8]) {
  const float d = half_of_e4m3(b.d[o / 2]);
  for (int i = 0; i < 8; ++i) v[i] = d * float(kE2m1Doubled[nibble(b.codes[o / 2 * 8 + i], o % 2)]);
}

// ---- K-quants: k counts sub-blocks

__device__ inline void octet(const quant::BlockQ2_K& b, int o, float (&v)[8]) {
  const int k = o / 2;
  const float scale = f16(b.d) * float(b.scales[k] & 15), min = f16(b.dmin) * float(b.scales[k] >> 4);
  const uint8_t* codes = b.codes + 32 * (k / 8) + o % 4 * 8;
  for (int i = 0; i < 8; ++i) v[i] = scale * float(crumb(codes[i], k / 2 % 4)) - min;
}
__device__ __forceinline__ int scale_of(const quant::BlockQ3_K& b, int k) {
  return nibble(b.scales[k % 8], k / 8) | crumb(b.scales[8 + k % 4], k / 4) << 4;
}
__device__ inline void octet(const quant::BlockQ3_K& b, int o, float (&v)[8]) {
  const int k = o / 2;
  const float scale = f16(b.d) * float(scale_of(b, k) - 32);
  const uint8_t* codes = b.codes + 32 * (k / 8) + o % 4 * 8;
  const uint8_t* high = b.high + o % 4 * 8;
  for (int i = 0; i < 8; ++i) v[i] = scale * float((crumb(codes[i], k / 2 % 4) | bit(high[i], k / 2) << 2) - 4);
}
struct ScaleAndMin {
  float scale, min;
};
__device__ inline ScaleAndMin scale_and_min(const uint8_t (&s)[12], int k) {
  if (k < 4) return {float(s[k] & 63), float(s[k + 4] & 63)};
  return {float((s[k + 4] & 15) | (s[k - 4] >> 6) << 4), float((s[k + 4] >> 4) | (s[k] >> 6) << 4)};
}
__device__ inline void octet(const quant::BlockQ4_K& b, int o, float (&v)[8]) {
  const int k = o / 4;
  const ScaleAndMin s = scale_and_min(b.scales, k);
  const float scale = f16(b.d) * s.scale, min = f16(b.dmin) * s.min;
  for (int i = 0; i < 8; ++i) v[i] = scale * float(nibble(b.codes[32 * (k / 2) + o % 4 * 8 + i], k % 2)) - min;
}
__device__ inline void octet(const quant::BlockQ5_K& b, int o, float (&v)[8]) {
  const int k = o / 4;
  const ScaleAndMin s = scale_and_min(b.scales, k);
  const float scale = f16(b.d) * s.scale, min = f16(b.dmin) * s.min;
  for (int i = 0; i < 8; ++i) {
    const int j = o % 4 * 8 + i;
    v[i] = scale * float(nibble(b.codes[32 * (k / 2) + j], k % 2) | bit(b.high[j], k) << 4) - min;
  }
}
__device__ inline void octet(const quant::BlockQ6_K& b, int o, float (&v)[8]) {
  const int k = o / 2;
  const float scale = f16(b.d) * float(b.scales[k]);
  const uint8_t* codes = b.codes + 64 * (o / 16) + o % 8 * 8;
  const uint8_t* high = b.high + 32 * (o / 16) + o % 4 * 8;
  for (int i = 0; i < 8; ++i) v[i] = scale * float((nibble(codes[i], o / 8 % 2) | crumb(high[i], o / 4 % 4) << 4) - 32);
}

// ---- IQ formats

__device__ inline void signed_values(const uint8_t* grid, uint32_t signs, int n, float scale, float* v) {
  for (int i = 0; i < n; ++i) {
    const float x = scale * float(grid[i]);
    v[i] = bit(signs, i) ? -x : x;
  }
}
__device__ inline void octet(const quant::BlockIQ2_XXS& b, int o, float (&v)[8]) {
  const uint16_t* words = b.words + o / 4 * 4;
  const uint32_t tail = words[2] | uint32_t(words[3]) << 16;
  const int k = o % 4, index = words[k / 2] >> (8 * (k % 2)) & 255;
  const float scale = f16(b.d) * (0.5f + float(tail >> 28)) * 0.25f;
  signed_values(grid_iq2_xxs + 8 * index, even_signs(tail >> (7 * k) & 127), 8, scale, v);
}
__device__ inline void octet(const quant::BlockIQ2_XS& b, int o, float (&v)[8]) {
  const float scale = f16(b.d) * (0.5f + float(nibble(b.scales[o / 4], o / 2 % 2))) * 0.25f;
  signed_values(grid_iq2_xs + 8 * (b.words[o] & 511), even_signs(b.words[o] >> 9), 8, scale, v);
}
__device__ inline void octet(const quant::BlockIQ2_S& b, int o, float (&v)[8]) {
  const float scale = f16(b.d) * (0.5f + float(nibble(b.scales[o / 4], o / 2 % 2))) * 0.25f;
  const int index = b.codes[o] | crumb(b.high[o / 4], o % 4) << 8;
  signed_values(grid_iq2_s + 8 * index, b.signs[o], 8, scale, v);
}
__device__ inline void octet(const quant::BlockIQ3_XXS& b, int o, float (&v)[8]) {
  const uint8_t* s = b.scales_and_signs + o / 4 * 4;
  const uint32_t tail = s[0] | uint32_t(s[1]) << 8 | uint32_t(s[2]) << 16 | uint32_t(s[3]) << 24;
  const float scale = f16(b.d) * (0.5f + float(tail >> 28)) * 0.5f;
  const uint32_t signs = even_signs(tail >> (7 * (o % 4)) & 127);
  signed_values(grid_iq3_xxs + 4 * b.codes[2 * o], signs, 4, scale, v);
  signed_values(grid_iq3_xxs + 4 * b.codes[2 * o + 1], signs >> 4, 4, scale, v + 4);
}
__device__ inline void octet(const quant::BlockIQ3_S& b, int o, float (&v)[8]) {
  const int g = o / 4;
  const float scale = f16(b.d) * float(1 + 2 * nibble(b.scales[g / 2], g % 2));
  for (int half = 0; half < 2; ++half) {
    const int k = 2 * o + half, index = b.codes[k] | bit(b.high[g], k % 8) << 8;
    signed_values(grid_iq3_s + 4 * index, uint32_t(b.signs[o]) >> (4 * half), 4, scale, v + 4 * half);
  }
}
__device__ inline void shifted_values(int index, bool negative, float scale, float (&v)[8]) {
  const float delta = negative ? -0.125f : 0.125f;
  for (int i = 0; i < 8; ++i) v[i] = scale * (float(grid_iq1[8 * index + i]) + delta);
}
__device__ inline void octet(const quant::BlockIQ1_S& b, int o, float (&v)[8]) {
  const uint32_t high = b.high[o / 4];
  const float scale = f16(b.d) * float(2 * (high >> 12 & 7) + 1);
  shifted_values(b.codes[o] | int(high >> (3 * (o % 4)) & 7) << 8, bit(high, 15), scale, v);
}
__device__ inline void octet(const quant::BlockIQ1_M& b, int o, float (&v)[8]) {
  uint32_t d = 0;
  for (int j = 0; j < 4; ++j) d |= uint32_t(b.scales[j] >> 12) << (4 * j);
  const int k = o / 2, high = nibble(b.high[o / 2], o % 2);
  const float scale = f16(uint16_t(d)) * float(2 * (b.scales[k / 4] >> (3 * (k % 4)) & 7) + 1);
  shifted_values(b.codes[o] | (high & 7) << 8, bit(uint32_t(high), 3), scale, v);
}
__device__ __forceinline__ int scale_of(const quant::BlockIQ4_XS& b, int g) {
  return nibble(b.scales_low[g / 2], g % 2) | crumb(b.scales_high, g) << 4;
}
__device__ inline void octet(const quant::BlockIQ4_XS& b, int o, float (&v)[8]) {
  const int g = o / 4;
  const float scale = f16(b.d) * float(scale_of(b, g) - 32);
  for (int i = 0; i < 8; ++i) v[i] = scale * float(kIq4NlValues[nibble(b.codes[16 * g + o % 2 * 8 + i], o / 2 % 2)]);
}

// ---- ternary

__device__ inline void octet(const quant::BlockTQ1_0& b, int o, float (&v)[8]) {
  constexpr int kPowersOf3[5] = {1, 3, 9, 27, 81};
  const float d = f16(b.d);
  for (int i = 0; i < 8; ++i) {
    const int e = o * 8 + i;
    const int code = e < 160 ? b.codes[e % 32] : e < 240 ? b.codes[32 + e % 16] : b.tail[e % 4];
    const int power = e < 160 ? e / 32 : e < 240 ? (e - 160) / 16 : (e - 240) / 4;
    v[i] = d * float(((code * kPowersOf3[power] & 255) * 3 >> 8) - 1);
  }
}
__device__ inline void octet(const quant::BlockTQ2_0& b, int o, float (&v)[8]) {
  const float d = f16(b.d);
  for (int i = 0; i < 8; ++i) v[i] = d * float(crumb(b.codes[32 * (o / 16) + o % 4 * 8 + i], o / 4 % 4) - 1);
}

// ---- scalars

template <Format F>
struct Element;  // how a scalar of the format is stored and converted
#define HC_SCALAR(format, type, expression)                      \
  template <>                                                    \
  struct Element<Format::format> {                               \
    using Type = type;                                           \
    static __device__ float value(Type x) { return expression; } \
  };
HC_SCALAR(kF32, float, x)
HC_SCALAR(kF64, double, __double2float_rn(x))
HC_SCALAR(kF16, uint16_t, f16(x))
HC_SCALAR(kBF16, uint16_t, __uint_as_float(uint32_t(x) << 16))
HC_SCALAR(kI8, int8_t, float(x))
HC_SCALAR(kI16, int16_t, float(x))
HC_SCALAR(kI32, int32_t, float(x))
HC_SCALAR(kI64, int64_t, float(x))
#undef HC_SCALAR

template <Format F>
struct BlockOf;
#define HC_BLOCK(format)               \
  template <>                          \
  struct BlockOf<Format::k##format> {  \
    using Type = quant::Block##format; \
  };
// clang-format off: it finds no fixed point for this list
HC_BLOCK(Q4_0) HC_BLOCK(Q4_1) HC_BLOCK(Q5_0) HC_BLOCK(Q5_1) HC_BLOCK(Q8_0)
HC_BLOCK(Q2_K) HC_BLOCK(Q3_K) HC_BLOCK(Q4_K) HC_BLOCK(Q5_K) HC_BLOCK(Q6_K)
HC_BLOCK(IQ2_XXS) HC_BLOCK(IQ2_XS) HC_BLOCK(IQ2_S) HC_BLOCK(IQ3_XXS) HC_BLOCK(IQ3_S) HC_BLOCK(IQ1_S) HC_BLOCK(IQ1_M)
HC_BLOCK(IQ4_NL) HC_BLOCK(IQ4_XS) HC_BLOCK(TQ1_0) HC_BLOCK(TQ2_0) HC_BLOCK(MXFP4) HC_BLOCK(NVFP4)
// clang-format on
#undef HC_BLOCK

    /// Weights 8 o .. 8 o + 7 of a row; zero beyond cols.
    template <Format F>
    __device__ __forceinline__ void row_octet(const uint8_t* row, uint32_t o, uint32_t cols, float (&v)[8]) {
  constexpr quant::FormatInfo kInfo = quant::info(F);
  if constexpr (kInfo.block_elements == 1) {
    const auto* x = reinterpret_cast<const typename Element<F>::Type*>(row);
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) v[i] = 8 * o + i < cols ? Element<F>::value(x[8 * o + i]) : 0.0f;
  } else {
    constexpr uint32_t kOctets = kInfo.block_elements / 8;
    const auto* blocks = reinterpret_cast<const typename BlockOf<F>::Type*>(row);
    octet(blocks[o / kOctets], int(o % kOctets), v);
  }
}

}  // namespace honeycrisp::backend::cuda
