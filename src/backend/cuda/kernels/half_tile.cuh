// Products of one packed tile (packed.cuh) with staged activations as f16: of many rows, whose float operations are
// fewer than those of limbs, and of any where weights are floats. Codes with limbs: step_tile.cuh, with the same bits.
//
// Activations are integers of eleven significant bits below 2^14, times a power of two of their block between 2^-24 and
// one (fragments.cuh): f16 hold them exactly. Codes are f16 without conversion, subnormals q · 2^-24 (packed.cuh).
// mma.m16n8k16 adds products to an f32 whose 24 bits have room for a block's sum (q < 64, or a
// multiple of 4 below 256, where 16 columns are added, q < 32 where 32 are); codes of eight bits are multiplied as two
// of four. So a sum is exact, whatever the order in which the tensor core adds: the one that bytes and limbs of one row
// give. All that follows are the roundings of step_tile.cuh in their order, in units that are powers of two of those.
//
// The columns of an mma are rows of activations, and do not mix. Products with floats (F16; BF16 by m16n8k8 in tf32,
// which holds both operands) round as the tensor core adds, in steps of 16 or 8 columns that are the same for any rows;
// one row takes all columns of the mma. Activations beside bf16 are divided by 2^19, so that no sum of a block
// overflows where the largest weight does not; an infinite weight makes its row infinite, or none.
#pragma once

#include "backend/cuda/kernels/step_tile.cuh"

namespace honeycrisp::backend::cuda {

constexpr int kRowsOfMma = 8;  // of activations

/// Words of a row's activations in a tile, two f16 each: [block][t][low columns 4t 4t+1, 4t+2 4t+3, high ones
/// likewise].
constexpr int kHalfWords = int(kTileCols) / 2;
/// The word of a block that has column j, an even one, and the next.
__device__ __forceinline__ uint32_t half_word(uint32_t j) { return j % 16 / 4 * 4 + j / 16 * 2 + j % 4 / 2; }
/// Where the four words of lane t lie among the tile's of a row: blocks of neighbouring rows change places, so that two
/// rows lie in different banks.
__device__ __forceinline__ int half_place(int row, int block, int t) { return ((block ^ (row & 1)) * 4 + t) * 4; }

/// Planes of codes of less than eight bits that a code is made of, the lower four bits first.
template <Format F>
constexpr int kCodePlanes = is_one_of(F, Format::kQ8_0, Format::kIQ4_NL, Format::kIQ4_XS) ? 2 : 1;

/// The A fragments of block i of a tile, for its low and its high columns.
template <Format F>
__device__ __forceinline__ void half_codes(const Tile<F>& r, int i, uint32_t (&low)[kCodePlanes<F>][4],
                                           uint32_t (&high)[kCodePlanes<F>][4]) {
  if constexpr (is_one_of(F, Format::kQ4_0, Format::kQ4_1, Format::kQ4_K)) {
    const uint4& w = r.w[i >> 1];
    const uint32_t words[2] = {i & 1 ? w.z : w.x, i & 1 ? w.w : w.y};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      low[0][j] = words[j % 2] >> (j / 2 * 8) & 0x000f000f;
      high[0][j] = words[j % 2] >> (j / 2 * 8 + 4) & 0x000f000f;
    }
  } else {
    constexpr uint32_t kMask = kCodePlanes<F> == 2 ? 0x000f000f : 0x00ff00ff;
    uint32_t a[4];
    codes<F>(r, i, a);
#pragma unroll
    for (int plane = 0; plane < kCodePlanes<F>; ++plane)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        low[plane][j] = a[j % 2] >> (j / 2 * 8 + 4 * plane) & kMask;
        high[plane][j] = a[2 + j % 2] >> (j / 2 * 8 + 4 * plane) & kMask;
      }
  }
}
/// Scales may be so far from one that what they multiply must have the unit that it has with limbs.
template <Format F>
constexpr bool kFullUnit = F == Format::kMXFP4;
/// What half_codes() multiplies codes of high columns by.
template <Format F>
constexpr float kHighHalves = TileFormat<F>::kHighUnit / TileFormat<F>::kLowUnit;

/// What a lane knows of a tile beside its pairs: scales of blocks 2t and 2t + 1 of codes; of floats nothing.
template <Format F>
struct HalfScales : LaneScales<F> {
  __device__ __forceinline__ explicit HalfScales(const Tile<F>& r) : LaneScales<F>(r) {}
  __device__ __forceinline__ float finished(float sum, int r8, float of_row) const {
    return sum * (this->whole[r8] * (kFullUnit<F> ? 1 : TileFormat<F>::kLowUnit * kUnscale)) * of_row;
  }
};
template <Format F>
  requires(is_packed_float(F))
