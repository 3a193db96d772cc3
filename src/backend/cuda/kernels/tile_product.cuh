// Products of one packed tile (packed.cuh) with activations that a warp keeps in registers; what the graph's kernels of
// generated rows are made of. The tile's bits are turned into fragments here; its layout is packed.cuh's to know.
//
// Activations of a k tile (256 columns of a row) are scaled by a power of two of their own and split in two f16, high +
// 2^-11 low: 22 bits, so products are as exact as f32, and no activation overflows. Products of two neighbouring blocks
// are added to one sum, and the four sums of a tile as ((0 + 1) + (2 + 3)).
//
// Columns of an mma do not mix. Of four rows, they are (row, part), and a lane needs the scales of other lanes' blocks.
// Of one row, they are (pair of blocks, part): four blocks share a D whose elements lie just where a lane has the
// scales of its blocks 2t and 2t + 1, and the other pairs' columns are zero. Adding zeros changes no bit, so both are
// the same sums: no bit depends on which rows come together.
#pragma once

#include "backend/cuda/kernels/tile_format.cuh"

namespace honeycrisp::backend::cuda {

constexpr float kLowFactor = 2048, kLowPart = 1 / kLowFactor;
constexpr int kLargestExponent = 14;  // of scaled activations: below the largest f16
constexpr float kCode = 1 / kUnscale;

/// Sums of activations that have scales of their own: the low and the high half of a block, or the whole.
template <Format F>
constexpr int kSums = has_half_blocks(F) ? 2 : 1;

/// The A fragments of block i of a tile, for its low and its high columns.
template <Format F>
__device__ __forceinline__ void code_fragments(const Tile<F>& r, int i, uint32_t (&low)[4], uint32_t (&high)[4]) {
  if constexpr (F == Format::kQ8_0) {
    const uint4 w = r.w[i];
    const uint32_t words[4] = {w.x, w.y, w.x >> 8, w.y >> 8}, high_words[4] = {w.z, w.w, w.z >> 8, w.w >> 8};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      low[j] = words[j] & 0x00ff00ff;
      high[j] = high_words[j] & 0x00ff00ff;
    }
  } else if constexpr (!has_own_tile(F) && high_factor(F) == 1) {
    uint32_t a[4];
    codes<F>(r, i, a);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      low[j] = a[j % 2] >> (j / 2 * 8) & 0x00ff00ff;
      high[j] = a[2 + j % 2] >> (j / 2 * 8) & 0x00ff00ff;
    }
  } else {
    const uint4& w = r.w[i >> 1];
    const uint32_t wg = i & 1 ? w.z : w.x, w8 = i & 1 ? w.w : w.y, words[4] = {wg, w8, wg >> 8, w8 >> 8};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      low[j] = words[j] & 0x000f000f;
      high[j] = words[j] & 0x00f000f0;
    }
    if constexpr (F == Format::kQ6_K) {
      const uint32_t hg = i & 1 ? r.h[i >> 1].y : r.h[i >> 1].x, h8 = two_bits_of(hg, 1);
      const uint32_t twos[4] = {hg, h8, hg >> 8, h8 >> 8};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        low[j] |= twos[j] & 0x00300030;
        high[j] |= twos[j] & 0x000c000c;
      }
    }
  }
}

/// Scales of a lane's blocks 2t and 2t + 1 (or of half blocks 4t..4t + 3) in rows g and g + 8, and minimums.
template <Format F>
struct PairScales {
  static constexpr int kEach = 2 * kSums<F>, kMins = TileFormat<F>::kMinimums ? kEach : 0;
  float of[2][kEach], min[2][kEach] = {};

