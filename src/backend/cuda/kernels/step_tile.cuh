// Products of one packed tile (packed.cuh) with staged activations of one row or of several, as limbs of a byte: what
// the persistent kernel is made of. As f16, for more rows and for weights that are floats: half_tile.cuh, with the same
// bits.
//
// Activations are integers below 2^14 times a power of two of their block of 32 columns, relative to the tile's
// (fragments.cuh), as two limbs of a byte: x = 128 · high + low. mma.m16n8k32 (k16 where a scale is of 16 columns)
// multiplies the bytes of codes with those of limbs, exactly. D begins at 1.5 · 2^23, so that its bits are a float that
// the sums can be read from, as they stay below 2^22; only then anything is rounded. So how the sums come about changes
// no bit.
//
// Of a tile and a row of activations: per block v = scale · (128 · sum of high + sum of low) - offset · sum of x, and
// the products of two neighbouring blocks are added to one sum; the four sums of a tile as ((0 + 1) + (2 + 3)), times
// the tile's scale.
//
// The columns of an mma do not mix. With several rows, columns 2i and 2i + 1 are the limbs of row i, and a lane needs
// the scales of other lanes' blocks. With one row they are the limbs of blocks 2i (in one D) and 2i + 1 (in another),
// zeros else: all blocks of a tile share these two D, whose elements lie just where a lane has the scales of its blocks
// 2t and 2t + 1.
//
// What a format is: tile_format.cuh.
#pragma once

#include "backend/cuda/kernels/tile_format.cuh"
#include "backend/cuda/persistent_args.h"

namespace honeycrisp::backend::cuda {

constexpr int kLimb = 128;
constexpr int kLimbRows = 4;  // of activations: the columns of an mma are their limbs

/// Of the blocks of a tile and a row: what activations were divided by, and the sums of all and of the low 16 columns,
/// relative to the scale of the whole tile.
struct alignas(16) KnownOfTile {
  float scale[8], sum[8], low_sum[8], whole;
  float unused[3];  // so that rows lie in different banks
};
static_assert(sizeof(KnownOfTile) == kKnownBytes);

/// Words of a row's limbs in a tile, as B fragments: [pair of blocks][limb][t][block of the pair][low, high columns],
/// of four bytes in the order of packed.cuh.
constexpr int kLimbWords = int(kTileCols) * 2 / 4;

// ---- products

// What D begins with, as bits and as a number.
constexpr int kSumBits = 0x4b400000;
constexpr float kSumStart = 12582912.0f;

/// The D of a pair of blocks, or of their low and high columns.
template <Format F>
struct PairSums {
  static constexpr int kEach = LaneScales<F>::kEach;
  int d[kEach][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) d[i][j] = kSumBits;
  }
  /// Of block `blk` of the pair: a product alone.
  __device__ __forceinline__ void set(int blk, const uint32_t (&a)[4], uint32_t low, uint32_t high) {
    if constexpr (kEach == 2) {
      mma_bytes(d[blk], a, low, high, kSumBits);
    } else {
      mma_bytes(d[2 * blk], a[0], a[1], low, kSumBits);
      mma_bytes(d[2 * blk + 1], a[2], a[3], high, kSumBits);
    }
  }
  /// += block `blk` of the pair times {low, high columns}.
  __device__ __forceinline__ void add(int blk, const uint32_t (&a)[4], uint32_t low, uint32_t high) {
    if constexpr (kEach == 2) {
      mma_bytes(d[blk], a, low, high);
    } else {
      mma_bytes(d[2 * blk], a[0], a[1], low);
      mma_bytes(d[2 * blk + 1], a[2], a[3], high);
    }
  }
  /// The pair's product in row g + 8 `row` of the tile. scale, sum, low_sum: of its blocks (KnownOfTile).
  __device__ __forceinline__ float product(int row, const float (&of)[kEach], const float (&minus_min)[kEach],
                                           const float2& scale, const float2& sum, const float2& low_sum) const {
    constexpr float kUnit = TileFormat<F>::kLowUnit, kOfHigh = kUnit / TileFormat<F>::kHighUnit;
    constexpr float kOffset = kUnit * float(offset_of(F));
    float acc = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int blk = i * 2 / kEach, high = kEach == 2 ? 0 : i % 2;
      const float block_scale = blk == 0 ? scale.x : scale.y, whole_sum = blk == 0 ? sum.x : sum.y;
      const float low = blk == 0 ? low_sum.x : low_sum.y;
      const float of_sum = kEach == 2 ? whole_sum : high != 0 ? whole_sum - low : low;
      const float limbs =
          fmaf(kLimb, __int_as_float(d[i][2 * row]) - kSumStart, __int_as_float(d[i][2 * row + 1]) - kSumStart);
      const float limbs_scale = high != 0 ? block_scale * kOfHigh : block_scale;
      const float v = kOffset == 0 ? limbs_scale * limbs : fmaf(limbs_scale, limbs, -kOffset * of_sum);
      acc = i == 0 ? of[i] * v : fmaf(of[i], v, acc);
      if constexpr (TileFormat<F>::kMinimums) acc = fmaf(minus_min[i], of_sum, acc);
    }
    return acc;
  }
};

