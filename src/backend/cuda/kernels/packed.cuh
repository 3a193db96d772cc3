// Packed tiles: 16 rows x 256 columns of a weight whose bits are reordered so that one 16-byte load of a lane gives the
// A fragments of two blocks of 32 columns, for products in f16 and in bytes. Lane = 4 g + t; it serves rows g and g + 8
// of the tile.
//
// Order of columns inside a block of 32: lane t owns the "low" columns 4t..4t+3 and the "high" columns 16+4t..16+4t+3,
// each four in the bytes of a word: bytes 0 and 2 have the first two, bytes 1 and 3 the last two (byte_of_element).
//
// As f16 (the graph's products, below): codes become numbers without conversion, as w & 0x000f000f IS two subnormals
// q · 2^-24, and w & 0x00f000f0 two of 16 q · 2^-24 (their activations are staged divided by 16; high_factor). Sums are
// multiplied by 2^24 at the end. What formats subtract (8, 128, 32, the minimums of K-quants) is one further mma per
// tile: the block's scales times minus the sums of its activations, themselves as high and low f16.
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

// ---- products of a tile

__device__ __forceinline__ void mma_f16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                        uint32_t b1, const float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

__device__ __forceinline__ float2 halves(uint32_t word) {
  return __half22float2(*reinterpret_cast<const __half2*>(&word));
}
// The i-th of eight halves; i is known at compile time.
__device__ __forceinline__ float half_of(const uint4& v, int i) {
  const uint32_t word = i < 2 ? v.x : i < 4 ? v.y : i < 6 ? v.z : v.w;
  return i & 1 ? halves(word).y : halves(word).x;
}
__device__ __forceinline__ uint32_t pack_halves(float a, float b) {
  const __half2 h = __floats2half2_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&h);
}
__device__ __forceinline__ void add_scaled(float (&acc)[4], float scale_g, float scale_8, const float (&d)[4]) {
  acc[0] = fmaf(scale_g, d[0], acc[0]);
  acc[1] = fmaf(scale_g, d[1], acc[1]);
  acc[2] = fmaf(scale_8, d[2], acc[2]);
  acc[3] = fmaf(scale_8, d[3], acc[3]);
}

