// Products of one packed tile (packed.cuh) with staged activations of one row or of several, in the persistent kernel.
//
// Activations are integers of 15 bits, scaled by a power of two per block of 32 columns (fragments.cuh), as two limbs
// of a byte: x = 128 · high + low. mma.m16n8k32 (k16 where a scale is of 16 columns) multiplies the bytes of codes with
// those of limbs, exactly. D begins at 1.5 · 2^23, so that its bits are a float that the sums can be read from, as they
// stay below 2^22; only then anything is rounded. So how the sums come about changes no bit.
//
// Of a tile and a row of activations: per block v = scale · (128 · sum of high + sum of low) - offset · sum of x, and
// the products of two neighbouring blocks are added to one sum; the four sums of a tile as ((0 + 1) + (2 + 3)).
//
// The columns of an mma do not mix. With several rows, columns 2i and 2i + 1 are the limbs of row i, and a lane needs
// the scales of other lanes' blocks. With one row they are the limbs of blocks 2i (in one D) and 2i + 1 (in another),
// zeros else: all blocks of a tile share these two D, whose elements lie just where a lane has the scales of its blocks
// 2t and 2t + 1.
//
// Weights that are floats (F16, BF16) are multiplied in floats: a limb is exact in both, and a block's sum of them with
// the weights rounds in f32 as the tensor core does, in two steps of 16 columns: the same for any rows. One row takes
// all columns of the mma here: beside an infinite weight, the zeros of a diagonal would not be nothing. Limbs of bf16
// are divided by 2^12, so that no sum of a block overflows where the largest weight does not; an infinite weight makes
// its row infinite, or none.
//
// What a format is: tile_format.cuh.
#pragma once

#include "backend/cuda/kernels/tile_format.cuh"
#include "backend/cuda/persistent_args.h"

namespace honeycrisp::backend::cuda {

constexpr int kLimb = 128;
constexpr int kRowsOfMma = 4;  // of activations: the columns of an mma are their limbs

/// Of the blocks of a tile and a row: what activations were divided by, and the sums of all and of the low 16 columns.
struct alignas(16) KnownOfTile {
  float scale[8], sum[8], low_sum[8];
  float unused[4];  // so that four rows lie in different banks
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

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < 8; ++i) b[i][0] = b[i][1] = 0;
    scale = sum = low_sum = {0, 0};
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
  if (t < 2) partial[g + 8 * t] = mine * (t == 0 ? scales.whole[0] : scales.whole[1]);
}

/// Where the partial sum of element r16 of a row of activations lies: eight rows and four elements in different banks.
__device__ __forceinline__ int partial_at(int row, int r16) { return row * int(kTileRows) + (r16 ^ (row & 2) << 2); }

/// What is known of the blocks of a pair, of a row of activations.
struct KnownOfPair {
  float2 scale, sum, low_sum;
};

/// The products of a tile and 4 kN rows of activations: a lane's are of rows t + 4 n of these and g, g + 8 of the tile.
/// limbs: the lane's of the first pair, [4 n rows][kLimbWords / 4]; known(n, pair): of row t + 4 n.
template <Format F, int kN, class Known>
__device__ __forceinline__ void product_of_rows(float (&product)[kN][2], const Tile<F>& r, const uint4* limbs,
                                                const Known& known, int lane) {
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
      const uint4 b = limbs[n * kRowsOfMma * (kLimbWords / 4) + pair * 8];
      PairSums<F> sums;
      sums.set(0, a[0], b.x, b.y);
      sums.set(1, a[1], b.z, b.w);
      const KnownOfPair k = known(n, pair);
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const float p = sums.product(row, of[row], minus_min[row], k.scale, k.sum, k.low_sum);
        float& sum_of_two = pair < 2 ? product[n][row] : second[n][row];
        sum_of_two = pair % 2 == 0 ? p : sum_of_two + p;
      }
    }
  }
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int row = 0; row < 2; ++row) product[n][row] = (product[n][row] + second[n][row]) * mine.whole[row];
}

/// What limbs are divided by in products with floats.
template <Format F>
constexpr float kLimbUnit = F == Format::kBF16 ? 4096.0f : 1.0f;