  __device__ __forceinline__ explicit PairScales(const Tile<F>& r) {
    if constexpr (!has_own_tile(F)) {
      const LaneScales<F> s(r);
#pragma unroll
      for (int r8 = 0; r8 < 2; ++r8)
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          of[r8][i] = s.of[r8][i] * (s.whole[r8] * TileFormat<F>::kLowUnit);
          if constexpr (kMins != 0) min[r8][i] = -s.minus_min[r8][i] * s.whole[r8];
        }
    } else if constexpr (F == Format::kQ4_0 || F == Format::kQ8_0) {
#pragma unroll
      for (int r8 = 0; r8 < 2; ++r8) {
        const float2 s = halves(r.sa[r8]);
        of[r8][0] = s.x, of[r8][1] = s.y;
      }
    } else if constexpr (F == Format::kQ4_K) {
      const uint32_t fields[2] = {r.sm & 0xffffff, (r.sm >> 24) | (r.sh << 8)};
#pragma unroll
      for (int r8 = 0; r8 < 2; ++r8) {
        const float2 d = halves(r8 == 0 ? r.d0 : r.d1);
        const uint32_t f = fields[r8];
        of[r8][0] = d.x * float(f & 63), of[r8][1] = d.x * float(f >> 12 & 63);
        min[r8][0] = d.y * float(f >> 6 & 63), min[r8][1] = d.y * float(f >> 18 & 63);
      }
    } else {
      const float2 d = halves(r.d);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        of[0][i] = d.x * float(int8_t(r.sc.x >> (8 * i)));
        of[1][i] = d.y * float(int8_t(r.sc.y >> (8 * i)));
      }
    }
  }
  /// Those of another lane of the same rows.
  __device__ __forceinline__ void take(const PairScales& mine, int lane) {
#pragma unroll
    for (int r8 = 0; r8 < 2; ++r8) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) of[r8][i] = __shfl_sync(~0u, mine.of[r8][i], lane);
#pragma unroll
      for (int i = 0; i < kMins; ++i) min[r8][i] = __shfl_sync(~0u, mine.min[r8][i], lane);
    }
  }
};

/// What two neighbouring blocks add to an output, in code units. d: their products of codes, s: sums of activations.
template <Format F>
__device__ __forceinline__ float sum_of_pair(const float (&d)[2 * kSums<F>], const float (&s)[2 * kSums<F>],
                                             const float (&scale)[2 * kSums<F>], const float (&min)[2 * kSums<F>]) {
  constexpr float kOffset = float(offset_of(F));
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 2 * kSums<F>; ++i) {
    const float v = kOffset == 0 ? d[i] : fmaf(-kOffset, s[i], d[i]);
    sum = i == 0 ? scale[0] * v : fmaf(scale[i], v, sum);
  }
  if constexpr (TileFormat<F>::kMinimums)
#pragma unroll
    for (int i = 0; i < 2 * kSums<F>; ++i) sum = fmaf(-min[i], s[i], sum);
  return sum;
}

/// Activations of a k tile, of one row or of four, as B fragments.
template <Format F, int kRows>
struct Activations {
  static constexpr int kBlocks = kRows == 1 ? 2 : 8;  // a lane's: of its column's pair, or all
  uint4 b[kBlocks];
  float sum[kBlocks][kSums<F>];  // in code units; one row: of blocks 2t and 2t + 1; four: of row t
  float after;                   // one row: of the row; four: of row t

  /// Values of the lane's blocks: four of the low columns and four of the high ones, from 4t on.
  __device__ __forceinline__ void make(float (&v)[kBlocks][8], int lane) {
    float largest = 0;
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
      for (int e = 0; e < 8; ++e) largest = fmaxf(largest, fabsf(v[i][e]));
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
    if (kRows == 1) {
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 8));
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 16));
    }
    // Powers of two, both normal for whatever f32 holds.
    const int stored = int(__float_as_uint(largest) >> 23);
    const int exponent = stored == 255 ? 0 : max(-118, min(100, kLargestExponent + 127 - stored));
    const float before = __uint_as_float(uint32_t(127 + exponent) << 23);
    after = __uint_as_float(uint32_t(127 - exponent) << 23);
    if (kRows != 1) after = __shfl_sync(~0u, after, 8 * (lane & 3));
    const bool low = lane & 4;  // columns are (.., part)
    constexpr float kHigh = high_factor(F);
    constexpr uint32_t kOnes = 0x3c003c00;  // two f16; then 4 and 16
    constexpr uint32_t kUndoHigh = kHigh == 1 ? kOnes : kHigh == 0.25f ? 0x44004400 : 0x4c004c00;
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      float h[8];
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const float scaled = v[i][e] * before, high = __half2float(__float2half_rn(scaled));
        h[e] = low ? (scaled - high) * kLowFactor : high;
      }
      b[i] = {pack_halves(h[0], h[1]), pack_halves(h[2], h[3]), pack_halves(h[4] * kHigh, h[5] * kHigh),
              pack_halves(h[6] * kHigh, h[7] * kHigh)};
      float d[4] = {};
      mma_f16(d, kOnes, kOnes, kOnes, kOnes, b[i].x, b[i].y, d);
      if constexpr (kSums<F> == 2) {
        sum[i][0] = fmaf(d[1], kLowPart, d[0]) * kCode;
        d[0] = d[1] = d[2] = d[3] = 0;
      }
      mma_f16(d, kUndoHigh, kUndoHigh, kUndoHigh, kUndoHigh, b[i].z, b[i].w, d);
      sum[i][kSums<F> - 1] = fmaf(d[1], kLowPart, d[0]) * kCode;
    }
  }
};