/// One row's activations of a tile, as a lane holds them: limbs of blocks 2i and 2i + 1 in columns 2i and 2i + 1, zeros
/// in the others; what is known of blocks 2t and 2t + 1.
struct Diagonal {
  uint32_t b[8][2];
  float2 scale, sum, low_sum;
  float whole;

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < 8; ++i) b[i][0] = b[i][1] = 0;
    scale = sum = low_sum = {0, 0};
    whole = 0;
  }
  /// x: of the tile, in shared memory.
  __device__ __forceinline__ void load(const uint32_t* x, const KnownOfTile& known, int lane) {
    const auto limbs = *reinterpret_cast<const uint4*>(x + lane * 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool mine = lane >> 3 == i;
      b[2 * i][0] = mine ? limbs.x : 0, b[2 * i][1] = mine ? limbs.y : 0;
      b[2 * i + 1][0] = mine ? limbs.z : 0, b[2 * i + 1][1] = mine ? limbs.w : 0;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) asm volatile("" : "+r"(b[i][0]), "+r"(b[i][1]));  // once, not for every tile
    const int t = lane & 3;
    scale = *reinterpret_cast<const float2*>(&known.scale[2 * t]);
    sum = *reinterpret_cast<const float2*>(&known.sum[2 * t]);
    low_sum = *reinterpret_cast<const float2*>(&known.low_sum[2 * t]);
    whole = known.whole;
  }
};

/// The product of a tile and one row of activations, into partial[16].
template <Format F>
__device__ __forceinline__ void multiply_diagonal(float* partial, const Tile<F>& r, const Diagonal& x, int lane) {
  const int g = lane >> 2, t = lane & 3;
  PairSums<F> sums;
  sums.clear();
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    uint32_t a[4];
    codes<F>(r, i, a);
    sums.add(i & 1, a, x.b[i][0], x.b[i][1]);
  }
  const LaneScales<F> scales(r);
  float acc[2];
#pragma unroll
  for (int row = 0; row < 2; ++row)
    acc[row] = sums.product(row, scales.of[row], scales.minus_min[row], x.scale, x.sum, x.low_sum);
  // Over the four lanes of a row: even lanes take row g, odd ones g + 8.
  const float sent = t & 1 ? acc[0] : acc[1];
  float mine = t & 1 ? acc[1] : acc[0];
  mine += __shfl_xor_sync(~0u, sent, 1);
  mine += __shfl_xor_sync(~0u, mine, 2);
  if (t < 2) partial[g + 8 * t] = mine * (t == 0 ? scales.whole[0] : scales.whole[1]) * x.whole;
}

/// Where the partial sum of element r16 of a row of activations lies: eight rows and four elements in different banks.
__device__ __forceinline__ int partial_at(int row, int r16) { return row * int(kTileRows) + (r16 ^ (row & 2) << 2); }

/// The product of a tile and kRows rows of activations, into partial[kRows][16]. x: [row][kLimbWords]; known: [row].
template <Format F, int kRows>
__device__ __forceinline__ void multiply_limbs(float* partial, const Tile<F>& r, const uint32_t* x,
                                               const KnownOfTile* known, int lane) {
  constexpr int kN = kRows / kLimbRows;
  const int g = lane >> 2, t = lane & 3;
  const uint4* limbs = reinterpret_cast<const uint4*>(x + (g >> 1) * kLimbWords) + (g & 1) * 4 + t;
  float product[kN][2];  // of rows t + 4 n of activations and g, g + 8 of the tile
  constexpr int kEach = LaneScales<F>::kEach;
  const LaneScales<F> mine(r);
  float second[kN][2];
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    const int source = (lane & 28) | pair;  // the lane that has the scales
    float of[2][kEach], minus_min[2][kEach];
#pragma unroll
    for (int row = 0; row < 2; ++row)
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        of[row][i] = __shfl_sync(~0u, mine.of[row][i], source);
        if constexpr (TileFormat<F>::kMinimums) minus_min[row][i] = __shfl_sync(~0u, mine.minus_min[row][i], source);
      }
    uint32_t a[2][4];
    codes<F>(r, 2 * pair, a[0]);
    codes<F>(r, 2 * pair + 1, a[1]);
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const uint4 b = limbs[n * kLimbRows * (kLimbWords / 4) + pair * 8];
      PairSums<F> sums;
      sums.set(0, a[0], b.x, b.y);
      sums.set(1, a[1], b.z, b.w);
      const KnownOfTile& k = known[t + kLimbRows * n];
      const auto of_pair = [&](const float* v) { return *reinterpret_cast<const float2*>(v + 2 * pair); };
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const float p =
            sums.product(row, of[row], minus_min[row], of_pair(k.scale), of_pair(k.sum), of_pair(k.low_sum));
        float& sum_of_two = pair < 2 ? product[n][row] : second[n][row];
        sum_of_two = pair % 2 == 0 ? p : sum_of_two + p;
      }
    }
  }
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int row = 0; row < 2; ++row)
      partial[partial_at(t + kLimbRows * n, g + 8 * row)] =
          (product[n][row] + second[n][row]) * mine.whole[row] * known[t + kLimbRows * n].whole;
}

}  // namespace honeycrisp::backend::cuda
