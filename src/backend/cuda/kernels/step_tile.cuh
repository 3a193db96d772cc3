// Products of one packed tile (packed.cuh) with staged activations of one row or of several, in the persistent kernel.
//
// Activations are f16 numbers; the low and the high 16 columns of a block of 32 are scaled by a power of two of their
// own (fragments.cuh). The product D of a half block begins with what the format subtracts from every code times minus
// the sum of the activations, and is multiplied by the scales of weights and activations. Products of two neighbouring
// blocks are added to one sum, and the four sums of a tile as ((0 + 1) + (2 + 3)).
//
// The columns of an mma do not mix. With several rows they are rows, and a lane needs the scales of other lanes'
// blocks. With one row, column i takes the activations of block i and zeros else: eight blocks share one D, whose
// elements lie just where a lane has the scales of its blocks 2t and 2t + 1. Adding zeros changes no bit, so both are
// the same sums.
#pragma once

#include "backend/cuda/kernels/packed.cuh"
#include "backend/cuda/persistent_args.h"

namespace honeycrisp::backend::cuda {

/// Of a block and a row: what its low and high activations were divided by, and minus their sums.
struct alignas(16) KnownOfBlock {
  float scale[2], sum[2];
};

constexpr float kCodeUnit = 1 / kUnscale;  // codes are in units of 2^-24

/// The activations of one row as B fragments: block i in column i, zeros in the others.
struct Diagonal {
  uint4 b[8];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < 8; ++i) b[i] = make_uint4(0, 0, 0, 0);
  }
  /// x: of the tile, [blk][t][8] in shared memory. Lanes of column i change block i only.
  __device__ __forceinline__ void load(const __half* x, int lane) {
    const uint32_t from = uint32_t(__cvta_generic_to_shared(x)) + lane * 16, column = lane >> 2;
#pragma unroll
    for (int i = 0; i < 8; ++i)
      asm volatile(
          "{\n .reg .pred mine;\n setp.eq.u32 mine, %5, %6;\n @mine ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
          : "+r"(b[i].x), "+r"(b[i].y), "+r"(b[i].z), "+r"(b[i].w)
          : "r"(from), "r"(column), "r"(i));
  }
};

/// The A fragments of block i of a tile, for the low and the high columns.
template <Format F>
__device__ __forceinline__ void fragments(const Tile<F>& r, int i, uint32_t (&low)[4], uint32_t (&high)[4]) {
  if constexpr (F == Format::kQ8_0) {
    const uint4 w = r.w[i];
    low[0] = __byte_perm(w.x, 0, 0x4140), low[1] = __byte_perm(w.y, 0, 0x4140);
    low[2] = __byte_perm(w.x, 0, 0x4342), low[3] = __byte_perm(w.y, 0, 0x4342);
    high[0] = __byte_perm(w.z, 0, 0x4140), high[1] = __byte_perm(w.w, 0, 0x4140);
    high[2] = __byte_perm(w.z, 0, 0x4342), high[3] = __byte_perm(w.w, 0, 0x4342);
  } else {
    const uint4& w = r.w[i >> 1];
    const uint32_t wg = i & 1 ? w.z : w.x, w8 = i & 1 ? w.w : w.y, words[4] = {wg, w8, wg >> 8, w8 >> 8};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      low[j] = words[j] & 0x000f000f;
      high[j] = words[j] & 0x00f000f0;
    }
    if constexpr (F == Format::kQ6_K) {
      const uint32_t h = i & 1 ? r.h[i >> 1].y : r.h[i >> 1].x;
      low[0] |= h << 4 & 0x00300030, low[1] |= h << 2 & 0x00300030;
      low[2] |= h & 0x00300030, low[3] |= h >> 2 & 0x00300030;
      high[0] |= h & 0x03000300, high[1] |= h >> 2 & 0x03000300;
      high[2] |= h >> 4 & 0x03000300, high[3] |= h >> 6 & 0x03000300;
    }
  }
}