/// The product of a tile and one row, into partial[16].
template <Format F>
__device__ __forceinline__ void multiply(float* partial, const Tile<F>& r, const Activations<F, 1>& x, int lane) {
  float d[2][kSums<F>][4] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    uint32_t low[4], high[4];
    code_fragments<F>(r, i, low, high);
    const bool mine = lane >> 3 == i >> 1;
    const uint4 b = mine ? x.b[i & 1] : make_uint4(0, 0, 0, 0);
    float(&to_low)[4] = d[i & 1][0];
    float(&to_high)[4] = d[i & 1][kSums<F> - 1];
    mma_f16(to_low, low[0], low[1], low[2], low[3], b.x, b.y, to_low);
    mma_f16(to_high, high[0], high[1], high[2], high[3], b.z, b.w, to_high);
  }
  const PairScales<F> scales(r);
  float acc[2], s[2 * kSums<F>];
#pragma unroll
  for (int i = 0; i < 2 * kSums<F>; ++i) s[i] = x.sum[i / kSums<F>][i % kSums<F>];
#pragma unroll
  for (int r8 = 0; r8 < 2; ++r8) {
    float products[2 * kSums<F>];
#pragma unroll
    for (int i = 0; i < 2 * kSums<F>; ++i) {
      const float(&from)[4] = d[i / kSums<F>][i % kSums<F>];
      products[i] = fmaf(from[2 * r8 + 1], kLowPart, from[2 * r8]);
    }
    acc[r8] = sum_of_pair<F>(products, s, scales.of[r8], scales.min[r8]);
  }
  // Over the four lanes of a row: even lanes take row g, odd ones g + 8.
  const int g = lane >> 2, t = lane & 3;
  const float sent = t & 1 ? acc[0] : acc[1];
  float sum = t & 1 ? acc[1] : acc[0];
  sum += __shfl_xor_sync(~0u, sent, 1);
  sum += __shfl_xor_sync(~0u, sum, 2);
  if (t < 2) partial[g + 8 * t] = sum * kUnscale * x.after;
}

/// The product of a tile and four rows, into partial[16][4].
template <Format F>
__device__ __forceinline__ void multiply(float* partial, const Tile<F>& r, const Activations<F, 4>& x, int lane) {
  const PairScales<F> mine(r);
  PairScales<F> scales = mine;
  float acc[4][2];
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    float d[2][kSums<F>][4] = {}, s[2 * kSums<F>];
#pragma unroll
    for (int blk = 0; blk < 2; ++blk) {
      uint32_t low[4], high[4];
      code_fragments<F>(r, 2 * pair + blk, low, high);
      const uint4 b = x.b[2 * pair + blk];
      float(&to_low)[4] = d[blk][0];
      float(&to_high)[4] = d[blk][kSums<F> - 1];
      mma_f16(to_low, low[0], low[1], low[2], low[3], b.x, b.y, to_low);
      mma_f16(to_high, high[0], high[1], high[2], high[3], b.z, b.w, to_high);
    }
#pragma unroll
    for (int i = 0; i < 2 * kSums<F>; ++i) s[i] = x.sum[2 * pair + i / kSums<F>][i % kSums<F>];
    scales.take(mine, (lane & 28) | pair);
#pragma unroll
    for (int r8 = 0; r8 < 2; ++r8) {
      float products[2 * kSums<F>];
#pragma unroll
      for (int i = 0; i < 2 * kSums<F>; ++i) {
        const float(&from)[4] = d[i / kSums<F>][i % kSums<F>];
        products[i] = fmaf(from[2 * r8 + 1], kLowPart, from[2 * r8]);
      }
      acc[pair][r8] = sum_of_pair<F>(products, s, scales.of[r8], scales.min[r8]);
    }
  }
  const int g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int r8 = 0; r8 < 2; ++r8)
    partial[(g + 8 * r8) * 4 + t] = ((acc[0][r8] + acc[1][r8]) + (acc[2][r8] + acc[3][r8])) * kUnscale * x.after;
}

}  // namespace honeycrisp::backend::cuda