/// Four limbs of a byte as the two words of a B fragment: two floats each.
template <Format F>
__device__ __forceinline__ uint2 float_limbs(uint32_t bytes) {
  uint2 b;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t two = bytes >> (8 * i);
    uint32_t& to = i == 0 ? b.x : b.y;
    if constexpr (F == Format::kF16)  // 1024 + 128 + limb
      to = sub_f16x2((two & 0x00ff00ff) ^ 0x64806480, 0x64806480);
    else  // 2^-12 (128 + the lower seven bits), minus 2^-12 · 256 where there is a sign, else 128
      to = sub_bf16x2((two & 0x007f007f) | 0x3d003d00, (two & 0x00800080) | 0x3d003d00);
  }
  return b;
}
/// d = the products of half a block, + c.
template <Format F>
__device__ __forceinline__ void mma_floats(float (&d)[4], const uint4& a, uint32_t limbs, const float (&c)[4]) {
  const uint2 b = float_limbs<F>(limbs);
  if constexpr (F == Format::kF16)
    mma_f16(d, a.x, a.y, a.z, a.w, b.x, b.y, c);
  else
    mma_bf16(d, a, b.x, b.y, c);
}
template <Format F, int kN, class Known>
  requires(is_packed_float(F))
__device__ __forceinline__ void product_of_rows(float (&product)[kN][2], const Tile<F>& r, const uint4* limbs,
                                                const Known& known, int) {
  float second[kN][2];
#pragma unroll
  for (int pair = 0; pair < 4; ++pair)
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const uint4 b = limbs[n * kRowsOfMma * (kLimbWords / 4) + pair * 8];
      float d[2][4] = {};
      mma_floats<F>(d[0], r.half_block(4 * pair), b.x, d[0]);
      mma_floats<F>(d[0], r.half_block(4 * pair + 1), b.y, d[0]);
      mma_floats<F>(d[1], r.half_block(4 * pair + 2), b.z, d[1]);
      mma_floats<F>(d[1], r.half_block(4 * pair + 3), b.w, d[1]);
      const float2 scale = known(n, pair).scale;
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const float first = fmaf(kLimb * scale.x, d[0][2 * row], scale.x * d[0][2 * row + 1]);
        const float p = first + fmaf(kLimb * scale.y, d[1][2 * row], scale.y * d[1][2 * row + 1]);
        float& sum_of_two = pair < 2 ? product[n][row] : second[n][row];
        sum_of_two = pair % 2 == 0 ? p : sum_of_two + p;
      }
    }
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int row = 0; row < 2; ++row) product[n][row] = (product[n][row] + second[n][row]) * kLimbUnit<F>;
}

/// The product of a tile of floats and one row of activations, into partial[16]: each row of the mma is that one.
template <Format F>
__device__ __forceinline__ void multiply_row(float* partial, const Tile<F>& r, const uint32_t* x,
                                             const KnownOfTile& known, int lane) {
  const int g = lane >> 2, t = lane & 3;
  float product[1][2];
  const auto known_of = [&](int, int pair) {
    return KnownOfPair{*reinterpret_cast<const float2*>(known.scale + 2 * pair), {}, {}};
  };
  product_of_rows<F, 1>(product, r, reinterpret_cast<const uint4*>(x) + (g & 1) * 4 + t, known_of, lane);
  if (t == 0) partial[g] = product[0][0], partial[g + 8] = product[0][1];
}

/// A lane's limbs of the first pair of a tile, of rows [][kLimbWords] of activations.
__device__ __forceinline__ const uint4* limbs_of_lane(const uint32_t* x, int lane) {
  const int g = lane >> 2, t = lane & 3;
  return reinterpret_cast<const uint4*>(x + (g >> 1) * kLimbWords) + (g & 1) * 4 + t;
}

/// The product of a tile and kRows rows of activations, into partial[kRows][16]. x: [row][kLimbWords]; known: [row].
template <Format F, int kRows>
__device__ __forceinline__ void multiply_rows(float* partial, const Tile<F>& r, const uint32_t* x,
                                              const KnownOfTile* known, int lane) {
  constexpr int kN = kRows / kRowsOfMma;
  const int g = lane >> 2, t = lane & 3;
  float product[kN][2];
  const auto known_of = [&](int n, int pair) {
    const KnownOfTile& k = known[t + kRowsOfMma * n];
    const auto two = [&](const float* v) { return *reinterpret_cast<const float2*>(v + 2 * pair); };
    return KnownOfPair{two(k.scale), two(k.sum), two(k.low_sum)};
  };
  product_of_rows<F, kN>(product, r, limbs_of_lane(x, lane), known_of, lane);
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int row = 0; row < 2; ++row) partial[partial_at(t + kRowsOfMma * n, g + 8 * row)] = product[n][row];
}

}  // namespace honeycrisp::backend::cuda