/// What a lane knows of its blocks 2t and 2t + 1 in rows g and g + 8: scales of the blocks (Q6_K: of half blocks
/// 4t..4t + 3) without the factor of the tile, and Q4_K's minimums, as codes.
template <Format F>
struct LaneScales {
  static constexpr int kEach = F == Format::kQ6_K ? 4 : 2;
  float of[2][kEach];
  float whole[2] = {};     // Q6_K: d
  float min_unit[2] = {};  // Q4_K
  uint32_t mins[2] = {};

  __device__ __forceinline__ explicit LaneScales(const Tile<F>& r) {
    if constexpr (F == Format::kQ4_0 || F == Format::kQ8_0) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const float2 s = halves(r.sa[row]);
        of[row][0] = s.x, of[row][1] = s.y;
      }
    } else if constexpr (F == Format::kQ4_K) {
      const uint32_t fields[2] = {r.sm & 0xffffff, (r.sm >> 24) | (r.sh << 8)};
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const float2 d = halves(row == 0 ? r.d0 : r.d1);
        const uint32_t f = fields[row];
        of[row][0] = d.x * float(f & 63), of[row][1] = d.x * float(f >> 12 & 63);
        min_unit[row] = d.y;
        mins[row] = (f >> 6 & 63) | (f >> 18 & 63) << 16;
      }
    } else {
      const float2 d = halves(r.d);
      whole[0] = d.x, whole[1] = d.y;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        of[0][i] = float(int8_t(r.sc.x >> (8 * i)));
        of[1][i] = float(int8_t(r.sc.y >> (8 * i)));
      }
    }
  }
};

/// acc += the products of blocks 2p and 2p + 1 in one row of the tile and one column. low, high: their D. scale: as in
/// LaneScales; mins: two halves.
template <Format F>
__device__ __forceinline__ float add_pair(float acc, const float (&low)[2], const float (&high)[2],
                                          const float (&scale)[LaneScales<F>::kEach], float whole, float min_unit,
                                          uint32_t mins, const KnownOfBlock& x0, const KnownOfBlock& x1) {
  if constexpr (F == Format::kQ6_K) {
    float sum = scale[0] * (x0.scale[0] * low[0]);
    sum = fmaf(scale[1], x0.scale[1] * high[0], sum);
    sum = fmaf(scale[2], x1.scale[0] * low[1], sum);
    sum = fmaf(scale[3], x1.scale[1] * high[1], sum);
    return fmaf(whole, sum, acc);
  } else {
    acc = fmaf(scale[0], fmaf(x0.scale[1], high[0], x0.scale[0] * low[0]), acc);
    acc = fmaf(scale[1], fmaf(x1.scale[1], high[1], x1.scale[0] * low[1]), acc);
    if constexpr (F == Format::kQ4_K) {
      const float2 m = halves(mins);
      const float sum0 = fmaf(x0.scale[1], x0.sum[1], x0.scale[0] * x0.sum[0]);
      const float sum1 = fmaf(x1.scale[1], x1.sum[1], x1.scale[0] * x1.sum[0]);
      acc = fmaf(min_unit, fmaf(m.y, sum1, m.x * sum0), acc);
    }
    return acc;
  }
}

/// What D begins with, per sum: the format's offset.
template <Format F>
constexpr float kSumFactor = float(offset_of(F)) * kCodeUnit;

