// Products of one packed tile (packed.cuh) with staged activations of one row or of several, in the persistent kernel.
//
// Activations of a block of 32 columns are f16 numbers scaled by a power of two of the block's own. A block's product
// D begins with what the format subtracts from every code times minus the sum of the activations, and is multiplied by
// the block's scale of weights and that of activations. Products of two neighbouring blocks are added to one sum, and
// the four sums of a tile as ((0 + 1) + (2 + 3)).
//
// The columns of an mma do not mix. With several rows they are rows, and a lane needs the scales of other lanes'
// blocks. With one row, column i takes the activations of block i and zeros else: eight blocks share one D, whose
// elements lie just where a lane has the scales of its blocks 2t and 2t + 1. Adding zeros changes no bit, so both are
// the same sums.
#pragma once

#include "backend/cuda/kernels/packed.cuh"

namespace honeycrisp::backend::cuda {

/// Of a pair of blocks and a row: minus the sums of activations as they are subtracted, of blocks or of half blocks,
/// and what activations were divided by.
struct alignas(16) BlockSums {
  float sum[2], scale[2];
};
struct alignas(16) HalfBlockSums {
  float low[2], high[2];
};

// Codes are in units of 2^-24.
constexpr float kCodeUnit = 1 / kUnscale;
/// What staged sums are multiplied with: the offset of Q4_0, or of Q8_0, the only format that is staged unscaled.
constexpr __host__ __device__ float sum_factor(bool high_scaled) { return (high_scaled ? 8 : 128) * kCodeUnit; }
constexpr float kHalfSumFactor = 32 * kCodeUnit;  // Q6_K

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
        // Staged sums are of Q4_0's offset: 8 times.
        min_unit[row] = d.y * (kUnscale / 8);
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

/// acc += the products of blocks 2p and 2p + 1 in one row of the tile and one column. d: their D; Q6_K: of low halves,
/// then of high ones. scale: as in LaneScales; mins: two halves.
template <Format F>
__device__ __forceinline__ float add_pair(float acc, const float (&d)[LaneScales<F>::kEach],
                                          const float (&scale)[LaneScales<F>::kEach], float whole, float min_unit,
                                          uint32_t mins, const BlockSums& x) {
  if constexpr (F == Format::kQ6_K) {
    float sum = scale[0] * x.scale[0] * d[0];
    sum = fmaf(scale[1] * x.scale[0], d[2], sum);
    sum = fmaf(scale[2] * x.scale[1], d[1], sum);
    sum = fmaf(scale[3] * x.scale[1], d[3], sum);
    return fmaf(whole, sum, acc);
  } else {
    acc = fmaf(scale[0] * x.scale[0], d[0], acc);
    acc = fmaf(scale[1] * x.scale[1], d[1], acc);
    if constexpr (F == Format::kQ4_K) {
      const float2 m = halves(mins);
      const float sum = fmaf(m.y, x.sum[1] * x.scale[1], m.x * (x.sum[0] * x.scale[0]));
      acc = fmaf(min_unit, sum, acc);
    }
    return acc;
  }
}

/// The product of a tile and one row of activations, into partial[16]. x: [blk][t][8]; sums, half_sums: [pair].
template <Format F>
__device__ __forceinline__ void multiply_diagonal(float* partial, const Tile<F>& r, Diagonal& x, const BlockSums* sums,
                                                  const HalfBlockSums* half_sums, int lane) {
  const int g = lane >> 2, t = lane & 3;
  const LaneScales<F> scales(r);
  const BlockSums s = sums[t];
  float acc[2];
  if constexpr (F == Format::kQ6_K) {
    const HalfBlockSums h = half_sums[t];
    float low[4] = {h.low[0], h.low[1], h.low[0], h.low[1]}, high[4] = {h.high[0], h.high[1], h.high[0], h.high[1]};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      uint32_t a[4], b[4];
      fragments<F>(r, i, a, b);
      mma_f16(low, a[0], a[1], a[2], a[3], x.b[i].x, x.b[i].y, low);
      mma_f16(high, b[0], b[1], b[2], b[3], x.b[i].z, x.b[i].w, high);
    }
#pragma unroll
    for (int row = 0; row < 2; ++row)
      acc[row] = add_pair<F>(0, {low[2 * row], low[2 * row + 1], high[2 * row], high[2 * row + 1]}, scales.of[row],
                             scales.whole[row], 0, 0, s);
  } else {
    constexpr bool kOffset = F != Format::kQ4_K;
    const float c0 = kOffset ? s.sum[0] : 0, c1 = kOffset ? s.sum[1] : 0;
    float even[4] = {c0, 0, c0, 0}, odd[4] = {0, c1, 0, c1};  // of even and odd blocks: two chains
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      uint32_t a[4], b[4], c[4], d[4];
      fragments<F>(r, i, a, b);
      fragments<F>(r, i + 1, c, d);
      mma_f16(even, a[0], a[1], a[2], a[3], x.b[i].x, x.b[i].y, even);
      mma_f16(odd, c[0], c[1], c[2], c[3], x.b[i + 1].x, x.b[i + 1].y, odd);
      mma_f16(even, b[0], b[1], b[2], b[3], x.b[i].z, x.b[i].w, even);
      mma_f16(odd, d[0], d[1], d[2], d[3], x.b[i + 1].z, x.b[i + 1].w, odd);
    }
#pragma unroll
    for (int row = 0; row < 2; ++row)
      acc[row] = add_pair<F>(0, {even[2 * row], odd[2 * row + 1]}, scales.of[row], 0, scales.min_unit[row],
                             scales.mins[row], s);
  }
  // Over the four lanes of a row: even lanes take row g, odd ones g + 8.
  const float sent = t & 1 ? acc[0] : acc[1];
  float mine = t & 1 ? acc[1] : acc[0];
  mine += __shfl_xor_sync(~0u, sent, 1);
  mine += __shfl_xor_sync(~0u, mine, 2);
  if (t < 2) partial[g + 8 * t] = mine * kUnscale;
}

