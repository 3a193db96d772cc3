// What the products of generated rows over packed tiles share (mat_vec.cu, expert_mat_vec.cu).
//
// Work split: a block owns consecutive row tiles (of a gate: pairs of tiles) and walks them in passes. The tiles of a
// pass, k tile by k tile, are cut into equal runs, one a warp; a warp keeps the activations of a k tile in registers
// for all its row tiles. Every tile leaves its sums in shared memory, and an output adds them in the order of k. So no
// bit depends on how the work is split, on the multiprocessors, or on the rows that come together.
//
// Between the arrival of its input and its last store a block has one barrier. x is scaled by the norm's weight before
// the product and by 1 / rms after it; squares are summed by k tile, beside the products.
#pragma once

#include "backend/cuda/kernels/ending.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/tile_product.cuh"
#include "backend/cuda/mixture_args.h"

namespace honeycrisp::backend::cuda {

// Two blocks fit a multiprocessor, this kernel's and the next's, and a warp's tile and activations their registers.
template <Format F, int kRows>
constexpr int kProductThreads = kRows == 1 && (F == Format::kQ4_0 || F == Format::kQ4_K) ? 384 : 256;
template <int kRows>
constexpr int kPassTiles = kRows == 1 ? 512 : 256;  // whose sums are in shared memory together
constexpr int kChunkTiles = 64;                     // k tiles of a pass; more come in chunks
constexpr int kMostProductBytes = 112 << 10;        // of shared memory: two blocks have room
static_assert(kChunkTiles >= int(kMostSummedTiles));
template <int kRows>
constexpr int kTileOutputs = int(kTileRows) * kRows;

/// Where row tile `t` of all parts together lies.
struct TilePlace {
  uint32_t part, row_tile;
};
__device__ __forceinline__ TilePlace place_of(const EndingArgs& e, uint32_t t) {
  if (e.kind == EndingKind::kGate) return {t % 2, t / 2};
  uint32_t part = 0;
  for (; part + 1 < e.n_parts; ++part) {
    const uint32_t tiles = (e.rows[part] + kTileRows - 1) / kTileRows;
    if (t < tiles) break;
    t -= tiles;
  }
  return {part, t};
}
__host__ __device__ __forceinline__ uint32_t tiles_of_unit(const EndingArgs& e) {
  return e.kind == EndingKind::kGate ? 2 : 1;
}
/// Row tiles of all parts together.
__host__ __device__ __forceinline__ uint32_t row_tiles(const EndingArgs& e) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < e.n_parts; ++i) n += (e.rows[i] + kTileRows - 1) / kTileRows;
  return n;
}

/// Row tiles of block `block` of `n_blocks`, and of one of its passes.
struct BlockTiles {
  uint32_t begin, end;
};
__device__ __forceinline__ BlockTiles tiles_of_block(const EndingArgs& e, uint32_t block, uint32_t n_blocks) {
  const uint32_t unit = tiles_of_unit(e), units = row_tiles(e) / unit;
  return {uint32_t(uint64_t(units) * block / n_blocks) * unit,
          uint32_t(uint64_t(units) * (block + 1) / n_blocks) * unit};
}
template <int kRows>
__host__ __device__ __forceinline__ uint32_t tiles_of_pass(const EndingArgs& e, uint32_t k_tiles) {
  const uint32_t chunk = k_tiles < uint32_t(kChunkTiles) ? k_tiles : uint32_t(kChunkTiles), unit = tiles_of_unit(e);
  return kPassTiles<kRows> / chunk / unit * unit;
}

/// Shared memory of a block, in floats, for one that owns up to n_row_tiles.
template <int kRows>
struct ProductShared {
  uint32_t partials, squares, totals;
  __host__ __device__ ProductShared(const EndingArgs& e, uint32_t n_row_tiles, uint32_t k_tiles) {
    const uint32_t chunk = k_tiles < uint32_t(kChunkTiles) ? k_tiles : uint32_t(kChunkTiles);
    const uint32_t most = tiles_of_pass<kRows>(e, k_tiles), pass = n_row_tiles < most ? n_row_tiles : most;
    partials = pass * chunk * kTileOutputs<kRows>;
    squares = (k_tiles * kRows + 3) / 4 * 4;
    totals = k_tiles > uint32_t(kChunkTiles) ? pass * kTileOutputs<kRows> : 0;
  }
  __host__ __device__ size_t bytes() const { return (size_t(partials) + squares + totals) * sizeof(float); }
};