/// The product of a tile and one row of activations, into partial[16]. known: [blk].
template <Format F>
__device__ __forceinline__ void multiply_diagonal(float* partial, const Tile<F>& r, Diagonal& x,
                                                  const KnownOfBlock* known, int lane) {
  const int g = lane >> 2, t = lane & 3;
  const LaneScales<F> scales(r);
  const KnownOfBlock x0 = known[2 * t], x1 = known[2 * t + 1];
  const float low0 = x0.sum[0] * kSumFactor<F>, low1 = x1.sum[0] * kSumFactor<F>;
  const float high0 = x0.sum[1] * kSumFactor<F>, high1 = x1.sum[1] * kSumFactor<F>;
  float low[4] = {low0, low1, low0, low1}, high[4] = {high0, high1, high0, high1};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    uint32_t a[4], b[4];
    fragments<F>(r, i, a, b);
    mma_f16(low, a[0], a[1], a[2], a[3], x.b[i].x, x.b[i].y, low);
    mma_f16(high, b[0], b[1], b[2], b[3], x.b[i].z, x.b[i].w, high);
  }
  float acc[2];
#pragma unroll
  for (int row = 0; row < 2; ++row)
    acc[row] = add_pair<F>(0, {low[2 * row], low[2 * row + 1]}, {high[2 * row], high[2 * row + 1]}, scales.of[row],
                           scales.whole[row], scales.min_unit[row], scales.mins[row], x0, x1);
  // Over the four lanes of a row: even lanes take row g, odd ones g + 8.
  const float sent = t & 1 ? acc[0] : acc[1];
  float mine = t & 1 ? acc[1] : acc[0];
  mine += __shfl_xor_sync(~0u, sent, 1);
  mine += __shfl_xor_sync(~0u, mine, 2);
  if (t < 2) partial[g + 8 * t] = mine * kUnscale;
}

/// The product of a tile and kRows rows of activations, into partial[kRows][partial_stride(kRows)]. x:
/// [blk][row][t][8]; known: [blk][row].
template <Format F, int kRows>
__device__ __forceinline__ void multiply_rows(float* partial, const Tile<F>& r, const __half* x,
                                              const KnownOfBlock* known, int lane) {
  constexpr int kEach = LaneScales<F>::kEach;
  const int g = lane >> 2, t = lane & 3;
  const auto* fragment = reinterpret_cast<const uint4*>(x) + g % kRows * 4 + t;
  const int columns[2] = {2 * t % kRows, (2 * t + 1) % kRows};
  const LaneScales<F> mine(r);
  float acc[4][4] = {};
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    const int source = (lane & 28) | pair;  // the lane that has the scales
    KnownOfBlock k[2][2];                   // [block][column]
    float d[2][2][4];                       // [block][low, high]
#pragma unroll
    for (int blk = 0; blk < 2; ++blk) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        k[blk][c] = known[(2 * pair + blk) * kRows + columns[c]];
#pragma unroll
        for (int half = 0; half < 2; ++half)
          d[blk][half][c] = d[blk][half][c + 2] = k[blk][c].sum[half] * kSumFactor<F>;
      }
      uint32_t a[4], b[4];
      fragments<F>(r, 2 * pair + blk, a, b);
      const uint4 v = fragment[(2 * pair + blk) * kRows * 4];
      mma_f16(d[blk][0], a[0], a[1], a[2], a[3], v.x, v.y, d[blk][0]);
      mma_f16(d[blk][1], b[0], b[1], b[2], b[3], v.z, v.w, d[blk][1]);
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float scale[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) scale[i] = __shfl_sync(~0u, mine.of[row][i], source);
      const uint32_t mins = F == Format::kQ4_K ? __shfl_sync(~0u, mine.mins[row], source) : 0;
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int i = row * 2 + c;
        acc[pair][i] = add_pair<F>(0, {d[0][0][i], d[1][0][i]}, {d[0][1][i], d[1][1][i]}, scale, mine.whole[row],
                                   mine.min_unit[row], mins, k[0][c], k[1][c]);
      }
    }
  }
#pragma unroll
  for (int row = 0; row < 2; ++row)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int i = row * 2 + c;
      const float sum = (acc[0][i] + acc[1][i]) + (acc[2][i] + acc[3][i]);
      if (2 * t + c < kRows) partial[(2 * t + c) * partial_stride(kRows) + g + 8 * row] = sum * kUnscale;
    }
}

}  // namespace honeycrisp::backend::cuda
