// Packed tiles: 16 rows x 256 columns of a weight whose bits are reordered so that one 16-byte load of a lane gives the
// A fragments of two blocks of 32 columns, for products in f16 and in bytes. Lane = 4 g + t; it serves rows g and g + 8
// of the tile.
//
// Order of columns inside a block of 32: lane t owns the "low" columns 4t..4t+3 and the "high" columns 16+4t..16+4t+3,
// each four in the bytes of a word: bytes 0 and 2 have the first two, bytes 1 and 3 the last two (byte_of_element).
//
// As f16 (the graph's products, tile_product.cuh): codes become numbers without conversion, as w & 0x000f000f IS two
// subnormals q · 2^-24, and w & 0x00f000f0 two of 16 q · 2^-24 (their activations are divided by 16; high_factor). Sums
// are multiplied by 2^24 at the end. What formats subtract (8, 128, 32, the minimums of K-quants) is multiplied by the
// sums of the activations.
// As bytes (the persistent kernel, step_tile.cuh): w & 0x0f0f0f0f IS four codes.
//
// Bytes of a tile (w32, w16: as words of 32 and 16 bits; blk: block of 32 columns, 0..7; r8: row g or g + 8):
//   4-bit codes  w32[((blk / 2) · 32 + lane) · 4 + (blk % 2) · 2 + r8], 2048 bytes; of byte b the low
//                one is of the low columns, the other of the high
//   Q4_0         scales w16[1024 + g · 16 + r8 · 8 + blk]
//   Q8_0         codes + 128, w32[(blk · 32 + lane) · 4 + high · 2 + r8]; scales w16[2048 + ...] as Q4_0
//   Q4_K         scale | min << 6 in 12 bits: of 48 bits at lane g · 4 + blk / 2, bits 24 r8 + 12 (blk % 2); the low 32
//   of
//                them w32[512 + lane], the others w16[1088 + lane]; d, dmin w16[1120 + 2 row]
//   Q6_K         4-bit codes are the lower four bits in low columns, the upper four in high ones; the other two bits:
//                w32[512 + ((blk / 2) · 32 + lane) · 2 + blk % 2], of byte b: bits 4, 5 low columns, 2, 3 high columns
//                of row g; of row g + 8 the same of the word turned right by 4 bits; scales bytes[3072 + (g · 4 + blk /
//                2) · 8
//   +
//                r8 · 4 + blk % 2 · 2 + high]; d w16[1664 + row]
#pragma once

#include "backend/cuda/args.h"
#include "backend/cuda/kernels/octet.cuh"

namespace honeycrisp::backend::cuda {

constexpr float kUnscale = 16777216.0f;  // 2^24
constexpr __host__ __device__ float high_factor(Format f) {
  return f == Format::kQ8_0 ? 1.0f : f == Format::kQ6_K ? 1.0f / 4 : 1.0f / 16;
}
constexpr __host__ __device__ int offset_of(Format f) {
  return f == Format::kQ4_0 ? 8 : f == Format::kQ8_0 ? 128 : f == Format::kQ6_K ? 32 : 0;
}

// Where element e of four columns lies in a word, and which element a byte has: the same exchange of 1 and 2.
__device__ __forceinline__ int byte_of_element(int e) { return (e & 1) * 2 + (e >> 1); }
// Q6_K: the word of two bits as row g, or row g + 8, reads it.
__device__ __forceinline__ uint32_t two_bits_of(uint32_t word, int r8) {
  return r8 == 0 ? word : __funnelshift_r(word, word, 4);
}

// ---- reading single elements

template <Format F>
__device__ inline float packed_value(const uint8_t* tile, int row, int column) {
  const int g = row & 7, r8 = row >> 3, blk = column >> 5, j = column & 31;
  const int high = j >> 4, t = (j & 15) >> 2, e = j & 3, lane = g * 4 + t;
  const auto* w32 = reinterpret_cast<const uint32_t*>(tile);
  const auto* w16 = reinterpret_cast<const uint16_t*>(tile);
  if constexpr (F == Format::kQ8_0) {
    const uint32_t w = w32[(blk * 32 + lane) * 4 + high * 2 + r8];
    return float(int((w >> (8 * byte_of_element(e))) & 255) - 128) * f16(w16[2048 + g * 16 + r8 * 8 + blk]);
  } else {
    const int n = 2 * byte_of_element(e) + high;
    int q = nibble(w32[((blk >> 1) * 32 + lane) * 4 + (blk & 1) * 2 + r8], n);
    if constexpr (F == Format::kQ4_0) {
      return f16(w16[1024 + g * 16 + r8 * 8 + blk]) * float(q - 8);
    } else if constexpr (F == Format::kQ4_K) {
      const int l = g * 4 + (blk >> 1);
      const uint64_t all = w32[512 + l] | uint64_t(w16[1088 + l]) << 32;
      const uint32_t field = uint32_t(all >> (24 * r8)) >> (12 * (blk & 1));
      const float scale = f16(w16[1120 + row * 2]) * float(field & 63);
      const float min = f16(w16[1121 + row * 2]) * float(field >> 6 & 63);
      return scale * float(q) - min;
    } else {
      const uint32_t bits = w32[512 + ((blk >> 1) * 32 + lane) * 2 + (blk & 1)];
      const int two = two_bits_of(bits, r8) >> (8 * byte_of_element(e) + (high != 0 ? 2 : 4)) & 3;
      q = high != 0 ? q << 2 | two : two << 4 | q;
      const int sub = blk * 2 + high;
      const auto scale = int8_t(tile[3072 + (g * 4 + (sub >> 2)) * 8 + r8 * 4 + (sub & 3)]);
      return f16(w16[1664 + row]) * float(scale) * float(q - 32);
    }
  }
}

template <Format F>
__device__ inline void packed_octet(const uint8_t* tiles, uint32_t row, uint32_t o, uint32_t cols, float (&v)[8]) {
  const uint32_t per_row = (cols + kTileCols - 1) / kTileCols;
  const uint8_t* tile = tiles + (size_t(row / kTileRows) * per_row + o / 32) * tile_bytes(F);
  for (int i = 0; i < 8; ++i) v[i] = packed_value<F>(tile, int(row % kTileRows), int(o % 32 * 8) + i);
}

// ---- the registers of one tile

template <Format F>
struct Tile;
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
  constexpr int kWords = F == Format::kQ8_0 ? 8 : 4;
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
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) r.h[i] = Load::template load<uint2>(s + 2048 + i * 256 + lane * 8);
    r.sc = Load::template load<uint2>(s + 3072 + lane * 8);
    r.d = Load::template load<uint16_t>(s + 3328 + g * 2) |
          uint32_t(Load::template load<uint16_t>(s + 3328 + (g + 8) * 2)) << 16;
  }
}

// ---- what products of a tile need

__device__ __forceinline__ void mma_f16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                        uint32_t b1, const float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

__device__ __forceinline__ float2 halves(uint32_t word) {
  return __half22float2(*reinterpret_cast<const __half2*>(&word));
}
__device__ __forceinline__ uint32_t pack_halves(float a, float b) {
  const __half2 h = __floats2half2_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&h);
}

}  // namespace honeycrisp::backend::cuda