// Elements k..k+3 and k+16..k+19; zero beyond cols. kOfStep: made by the step, to be read from L2.
template <bool kOfStep>
__device__ __forceinline__ void load_low_and_high(const float* x, uint32_t k, uint32_t cols, bool aligned,
                                                  float (&v)[8]) {
#pragma unroll
  for (int half = 0; half < 2; ++half, k += 16) {
    if (aligned && k + 4 <= cols) {
      const auto* from = reinterpret_cast<const float4*>(x + k);
      const float4 four = kOfStep ? __ldcg(from) : *from;
      v[4 * half] = four.x, v[4 * half + 1] = four.y, v[4 * half + 2] = four.z, v[4 * half + 3] = four.w;
    } else {
#pragma unroll
      for (uint32_t e = 0; e < 4; ++e) v[4 * half + e] = k + e < cols ? (kOfStep ? __ldcg(x + k + e) : x[k + e]) : 0.0f;
    }
  }
}

/// A row of activations, and what it is normed with.
struct InputRow {
  const float* x;  // null past the last row
  uint32_t cols;
  bool aligned;  // to float4
};
__device__ __forceinline__ bool is_aligned(const Rows& rows) {
  return reinterpret_cast<uintptr_t>(rows.data) % sizeof(float4) == 0 && rows.stride % 4 == 0;
}

/// The lane's activations of k tile `k`, and the squares of all its columns by row.
template <Format F, int kRows>
__device__ __forceinline__ void load_activations(Activations<F, kRows>& x, const InputRow& row, uint32_t k,
                                                 const NormArgs& norm, float* squares, int lane) {
  constexpr int kBlocks = Activations<F, kRows>::kBlocks;
  const uint32_t first = k * kTileCols + (kRows == 1 ? lane / 8 * 64 : 0) + lane % 4 * 4;
  float v[kBlocks][8] = {};
  if (row.x != nullptr)
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) load_low_and_high<true>(row.x, first + 32 * i, row.cols, row.aligned, v[i]);
  if (squares != nullptr) {
    float pair[kBlocks / 2] = {};
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
      for (int e = 0; e < 8; ++e) pair[i / 2] = fmaf(v[i][e], v[i][e], pair[i / 2]);
    float sum = pair[0];
    if constexpr (kRows == 1) {
      sum += __shfl_xor_sync(~0u, sum, 8);
      sum += __shfl_xor_sync(~0u, sum, 16);
    } else {
      sum = (pair[0] + pair[1]) + (pair[2] + pair[3]);
    }
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if (kRows == 1 ? lane == 0 : lane % 8 == 0) squares[k * kRows + (kRows == 1 ? 0 : lane / 8)] = sum;
  }
  if (norm.weight != nullptr)
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      float w[8];
      load_low_and_high<false>(norm.weight, first + 32 * i, row.cols, true, w);
#pragma unroll
      for (int e = 0; e < 8; ++e) v[i][e] *= w[e];
    }
  x.make(v, lane);
}

/// The products of a pass, by the whole block: of n_row_tiles, and n_k k tiles from k0 on, into
/// partials[row tile][k tile][outputs]. Work: tile(row, k), where a tile lies, and input(k), the lane's row; wait()
/// comes between the first tile and the input. squares: [k][row].
template <Format F, int kRows, class Work>
__device__ __forceinline__ void multiply_pass(const Work& work, int n_row_tiles, int k0, int n_k, const NormArgs& norm,
                                              float* partials, float* squares) {
  constexpr int kWarps = kProductThreads<F, kRows> / 32;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int n = n_row_tiles * n_k, begin = n * warp / kWarps, end = n * (warp + 1) / kWarps;
  int k = begin / n_row_tiles, row = begin % n_row_tiles;
  Tile<F> tile;
  if (begin < end) load_tile<F>(tile, work.tile(row, k0 + k), lane);
  work.wait();
  for (int i = begin; i < end;) {
    Activations<F, kRows> x;
    load_activations<F, kRows>(x, work.input(k0 + k), work.column_tile(k0 + k), norm,
                               norm.present && row == 0 ? squares : nullptr, lane);
    int next_k = k, next_row;
    do {
      next_row = row + 1;
      if (next_row == n_row_tiles) next_row = 0, ++next_k;
      const uint8_t* next = ++i < end ? work.tile(next_row, k0 + next_k) : nullptr;
      multiply<F>(partials + (row * n_k + k) * kTileOutputs<kRows>, tile, x, lane);
      if (next != nullptr) load_tile<F>(tile, next, lane);
      row = next_row;
    } while (i < end && row != 0);
    k = next_k;
  }
}

/// Sum of output `o` of a row tile over n_k k tiles, onto `sum`.
template <int kRows>
__device__ __forceinline__ float add_partials(float sum, const float* partials, int n_k, int o) {
#pragma unroll 8
  for (int k = 0; k < n_k; ++k) sum += partials[k * kTileOutputs<kRows> + o];
  return sum;
}