struct HalfScales<F> {
  __device__ __forceinline__ explicit HalfScales(const Tile<F>&) {}
  __device__ __forceinline__ float finished(float sum, int, float of_row) const {
    return F == Format::kBF16 ? sum * of_row * 0x1p19f : sum * of_row;
  }
};

/// What a lane needs of a pair of blocks of a tile: A fragments; of codes also scales and minimums, in rows g, g + 8.
template <Format F>
struct HalfPair {
  static constexpr int kEach = LaneScales<F>::kEach;
  uint32_t low[2][kCodePlanes<F>][4], high[2][kCodePlanes<F>][4];
  float of[2][kEach], minus_min[2][kEach];

  __device__ __forceinline__ HalfPair(const Tile<F>& r, const HalfScales<F>& mine, int pair, int lane) {
    const int source = (lane & 28) | pair;  // the lane that has the scales
#pragma unroll
    for (int r8 = 0; r8 < 2; ++r8)
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        of[r8][i] = __shfl_sync(~0u, mine.of[r8][i], source);
        if constexpr (TileFormat<F>::kMinimums)
          minus_min[r8][i] = __shfl_sync(~0u, mine.minus_min[r8][i] * (1 / TileFormat<F>::kLowUnit), source);
      }
#pragma unroll
    for (int blk = 0; blk < 2; ++blk) half_codes<F>(r, 2 * pair + blk, low[blk], high[blk]);
  }
  /// Keeps them in registers, instead of making them anew wherever they are used.
  __device__ __forceinline__ void hold() {
#pragma unroll
    for (int i = 0; i < 2 * kCodePlanes<F> * 4; ++i) {
      uint32_t &l = low[i / 4 / kCodePlanes<F>][i / 4 % kCodePlanes<F>][i % 4],
               &h = high[i / 4 / kCodePlanes<F>][i / 4 % kCodePlanes<F>][i % 4];
      asm volatile("" : "+r"(l), "+r"(h));
    }
  }
};
template <Format F>
  requires(is_packed_float(F))
struct HalfPair<F> {
  uint4 a[4];  // of half blocks

  __device__ __forceinline__ HalfPair(const Tile<F>& r, const HalfScales<F>&, int pair, int) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = r.half_block(4 * pair + i);
  }
  __device__ __forceinline__ void hold() {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(a[i].x), "+r"(a[i].y), "+r"(a[i].z), "+r"(a[i].w));
  }
};

/// Eight rows of activations of a tile, as a lane reads them: row g for products, rows 2t and 2t + 1 for what comes
/// after.
struct HalfRows {
  const uint32_t* x;  // [kHalfWords], of row g
  const KnownOfTile* known[2];
  int g, t;

  /// x, known: of the first row; `n`: rows that there are, which repeat.
  __device__ __forceinline__ HalfRows(const uint32_t* rows, const KnownOfTile* known_of, int n, int lane)
      : x(rows + ((lane / 4) & (n - 1)) * kHalfWords),
        known{known_of + ((lane % 4 * 2) & (n - 1)), known_of + ((lane % 4 * 2 + 1) & (n - 1))},
        g((lane / 4) & (n - 1)),
        t(lane % 4) {}
  __device__ __forceinline__ uint4 words(int block) const {
    return *reinterpret_cast<const uint4*>(x + half_place(g, block, t));
  }
};

/// The products of a pair of blocks. A lane's elements: rows g, g, g + 8, g + 8 of the tile, 2t, 2t + 1, 2t, 2t + 1 of
/// activations.
template <Format F>
__device__ __forceinline__ void multiply_pair(float (&product)[4], const HalfPair<F>& pair, const HalfRows& rows,
                                              int index) {
  constexpr int kEach = HalfPair<F>::kEach, kPlanes = kCodePlanes<F>;
  constexpr float kOffset = float(offset_of(F)), kZeros[4] = {};
  float d[kEach][kPlanes][4];
#pragma unroll
  for (int blk = 0; blk < 2; ++blk) {
    const uint4 b = rows.words(2 * index + blk);
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
      const uint32_t(&low)[4] = pair.low[blk][plane];
      const uint32_t(&high)[4] = pair.high[blk][plane];
      float(&of_low)[4] = d[blk * kEach / 2][plane];
      float(&of_high)[4] = d[blk * kEach / 2 + kEach / 2 - 1][plane];
      mma_f16(of_low, low[0], low[1], low[2], low[3], b.x, b.y, kZeros);
      if constexpr (kEach == 2)
        mma_f16(of_high, high[0], high[1], high[2], high[3], b.z, b.w, of_low);
      else
        mma_f16(of_high, high[0], high[1], high[2], high[3], b.z, b.w, kZeros);
    }
  }
