// Packed tiles: 16 rows x 256 columns of a weight whose bits are reordered so that one 16-byte load of a lane gives the
// A fragments of two blocks of 32 columns, for products in f16 and in bytes. Lane = 4 g + t; it serves rows g and g + 8
// of the tile.
//
// Order of columns inside a block of 32: lane t owns the "low" columns 4t..4t+3 and the "high" columns 16+4t..16+4t+3,
// each four in the bytes of a word: bytes 0 and 2 have the first two, bytes 1 and 3 the last two (byte_of_element).
//
// As f16 (tile_product.cuh, half_tile.cuh): codes become numbers without conversion, as w & 0x000f000f IS two
// subnormals q · 2^-24, and w & 0x00f000f0 two of 16 q · 2^-24 (in the graph's products their activations are divided
// by 16; high_factor). Sums are multiplied by 2^24 at the end. What formats subtract (8, 128, 32, the minimums of
// K-quants) is multiplied by the sums of the activations. As bytes (the persistent kernel, step_tile.cuh): w &
// 0x0f0f0f0f IS four codes.
//
// Bytes of a tile (w32, w16: as words of 32 and 16 bits; blk: block of 32 columns, 0..7; r8: row g or g + 8). First the
// codes, lowest bits first (TileLayout), then scales:
//   8-bit codes  w32[(blk · 32 + lane) · 4 + high · 2 + r8], 4096 bytes
//   4-bit codes  w32[((blk / 2) · 32 + lane) · 4 + (blk % 2) · 2 + r8], 2048 bytes; of byte b the low
//                one is of the low columns, the other of the high; of a table's indices (IQ4_NL, IQ4_XS, MXFP4, NVFP4)
//                code 4 high + b, as __byte_perm takes them
//   2-bit codes  w32[((blk / 4) · 32 + lane) · 4 + blk % 4], 1024 bytes; of byte b code 2 high + r8
//   a bit more   w32[lane · 4 + blk / 2], 512 bytes; of byte b bit 4 (blk % 2) + 2 high + r8
//   Q4_0, Q8_0, Q5_0, IQ4_NL  scales w16[g · 16 + r8 · 8 + blk]
//   Q4_1, Q5_1   the same, and the same again for minimums
//   Q4_K, Q5_K   scale | min << 6 in 12 bits: of 48 bits at lane g · 4 + blk / 2, bits 24 r8 + 12 (blk % 2); the low 32
//                of them w32[lane], the others w16[64 + lane]; d, dmin w16[96 + 2 row]
//   Q3_K         four scales of half blocks in 24 bits, else the same; d w16[96 + row]
//   Q2_K         scale | min << 4, bytes[(g · 4 + blk / 2) · 8 + r8 · 4 + blk % 2 · 2 + high]; d, dmin w16[128 + 2 row]
//   NVFP4        the same of its scales
//   IQ4_XS       scale - 32, bytes[(g · 4 + blk / 2) · 4 + r8 · 2 + blk % 2]; d w16[64 + row]
//   MXFP4        the same of exponents
//   Q6_K         4-bit codes are the lower four bits in low columns, the upper four in high ones; the other two bits:
//                w32[((blk / 2) · 32 + lane) · 2 + blk % 2], 1024 bytes, of byte b: bits 4, 5 low columns, 2, 3 high
//                columns of row g; of row g + 8 the same of the word turned right by 4 bits; scales as Q2_K's bytes;
//                d w16[128 + row]
//
// F16 and BF16 (is_packed_float) have no codes: a tile is the A fragments of m16n8k16 of its 16 half blocks, in which
// lane t has columns 4t..4t+3 of the half block as its four of the 16:
//   w16[((blk · 2 + high) · 32 + lane) · 8 + pair · 4 + r8 · 2 + i], column 4t + 2 pair + i, 8192 bytes
#pragma once

#include "backend/cuda/args.h"
#include "backend/cuda/kernels/instructions.cuh"
#include "backend/cuda/kernels/octet.cuh"

namespace honeycrisp::backend::cuda {

constexpr float kUnscale = 16777216.0f;  // 2^24
constexpr __host__ __device__ bool is_one_of(Format f, auto... formats) { return ((f == formats) || ...); }
constexpr __host__ __device__ float high_factor(Format f) {
  return f == Format::kQ6_K ? 1.0f / 4 : is_one_of(f, Format::kQ4_0, Format::kQ4_1, Format::kQ4_K) ? 1.0f / 16 : 1.0f;
}
/// What is subtracted from a code; of a table's values, what was added to them so that they have no sign.
constexpr __host__ __device__ int offset_of(Format f) {
  switch (f) {
    case Format::kQ3_K: return 4;
    case Format::kQ4_0: return 8;
    case Format::kMXFP4:
    case Format::kNVFP4: return 12;
    case Format::kQ5_0: return 16;
    case Format::kQ6_K: return 32;
    case Format::kQ8_0:
    case Format::kIQ4_NL:
    case Format::kIQ4_XS: return 128;
    default: return 0;
  }
}

/// The planes of codes of a tile: `bits` of each, then one bit more; `table`: codes are indices.
struct TileLayout {
  int bits;
  bool bit_more, table;