/// What products of a row are multiplied by; squares: [k][row].
template <int kRows>
__device__ __forceinline__ float norm_factor(const NormArgs& norm, const float* squares, int k_tiles, uint32_t cols,
                                             int row) {
  if (!norm.present) return 1;
  float sum = 0;
#pragma unroll 8
  for (int k = 0; k < k_tiles; ++k) sum += squares[k * kRows + row];
  return 1 / sqrtf(sum / float(cols) + norm.eps);
}

/// An output of a block's pass: where it goes and what its ending needs, found while products are on their way.
struct Output {
  float* out = nullptr;  // null: none
  float operand = 0, bias[2] = {};
};
/// Output r of part `p`. bias_slice: the expert whose biases are meant.
__device__ __forceinline__ Output find_output(const EndingArgs& e, const TilePlace& p, uint32_t r, uint32_t row,
                                              uint32_t dest, uint32_t bias_slice) {
  const EndingPlace place = place_of_row(e.kind, e, p.part, row, dest);
  Output out{place.out + r, place.operand != nullptr ? __ldcg(place.operand + r) : 0.0f};
  const size_t at = size_t(bias_slice) * e.rows[p.part] + r;
  if (e.bias[p.part] != nullptr) out.bias[0] = e.bias[p.part][at];
  if (e.kind == EndingKind::kGate && e.bias[1] != nullptr) out.bias[1] = e.bias[1][at];
  return out;
}

/// What a block does with row tiles [tiles.begin, tiles.end): passes, chunks of k, and the outputs of a pass. Work, as
/// of multiply_pass(): find(i) gives output i of the pass that begins with row tile first_tile; total(sum, partials,
/// n_k, o, output of a part of one row), its products in the order of k.
template <Format F, int kRows, class Work>
__device__ __forceinline__ void multiply_block(Work& work, const EndingArgs& e, const BlockTiles& tiles,
                                               uint32_t k_tiles, uint32_t cols, const NormArgs& norm, float* shared) {
  constexpr int kThreads = kProductThreads<F, kRows>, kOutputs = kTileOutputs<kRows>;
  const ProductShared<kRows> sizes(e, tiles.end - tiles.begin, k_tiles);
  float *partials = shared, *squares = partials + sizes.partials, *totals = squares + sizes.squares;
  const uint32_t pass_tiles = tiles_of_pass<kRows>(e, k_tiles);
  const int n_chunks = int((k_tiles + kChunkTiles - 1) / kChunkTiles), step = int(tiles_of_unit(e));
  int chunk = 0;
  uint32_t pass = tiles.begin;
  Output mine;
  if (pass >= tiles.end) return work.wait();
#pragma unroll 1
  while (true) {
    const int n_row_tiles = int(min(tiles.end - pass, pass_tiles)), n_outputs = n_row_tiles / step * kOutputs;
    const int k0 = int(k_tiles) * chunk / n_chunks, n_k = int(k_tiles) * (chunk + 1) / n_chunks - k0;
    work.first_tile = pass;
    multiply_pass<F, kRows>(work, n_row_tiles, k0, n_k, norm, partials, squares);
    if (chunk == 0 && int(threadIdx.x) < n_outputs) mine = work.find(int(threadIdx.x));
    __syncthreads();
    for (int i = threadIdx.x; i < n_outputs; i += kThreads) {
      const int row_tile = i / kOutputs * step, o = i % kOutputs;
      float y[2];
#pragma unroll 1
      for (int j = 0; j < step; ++j) {
        const int at = (row_tile + j) * kOutputs + o;
        const float sum = work.total(chunk == 0 ? 0.0f : totals[at], partials + (row_tile + j) * n_k * kOutputs, n_k, o,
                                     (pass + uint32_t(row_tile)) * kTileRows + uint32_t(o));
        if (chunk + 1 < n_chunks) totals[at] = sum;
        y[0] = j == 0 ? sum : y[0];
        y[1] = sum;
      }
      if (chunk + 1 < n_chunks) continue;
      if (i != int(threadIdx.x)) mine = work.find(i);
      if (mine.out == nullptr) continue;
      const float factor = norm_factor<kRows>(norm, squares, int(k_tiles), cols, o % kRows);
      *mine.out =
          ended(e.kind, e.activation, e, y[0] * factor + mine.bias[0], y[1] * factor + mine.bias[1], mine.operand);
    }
    if (++chunk == n_chunks) chunk = 0, pass += pass_tiles;
    if (pass >= tiles.end) return;
    __syncthreads();
  }
}

}  // namespace honeycrisp::backend::cuda