#pragma unroll
  for (int column = 0; column < 2; ++column) {
    const float2 sum = *reinterpret_cast<const float2*>(rows.known[column]->sum + 2 * index);
    const float2 low_sum = *reinterpret_cast<const float2*>(rows.known[column]->low_sum + 2 * index);
#pragma unroll
    for (int r8 = 0; r8 < 2; ++r8) {
      const int e = 2 * r8 + column;
      float acc = 0;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int blk = i * 2 / kEach, is_high = kEach == 2 ? 0 : i % 2;
        const float whole_sum = blk == 0 ? sum.x : sum.y, sum_of_low = blk == 0 ? low_sum.x : low_sum.y;
        const float of_sum = kEach == 2 ? whole_sum : is_high != 0 ? whole_sum - sum_of_low : sum_of_low;
        float v = d[i][0][e];
        if constexpr (kPlanes == 2) v = fmaf(16, d[i][1][e], v);
        if constexpr (kFullUnit<F>)
          v = fmaf(v, kUnscale, -kOffset * kUnscale * of_sum);
        else if (is_high != 0 && kHighHalves<F> != 1)
          v = fmaf(v, 1 / kHighHalves<F>, -kOffset * of_sum);
        else if constexpr (kOffset != 0)
          v += -kOffset * of_sum;
        acc = i == 0 ? pair.of[r8][i] * v : fmaf(pair.of[r8][i], v, acc);
        if constexpr (TileFormat<F>::kMinimums) acc = fmaf(pair.minus_min[r8][i], of_sum, acc);
      }
      product[e] = acc;
    }
  }
}

/// d += the products of half a block of floats, four columns of a lane.
template <Format F>
__device__ __forceinline__ void multiply_floats(float (&d)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  if constexpr (F == Format::kF16) {
    mma_f16(d, a.x, a.y, a.z, a.w, b0, b1, d);
  } else {
    const auto twice = [&](uint32_t row_g, uint32_t row_g8, uint32_t b) {  // two columns of rows g and g + 8
      const float2 v = halves(b);
      mma_tf32(d, row_g << 16, row_g8 << 16, row_g & 0xffff0000, row_g8 & 0xffff0000, __float_as_uint(v.x * 0x1p-19f),
               __float_as_uint(v.y * 0x1p-19f));
    };
    twice(a.x, a.y, b0);
    twice(a.z, a.w, b1);
  }
}
template <Format F>
  requires(is_packed_float(F))
__device__ __forceinline__ void multiply_pair(float (&product)[4], const HalfPair<F>& pair, const HalfRows& rows,
                                              int index) {
  float d[2][4] = {};
#pragma unroll
  for (int blk = 0; blk < 2; ++blk) {
    const uint4 b = rows.words(2 * index + blk);
    multiply_floats<F>(d[blk], pair.a[2 * blk], b.x, b.y);
    multiply_floats<F>(d[blk], pair.a[2 * blk + 1], b.z, b.w);
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) product[e] = d[0][e] + d[1][e];
}

/// The products of a tile: pairs as ((0 + 1) + (2 + 3)). pair(i): its HalfPair.
template <Format F, class Pair>
__device__ __forceinline__ void multiply_tile(float (&product)[4], const Pair& pair, const HalfScales<F>& scales,
                                              const HalfRows& rows) {
  float second[4], p[4];
  multiply_pair<F>(product, pair(0), rows, 0);
  multiply_pair<F>(p, pair(1), rows, 1);
#pragma unroll
  for (int e = 0; e < 4; ++e) product[e] += p[e];
  multiply_pair<F>(second, pair(2), rows, 2);
  multiply_pair<F>(p, pair(3), rows, 3);
#pragma unroll
  for (int e = 0; e < 4; ++e)
    product[e] = scales.finished(product[e] + (second[e] + p[e]), e / 2, rows.known[e % 2]->whole);
}

/// The product of a tile and kRows <= 8 rows of activations, into partial[16] of one row or partial[kRows][16]. x:
/// [row][kHalfWords]; known: [row].
template <Format F, int kRows>
__device__ __forceinline__ void multiply_halves(float* partial, const Tile<F>& r, const uint32_t* x,
                                                const KnownOfTile* known, int lane) {
  const HalfScales<F> scales(r);
  float product[4];
  multiply_tile<F>(
      product, [&](int i) { return HalfPair<F>(r, scales, i, lane); }, scales, HalfRows(x, known, kRows, lane));
  const int g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int row = 2 * t + e % 2, r16 = g + e / 2 * 8;
    if (row < kRows) partial[kRows == 1 ? r16 : partial_at(row, r16)] = product[e];
  }
}

}  // namespace honeycrisp::backend::cuda
