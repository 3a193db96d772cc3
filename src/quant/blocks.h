// The bytes of one block of every quantized format, as they lie in a GGUF file.
// Plain C with fixed-width fields: one definition for C++, CUDA and Metal. Knows nothing of how a block is computed
// with. Bytes are little-endian; f16 values are kept as their bits. Facts of the formats: the ggml tensor types of the
// GGUF specification and the reference dequantizers of gguf-py (PyPI `gguf`, MIT); MXFP4: OCP Microscaling Formats
// v1.0.
//
// Notation: x[i] is element i of the block, q an unsigned code, nibble(v, k) bits 4k..4k+3 of v, crumb(v, k) bits
// 2k..2k+1, bit(v, k) bit k; products are evaluated in f32 from the left.
#pragma once

#ifdef __METAL_VERSION__
#include <metal_stdlib>
using namespace metal;
#else
#include <assert.h>
#include <stdint.h>
#endif

// Codebook of IQ4_NL and IQ4_XS: the value of each 4-bit code.
#define HC_IQ4_NL_VALUES -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
// Twice the value of each FP4 (E2M1) code, so that it is an integer; code 8 is minus zero and reads as zero.
#define HC_E2M1_DOUBLED 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12

#if defined(__cplusplus) && !defined(__METAL_VERSION__)
namespace honeycrisp {
namespace quant {
#endif

// ---- 32 elements, one scale -----------------------------------------------------------------------------------------
// In these, codes[j] holds x[j] in its low and x[j + 16] in its high nibble.

/// x = d * (q - 8)
typedef struct {
  uint16_t d;         // f16
  uint8_t codes[16];  // q
} BlockQ4_0;
static_assert(sizeof(BlockQ4_0) == 18, "Q4_0");

/// x = d * q + m
typedef struct {
  uint16_t d;  // f16
  uint16_t m;  // f16
  uint8_t codes[16];
} BlockQ4_1;
static_assert(sizeof(BlockQ4_1) == 20, "Q4_1");

/// x = d * (q - 16); bit 4 of the code of x[i] is bit(high[i / 8], i % 8)
typedef struct {
  uint16_t d;  // f16
  uint8_t high[4];
  uint8_t codes[16];  // low four bits of q
} BlockQ5_0;
static_assert(sizeof(BlockQ5_0) == 22, "Q5_0");

/// x = d * q + m; bit 4 as in Q5_0
typedef struct {
  uint16_t d;  // f16
  uint16_t m;  // f16
  uint8_t high[4];
  uint8_t codes[16];
} BlockQ5_1;
static_assert(sizeof(BlockQ5_1) == 24, "Q5_1");

/// x[i] = d * codes[i]
typedef struct {
  uint16_t d;  // f16
  int8_t codes[32];
} BlockQ8_0;
static_assert(sizeof(BlockQ8_0) == 34, "Q8_0");

/// x = d * HC_IQ4_NL_VALUES[q]
typedef struct {
  uint16_t d;  // f16
  uint8_t codes[16];
} BlockIQ4_NL;
static_assert(sizeof(BlockIQ4_NL) == 18, "IQ4_NL");

/// x = 2^(exponent - 128) * HC_E2M1_DOUBLED[q]
/// The scale is an E8M0 power of two. 255, NaN in the OCP text, is read as 2^127, as ggml does.
typedef struct {
  uint8_t exponent;  // biased by 127; the other factor 1/2 undoes the doubling
  uint8_t codes[16];
} BlockMXFP4;
static_assert(sizeof(BlockMXFP4) == 17, "MXFP4");

// ---- 64 elements, a scale per 16 ------------------------------------------------------------------------------------

/// x[16 s + j] = scale(d[s]) / 2 * HC_E2M1_DOUBLED[nibble(codes[8 s + j % 8], j / 8)]
/// scale() reads an unsigned E4M3 (bias 7, bit 7 ignored, no infinity): exponent bits 3..6, mantissa bits 0..2;
/// 0x7f is read as 0, and 0xff, by ignoring bit 7 after that comparison, as 480.
typedef struct {
  uint8_t d[4];
  uint8_t codes[32];
} BlockNVFP4;
static_assert(sizeof(BlockNVFP4) == 36, "NVFP4");

// ---- K-quants: 256 elements, scales of sub-blocks are themselves quantized ------------------------------------------
// h = i / 128, s = i / 32 % 4, l = i % 32 of element i.

/// x[i] = d * (scales[i / 16] & 15) * crumb(codes[32 h + l], s) - dmin * (scales[i / 16] >> 4)
typedef struct {
  uint8_t scales[16];
  uint8_t codes[64];
  uint16_t d;     // f16
  uint16_t dmin;  // f16
} BlockQ2_K;
static_assert(sizeof(BlockQ2_K) == 84, "Q2_K");

/// x[i] = d * (scale(i / 16) - 32) * (crumb(codes[32 h + l], s) - (bit(high[l], i / 32) ? 0 : 4))
/// scale(k) = nibble(scales[k % 8], k / 8) + 16 * crumb(scales[8 + k % 4], k / 4)
typedef struct {
  uint8_t high[32];
  uint8_t codes[64];
  uint8_t scales[12];
  uint16_t d;  // f16
} BlockQ3_K;
static_assert(sizeof(BlockQ3_K) == 110, "Q3_K");

/// x[i] = d * scale(k) * nibble(codes[32 (i / 64) + l], k % 2) - dmin * min(k), k = i / 32
/// k < 4: scale(k) = scales[k] & 63, min(k) = scales[k + 4] & 63; else
/// scale(k) = (scales[k + 4] & 15) + 16 * (scales[k - 4] >> 6), min(k) = (scales[k + 4] >> 4) + 16 * (scales[k] >> 6)
typedef struct {
  uint16_t d;     // f16
  uint16_t dmin;  // f16
  uint8_t scales[12];
  uint8_t codes[128];
} BlockQ4_K;
static_assert(sizeof(BlockQ4_K) == 144, "Q4_K");

/// As Q4_K with a fifth bit of the code: 16 * bit(high[l], i / 32)
typedef struct {
  uint16_t d;     // f16
  uint16_t dmin;  // f16
  uint8_t scales[12];
  uint8_t high[32];
  uint8_t codes[128];
} BlockQ5_K;
static_assert(sizeof(BlockQ5_K) == 176, "Q5_K");

/// x[i] = d * scales[i / 16] * (nibble(codes[64 h + i % 64], i / 64 % 2) + 16 * crumb(high[32 h + l], s) - 32)
typedef struct {
  uint8_t codes[128];
  uint8_t high[64];
  int8_t scales[16];
  uint16_t d;  // f16
} BlockQ6_K;
static_assert(sizeof(BlockQ6_K) == 210, "Q6_K");

// ---- IQ: 256 elements, codes are indices of groups of 8 or 4 values in a grid ---------------------------------------
// o = i / 8 counts octets, g = i / 32 groups. grid: the format's table in tables.h. Signs: bit j set negates element j
// of the octet; where 7 bits are stored the eighth makes the number of negated elements even (kEvenSigns).

/// x = d * (1/2 + s) * 1/4 * grid * sign. Per group four u16: grid indices of its four octets (a byte each) in words
/// 4 g, 4 g + 1; words 4 g + 2, 4 g + 3 as u32: 7 sign bits of octet k at bit 7 k, s at bit 28.
typedef struct {
  uint16_t d;  // f16
  uint16_t words[32];
} BlockIQ2_XXS;
static_assert(sizeof(BlockIQ2_XXS) == 66, "IQ2_XXS");

/// x = d * (1/2 + s) * 1/4 * grid * sign. words[o]: grid index in bits 0..8, 7 sign bits above; s = nibble of
/// scales[g], the low one for the first 16 elements of the group.
typedef struct {
  uint16_t d;  // f16
  uint16_t words[32];
  uint8_t scales[8];
} BlockIQ2_XS;
static_assert(sizeof(BlockIQ2_XS) == 74, "IQ2_XS");

/// x = d * (1/2 + s) * 1/4 * grid * sign. Grid index codes[o] + 256 * crumb(high[g], o % 4); signs[o]; s as in IQ2_XS.
typedef struct {
  uint16_t d;  // f16
  uint8_t codes[32];
  uint8_t signs[32];
  uint8_t high[8];
  uint8_t scales[8];
} BlockIQ2_S;
static_assert(sizeof(BlockIQ2_S) == 82, "IQ2_S");

/// x = d * (1/2 + s) * 1/2 * grid * sign. codes[i / 4]: grid index of four elements; signs and s of group g in the
/// u32 at scales_and_signs[4 g], laid out as in IQ2_XXS.
typedef struct {
  uint16_t d;  // f16
  uint8_t codes[64];
  uint8_t scales_and_signs[32];
} BlockIQ3_XXS;
static_assert(sizeof(BlockIQ3_XXS) == 98, "IQ3_XXS");

/// x = d * (1 + 2 s) * grid * sign. Grid index of four elements codes[k] + 256 * bit(high[g], k % 8), k = i / 4;
/// signs[o]; s = nibble(scales[g / 2], g % 2).
typedef struct {
  uint16_t d;  // f16
  uint8_t codes[64];
  uint8_t high[8];
  uint8_t signs[32];
  uint8_t scales[4];
} BlockIQ3_S;
static_assert(sizeof(BlockIQ3_S) == 110, "IQ3_S");

/// x = d * (1 + 2 s) * (grid + delta), grid in {-1, 0, 1}. Grid index codes[o] + 256 * (high[g] >> 3 (o % 4) & 7);
/// s = high[g] >> 12 & 7; delta = 1/8, negated where bit 15 of high[g] is set.
typedef struct {
  uint16_t d;  // f16
  uint8_t codes[32];
  uint16_t high[8];
} BlockIQ1_S;
static_assert(sizeof(BlockIQ1_S) == 50, "IQ1_S");

/// x = d * (1 + 2 s) * (grid + delta) as IQ1_S. n = nibble(high[o / 2], o % 2): grid index codes[o] + 256 * (n & 7),
/// delta negated where n & 8. s = scales[k / 4] >> 3 (k % 4) & 7, k = i / 16; nibble j of d (an f16) is scales[j]
/// >> 12.
typedef struct {
  uint8_t codes[32];
  uint8_t high[16];
  uint16_t scales[4];
} BlockIQ1_M;
static_assert(sizeof(BlockIQ1_M) == 56, "IQ1_M");

/// x[32 g + j] = d * (s - 32) * HC_IQ4_NL_VALUES[nibble(codes[16 g + j % 16], j / 16)];
/// s = nibble(scales_low[g / 2], g % 2) + 16 * (scales_high >> 2 g & 3)
typedef struct {
  uint16_t d;  // f16
  uint16_t scales_high;
  uint8_t scales_low[4];
  uint8_t codes[128];
} BlockIQ4_XS;
static_assert(sizeof(BlockIQ4_XS) == 136, "IQ4_XS");

// ---- ternary: 256 elements in {-d, 0, d} ----------------------------------------------------------------------------

/// x = d * (trit - 1), trit(v, k) = (v * 3^k mod 256) * 3 >> 8: the byte is a fraction of 256, its trits read from the
/// top. Elements 0..159: trit(codes[i % 32], i / 32); 160..239: trit(codes[32 + i % 16], (i - 160) / 16); 240..255:
/// trit(tail[i % 4], (i - 240) / 4).
typedef struct {
  uint8_t codes[48];
  uint8_t tail[4];
  uint16_t d;  // f16
} BlockTQ1_0;
static_assert(sizeof(BlockTQ1_0) == 54, "TQ1_0");

/// x[i] = d * (crumb(codes[32 h + l], s) - 1)
typedef struct {
  uint8_t codes[64];
  uint16_t d;  // f16
} BlockTQ2_0;
static_assert(sizeof(BlockTQ2_0) == 66, "TQ2_0");

#if defined(__cplusplus) && !defined(__METAL_VERSION__)
}  // namespace quant
}  // namespace honeycrisp
#endif