/// The product of a tile and kRows rows of activations, into partial[16][kRows]. x: [blk][row][t][8]; sums, half_sums:
/// [pair][row].
template <Format F, int kRows>
__device__ __forceinline__ void multiply_rows(float* partial, const Tile<F>& r, const __half* x, const BlockSums* sums,
                                              const HalfBlockSums* half_sums, int lane) {
  constexpr int kEach = LaneScales<F>::kEach;
  const int g = lane >> 2, t = lane & 3;
  const auto* fragment = reinterpret_cast<const uint4*>(x) + g % kRows * 4 + t;
  const int columns[2] = {2 * t % kRows, (2 * t + 1) % kRows};
  const LaneScales<F> mine(r);
  float acc[4][4] = {};
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    const int source = (lane & 28) | pair;  // the lane that has the scales
    BlockSums s[2];
    float d[kEach][4];
#pragma unroll
    for (int c = 0; c < 2; ++c) s[c] = sums[pair * kRows + columns[c]];
    if constexpr (F == Format::kQ6_K) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const HalfBlockSums h = half_sums[pair * kRows + columns[c]];
        d[0][c] = d[0][c + 2] = h.low[0];
        d[1][c] = d[1][c + 2] = h.low[1];
        d[2][c] = d[2][c + 2] = h.high[0];
        d[3][c] = d[3][c + 2] = h.high[1];
      }
    } else {
#pragma unroll
      for (int blk = 0; blk < 2; ++blk)
#pragma unroll
        for (int c = 0; c < 2; ++c) d[blk][c] = d[blk][c + 2] = F == Format::kQ4_K ? 0.0f : s[c].sum[blk];
    }
#pragma unroll
    for (int blk = 0; blk < 2; ++blk) {
      uint32_t a[4], b[4];
      fragments<F>(r, 2 * pair + blk, a, b);
      const uint4 v = fragment[(2 * pair + blk) * kRows * 4];
      mma_f16(d[blk], a[0], a[1], a[2], a[3], v.x, v.y, d[blk]);
      float(&second)[4] = d[F == Format::kQ6_K ? blk + 2 : blk];
      mma_f16(second, b[0], b[1], b[2], b[3], v.z, v.w, second);
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float scale[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) scale[i] = __shfl_sync(~0u, mine.of[row][i], source);
      const uint32_t mins = F == Format::kQ4_K ? __shfl_sync(~0u, mine.mins[row], source) : 0;
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float one[kEach];
#pragma unroll
        for (int i = 0; i < kEach; ++i) one[i] = d[i][row * 2 + c];
        acc[pair][row * 2 + c] = add_pair<F>(0, one, scale, mine.whole[row], mine.min_unit[row], mins, s[c]);
      }
    }
  }
#pragma unroll
  for (int row = 0; row < 2; ++row)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int i = row * 2 + c;
      const float sum = (acc[0][i] + acc[1][i]) + (acc[2][i] + acc[3][i]);
      if (2 * t + c < kRows) partial[(g + 8 * row) * kRows + 2 * t + c] = sum * kUnscale;
    }
}

}  // namespace honeycrisp::backend::cuda