  /// Bytes before the plane of one bit, and before what follows it.
  constexpr __host__ __device__ int bit_at() const { return 512 * bits; }
  constexpr __host__ __device__ int scales_at() const { return bit_at() + (bit_more ? 512 : 0); }
};
constexpr __host__ __device__ TileLayout layout_of(Format f) {
  switch (f) {
    case Format::kQ8_0: return {8, false, false};
    case Format::kF16:
    case Format::kBF16: return {16, false, false};
    case Format::kQ5_0:
    case Format::kQ5_1:
    case Format::kQ5_K: return {4, true, false};
    case Format::kQ2_K: return {2, false, false};
    case Format::kQ3_K: return {2, true, false};
    case Format::kIQ4_NL:
    case Format::kIQ4_XS:
    case Format::kMXFP4:
    case Format::kNVFP4: return {4, false, true};
    default: return {4, false, false};
  }
}
/// Scales are f16 of blocks of 32; minimums too.
constexpr __host__ __device__ bool has_half_scales(Format f) {
  using enum Format;
  return is_one_of(f, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kIQ4_NL);
}
constexpr __host__ __device__ bool has_half_minimums(Format f) { return is_one_of(f, Format::kQ4_1, Format::kQ5_1); }
/// A row has an f16 that its minimums are multiplied by.
constexpr __host__ __device__ bool has_row_minimum(Format f) {
  using enum Format;
  return is_one_of(f, kQ2_K, kQ4_K, kQ5_K);
}
/// Scales are of 16 columns.
constexpr __host__ __device__ bool has_half_blocks(Format f) {
  using enum Format;
  return is_one_of(f, kQ2_K, kQ3_K, kQ6_K, kNVFP4);
}
/// Formats whose registers have names of their own; others have those of the general Tile.
constexpr bool has_own_tile(Format f) {
  using enum Format;
  return is_one_of(f, kQ4_0, kQ8_0, kQ4_K, kQ6_K);
}

// Where element e of four columns lies in a word, and which element a byte has: the same exchange of 1 and 2.
__device__ __forceinline__ int byte_of_element(int e) { return (e & 1) * 2 + (e >> 1); }
// Q6_K: the word of two bits as row g, or row g + 8, reads it.
__device__ __forceinline__ uint32_t two_bits_of(uint32_t word, int r8) {
  return r8 == 0 ? word : __funnelshift_r(word, word, 4);
}

// ---- reading single elements

// What is stored of an element's code.
template <Format F>
__device__ inline int packed_code(const uint8_t* tile, int row, int column) {
  constexpr TileLayout kLayout = layout_of(F);
  const int g = row & 7, r8 = row >> 3, blk = column >> 5, j = column & 31;
  const int high = j >> 4, t = (j & 15) >> 2, byte = byte_of_element(j & 3), lane = g * 4 + t;
  const auto* w32 = reinterpret_cast<const uint32_t*>(tile);
  if constexpr (kLayout.bits == 8) {
    return int(w32[(blk * 32 + lane) * 4 + high * 2 + r8] >> (8 * byte) & 255);
  } else if constexpr (F == Format::kQ6_K) {
    const int q = nibble(w32[((blk >> 1) * 32 + lane) * 4 + (blk & 1) * 2 + r8], 2 * byte + high);
    const uint32_t bits = w32[512 + ((blk >> 1) * 32 + lane) * 2 + (blk & 1)];
    const int two = two_bits_of(bits, r8) >> (8 * byte + (high != 0 ? 2 : 4)) & 3;
    return high != 0 ? q << 2 | two : two << 4 | q;
  } else {
    int q = kLayout.bits == 2 ? crumb(w32[((blk >> 2) * 32 + lane) * 4 + (blk & 3)], 4 * byte + 2 * high + r8)
                              : nibble(w32[((blk >> 1) * 32 + lane) * 4 + (blk & 1) * 2 + r8],
                                       kLayout.table ? 4 * high + byte : 2 * byte + high);
    if constexpr (kLayout.bit_more)
      q |= bit(w32[kLayout.bit_at() / 4 + lane * 4 + (blk >> 1)], 8 * byte + 4 * (blk & 1) + 2 * high + r8)
           << kLayout.bits;
    return q;
  }
}

template <Format F>
__device__ inline float packed_code_value(const uint8_t* tile, int row, int column) {
  const int g = row & 7, r8 = row >> 3, blk = column >> 5, half = column >> 4, l = g * 4 + (blk >> 1);
  const uint8_t* scales = tile + layout_of(F).scales_at();
  const auto* w16 = reinterpret_cast<const uint16_t*>(scales);
  const int code = packed_code<F>(tile, row, column);
  if constexpr (has_half_scales(F)) {
    const int at = g * 16 + r8 * 8 + blk;
    const float d = f16(w16[at]);
    if constexpr (has_half_minimums(F)) return d * float(code) + f16(w16[128 + at]);
    return d * float(F == Format::kIQ4_NL ? int(kIq4NlValues[code]) : code - offset_of(F));
  } else if constexpr (F == Format::kQ4_K || F == Format::kQ5_K || F == Format::kQ3_K) {
    const uint64_t all = *reinterpret_cast<const uint32_t*>(scales + l * 4) | uint64_t(w16[64 + l]) << 32;
    const uint32_t fields = uint32_t(all >> (24 * r8)) & 0xffffff;
    if constexpr (F == Format::kQ3_K)
      return f16(w16[96 + row]) * float(int(fields >> (6 * (half & 3)) & 63) - 32) * float(code - 4);
    const uint32_t field = fields >> (12 * (blk & 1));
    return f16(w16[96 + row * 2]) * float(field & 63) * float(code) - f16(w16[97 + row * 2]) * float(field >> 6 & 63);
  } else if constexpr (has_half_blocks(F)) {
    const uint8_t scale = scales[(F == Format::kQ6_K ? 1024 : 0) + l * 8 + r8 * 4 + (half & 3)];
    if constexpr (F == Format::kQ6_K) return f16(w16[640 + row]) * float(int8_t(scale)) * float(code - 32);
    if constexpr (F == Format::kNVFP4) return half_of_e4m3(scale) * float(kE2m1Doubled[code]);
    return f16(w16[128 + row * 2]) * float(scale & 15) * float(code) - f16(w16[129 + row * 2]) * float(scale >> 4);
  } else {
    const uint8_t scale = scales[l * 4 + r8 * 2 + (blk & 1)];
    if constexpr (F == Format::kIQ4_XS) return f16(w16[64 + row]) * float(int8_t(scale)) * float(kIq4NlValues[code]);
    return scale_of_e8m0(scale) * float(kE2m1Doubled[code]);
  }
}

/// The value of an element.
template <Format F>
__device__ inline float packed_value(const uint8_t* tile, int row, int column) {
  const int g = row & 7, r8 = row >> 3, half = column >> 4;
  if constexpr (is_packed_float(F)) {
    const int lane = g * 4 + (column & 15) / 4, at = (half * 32 + lane) * 8 + (column & 2) * 2 + r8 * 2 + (column & 1);
    return Element<F>::value(reinterpret_cast<const uint16_t*>(tile)[at]);
  } else {
    return packed_code_value<F>(tile, row, column);
  }
}

template <Format F>
__device__ inline void packed_octet(const uint8_t* tiles, uint32_t row, uint32_t o, uint32_t cols, float (&v)[8]) {
  const uint32_t per_row = (cols + kTileCols - 1) / kTileCols;
  const uint8_t* tile = tiles + (size_t(row / kTileRows) * per_row + o / 32) * tile_bytes(F);
  for (int i = 0; i < 8; ++i) v[i] = packed_value<F>(tile, int(row % kTileRows), int(o % 32 * 8) + i);
}

// ---- the registers of one tile

/// scales: as loaded for the lane's blocks 2t and 2t + 1: a word for each of rows g and g + 8 (has_half_scales, Q2_K,
/// NVFP4), 48 bits (Q3_K, Q5_K) or a word (IQ4_XS, MXFP4). of_rows: minimums of blocks likewise (has_half_minimums),
/// d and dmin of each row (has_row_minimum) or d of both (Q3_K, IQ4_XS).
template <Format F>
struct Tile {
  uint4 w[layout_of(F).bits], bit;
  uint32_t scales[2], of_rows[2];
};
/// Of floats: where the lane's are. They would take too many registers together.
template <Format F>
  requires(is_packed_float(F))
struct Tile<F> {
  const uint4* from;
  __device__ __forceinline__ uint4 half_block(int i) const { return from[i * 32]; }
};
template <>
struct Tile<Format::kQ4_0> {
  uint4 w[4], s[2];
  uint32_t sa[2];
};
template <>
struct Tile<Format::kQ8_0> {
  uint4 w[8], s[2];
  uint32_t sa[2];
};
template <>
struct Tile<Format::kQ4_K> {
  uint4 w[4];
  uint32_t sm, sh, d0, d1;
};
template <>
struct Tile<Format::kQ6_K> {
  uint4 w[4];
  uint2 h[4], sc;
  uint32_t d;
};

// How a tile is read: from device memory, once, or from shared memory.
struct StreamLoad {
  template <class T>
  static __device__ __forceinline__ T load(const uint8_t* p) {
    return __ldcs(reinterpret_cast<const T*>(p));
  }
};
struct PlainLoad {
  template <class T>
  static __device__ __forceinline__ T load(const uint8_t* p) {
    return *reinterpret_cast<const T*>(p);
  }
};

template <Format F, class Load = StreamLoad>
__device__ __forceinline__ void load_tile(Tile<F>& r, const uint8_t* s, int lane) {
  constexpr TileLayout kLayout = layout_of(F);
  constexpr int kWords = kLayout.bits;
  const int g = lane >> 2;
#pragma unroll
  for (int i = 0; i < kWords; ++i) r.w[i] = Load::template load<uint4>(s + i * 512 + lane * 16);
  if constexpr (F == Format::kQ4_0 || F == Format::kQ8_0) {
    const uint8_t* scales = s + kWords * 512 + g * 32;
#pragma unroll
    for (int r8 = 0; r8 < 2; ++r8) {
      r.s[r8] = Load::template load<uint4>(scales + 16 * r8);
      r.sa[r8] = Load::template load<uint32_t>(scales + 16 * r8 + (lane & 3) * 4);
    }
  } else if constexpr (F == Format::kQ4_K) {
    r.sm = Load::template load<uint32_t>(s + 2048 + lane * 4);
    r.sh = Load::template load<uint16_t>(s + 2176 + lane * 2);
    r.d0 = Load::template load<uint32_t>(s + 2240 + g * 4);
    r.d1 = Load::template load<uint32_t>(s + 2240 + (g + 8) * 4);
  } else if constexpr (!has_own_tile(F)) {
    if constexpr (kLayout.bit_more) r.bit = Load::template load<uint4>(s + kLayout.bit_at() + lane * 16);
    const uint8_t* scales = s + kLayout.scales_at();
    const auto load_rows = [&](const uint8_t* from) {  // d and dmin, or d
      if constexpr (has_row_minimum(F)) {
        for (int r8 = 0; r8 < 2; ++r8) r.of_rows[r8] = Load::template load<uint32_t>(from + (g + 8 * r8) * 4);
      } else {
        r.of_rows[0] = Load::template load<uint16_t>(from + g * 2) |
                       uint32_t(Load::template load<uint16_t>(from + (g + 8) * 2)) << 16;
      }
    };
    if constexpr (has_half_scales(F)) {
#pragma unroll
      for (int r8 = 0; r8 < 2; ++r8) {
        const uint8_t* from = scales + g * 32 + r8 * 16 + (lane & 3) * 4;
        r.scales[r8] = Load::template load<uint32_t>(from);
        if constexpr (has_half_minimums(F)) r.of_rows[r8] = Load::template load<uint32_t>(from + 256);
      }
    } else if constexpr (F == Format::kQ5_K || F == Format::kQ3_K) {
      r.scales[0] = Load::template load<uint32_t>(scales + lane * 4);
      r.scales[1] = Load::template load<uint16_t>(scales + 128 + lane * 2);
      load_rows(scales + 192);
    } else if constexpr (has_half_blocks(F)) {
      const auto both = Load::template load<uint2>(scales + lane * 8);
      r.scales[0] = both.x, r.scales[1] = both.y;
      if constexpr (F == Format::kQ2_K) load_rows(scales + 256);
    } else {
      r.scales[0] = Load::template load<uint32_t>(scales + lane * 4);
      if constexpr (F == Format::kIQ4_XS) load_rows(scales + 128);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) r.h[i] = Load::template load<uint2>(s + 2048 + i * 256 + lane * 8);
    r.sc = Load::template load<uint2>(s + 3072 + lane * 8);
    r.d = Load::template load<uint16_t>(s + 3328 + g * 2) |
          uint32_t(Load::template load<uint16_t>(s + 3328 + (g + 8) * 2)) << 16;
  }
}

template <Format F, class Load = StreamLoad>
  requires(is_packed_float(F))
__device__ __forceinline__ void load_tile(Tile<F>& r, const uint8_t* s, int lane) {
  r.from = reinterpret_cast<const uint4*>(s) + lane;
}

// ---- what products of a tile need

__device__ __forceinline__ float2 halves(uint32_t word) {
  return __half22float2(*reinterpret_cast<const __half2*>(&word));
}
__device__ __forceinline__ uint32_t pack_halves(float a, float b) {
  const __half2 h = __floats2half2_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&h);
}

}  // namespace honeycrisp::backend::cuda