/// acc, correction (16 rows x 8 columns, the layout of C) += tile · activations. kColumns: activation columns in `x`
/// (spare columns of the mma repeat them and are ignored). x: fragments of this tile's first block on, [blk][column]
/// [lane t][8]; sums: of this tile, [column][t]{high 2, low 2} (Q6_K: 4 and 4): minus the sums of blocks (half blocks).
template <Format F, int kColumns>
__device__ __forceinline__ void multiply_tile(float (&acc)[4], float (&correction)[4], const Tile<F>& r,
                                              const __half* x, const __half* sums, int lane) {
  const int t = lane & 3, column = (lane >> 2) % kColumns;
  const float zero[4] = {0, 0, 0, 0};
  float fs[2][4];  // scales that this lane decodes for its group of four lanes
  uint32_t a0 = 0, a1 = 0, a2 = 0, a3 = 0;
  if constexpr (F == Format::kQ4_0 || F == Format::kQ8_0) {
    a0 = r.sa[0];
    a1 = r.sa[1];
  } else if constexpr (F == Format::kQ4_K) {
    const uint32_t a = r.sm & 0xffffff, b = (r.sm >> 24) | (r.sh << 8);
    const float dg = halves(r.d0).x, d8 = halves(r.d1).x;
    fs[0][0] = dg * float(a & 63);
    fs[0][1] = dg * float(a >> 12 & 63);
    fs[1][0] = d8 * float(b & 63);
    fs[1][1] = d8 * float(b >> 12 & 63);
    a0 = (a >> 6 & 63) | (a >> 18 & 63) << 16;  // the minimums, subnormals again
    a1 = (b >> 6 & 63) | (b >> 18 & 63) << 16;
  } else {
    const float dg = halves(r.d).x, d8 = halves(r.d).y;
    float c[2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      c[0][i] = float(int8_t(r.sc.x >> (8 * i)));
      c[1][i] = float(int8_t(r.sc.y >> (8 * i)));
      fs[0][i] = dg * c[0][i];
      fs[1][i] = d8 * c[1][i];
    }
    a0 = pack_halves(c[0][0], c[0][1]);
    a2 = pack_halves(c[0][2], c[0][3]);
    a1 = pack_halves(c[1][0], c[1][1]);
    a3 = pack_halves(c[1][2], c[1][3]);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint4 b = *reinterpret_cast<const uint4*>(x + ((i * kColumns + column) * 4 + t) * 8);
    const int source = (lane & 28) | (i >> 1);  // the lane that decoded the scales of block i
    float d[4];
    if constexpr (F == Format::kQ8_0) {
      const uint4 w = r.w[i];
      const auto first = [](uint32_t v) { return v & 0x00ff00ff; };
      const auto last = [](uint32_t v) { return v >> 8 & 0x00ff00ff; };
      mma_f16(d, first(w.x), first(w.y), last(w.x), last(w.y), b.x, b.y, zero);
      mma_f16(d, first(w.z), first(w.w), last(w.z), last(w.w), b.z, b.w, d);
      add_scaled(acc, half_of(r.s[0], i), half_of(r.s[1], i), d);
      continue;
    }
    const uint4& w = r.w[i >> 1];
    const uint32_t wg = i & 1 ? w.z : w.x, w8 = i & 1 ? w.w : w.y, vg = wg >> 8, v8 = w8 >> 8;
    if constexpr (F == Format::kQ6_K) {
      const uint32_t hg = i & 1 ? r.h[i >> 1].y : r.h[i >> 1].x, h8 = two_bits_of(hg, 1);
      const auto low = [](uint32_t code, uint32_t two) { return (code & 0x000f000f) | (two & 0x00300030); };
      const auto high = [](uint32_t code, uint32_t two) { return (code & 0x00f000f0) | (two & 0x000c000c); };
      mma_f16(d, low(wg, hg), low(w8, h8), low(vg, hg >> 8), low(v8, h8 >> 8), b.x, b.y, zero);
      add_scaled(acc, __shfl_sync(~0u, fs[0][(2 * i) & 3], source), __shfl_sync(~0u, fs[1][(2 * i) & 3], source), d);
      mma_f16(d, high(wg, hg), high(w8, h8), high(vg, hg >> 8), high(v8, h8 >> 8), b.z, b.w, zero);
      add_scaled(acc, __shfl_sync(~0u, fs[0][(2 * i + 1) & 3], source),
                 __shfl_sync(~0u, fs[1][(2 * i + 1) & 3], source), d);
    } else if constexpr (F != Format::kQ8_0) {
      mma_f16(d, wg & 0x000f000f, w8 & 0x000f000f, vg & 0x000f000f, v8 & 0x000f000f, b.x, b.y, zero);
      mma_f16(d, wg & 0x00f000f0, w8 & 0x00f000f0, vg & 0x00f000f0, v8 & 0x00f000f0, b.z, b.w, d);
      if constexpr (F == Format::kQ4_0)
        add_scaled(acc, half_of(r.s[0], i), half_of(r.s[1], i), d);
      else
        add_scaled(acc, __shfl_sync(~0u, fs[0][i & 1], source), __shfl_sync(~0u, fs[1][i & 1], source), d);
    }
  }
  if constexpr (F == Format::kQ6_K) {
    const uint4 s = *reinterpret_cast<const uint4*>(sums + (column * 4 + t) * 8);
    float d[4];
    mma_f16(d, a0, a1, a2, a3, s.x, s.y, zero);
    mma_f16(d, a0, a1, a2, a3, s.z, s.w, d);
    add_scaled(correction, halves(r.d).x, halves(r.d).y, d);
  } else {
    const uint2 s = *reinterpret_cast<const uint2*>(sums + (column * 4 + t) * 4);
    if constexpr (F == Format::kQ4_K) {
      float d[4];
      mma_f16(d, a0, a1, a0, a1, s.x, s.y, zero);
      add_scaled(acc, halves(r.d0).y, halves(r.d1).y, d);
    } else {
      mma_f16(correction, a0, a1, a0, a1, s.x, s.y, correction);
    }
  }
}

/// The product of one column: what the mma summed, with the correction.
template <Format F>
__device__ __forceinline__ float finished(float acc, float correction) {
  if constexpr (F == Format::kQ4_K) return acc * kUnscale;
  return fmaf(acc, kUnscale, float(offset_of(F)) * correction);
}

}  // namespace honeycrisp::backend::cuda
