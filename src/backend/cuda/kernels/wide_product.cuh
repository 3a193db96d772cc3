// Products of wide steps (wide_args.h): y = W · norm(x) and its ending, for up to 64 generated rows, with the sums of
// the persistent kernel in their order (persistent_project.cuh).
//
// A block takes four k tiles, whose activations of all rows stay in shared memory, and the row tiles of its slice. A
// warp multiplies a row tile by these four for some rows at a time, with the sum of the four in registers, and leaves
// it in memory. When all groups of the slice have come so far, its blocks add up the sums of a share of its outputs
// each, group after group, and end them. Only for compute capability 9.0, as the persistent kernel.
#pragma once

#include "backend/cuda/kernels/persistent_project.cuh"
#include "backend/cuda/wide_args.h"

namespace honeycrisp::backend::cuda {

constexpr int kWideWarps = int(kWideThreads) / 32;
constexpr int kWideKnown = 36;  // words of what is known of a tile's blocks: four each, then room for other banks
constexpr int kWideFold = 4;    // rows that a warp ends together, so that their sums come in one round trip

/// A block's activations, of its k tiles and all rows.
struct WideMemory {
  uint32_t* x;   // [k tiles][rows][kLimbWords]
  float* known;  // [k tiles][rows][kWideKnown]: of each block {scale, sum, low sum, squares}

  static __host__ __device__ constexpr uint32_t bytes(uint32_t rows) {
    return kWideKTiles * rows * (kLimbWords + kWideKnown) * 4;
  }
  __device__ __forceinline__ WideMemory(uint8_t* memory, uint32_t rows)
      : x(reinterpret_cast<uint32_t*>(memory)), known(reinterpret_cast<float*>(x + kWideKTiles * rows * kLimbWords)) {}
};

struct WideTile {
  uint32_t part, row;
  bool exists;
};
/// Row tile i of a unit.
__device__ __forceinline__ WideTile tile_of_unit(const StepOp& op, uint32_t unit, uint32_t i) {
  uint32_t part = 0;
  if (op.ending == EndingKind::kGate) {
    part = i / 2;
  } else {
    while (unit >= wide_units(op, part)) unit -= wide_units(op, part++);
  }
  const uint32_t row = unit * kWideUnit + i % 2 * kTileRows;
  return {part, row, row < op.rows[part]};
}

// A warp's share of the input's fragments of n_k k tiles, of all rows, into shared memory; rows that do not exist are
// zeros. Of each row and k tile also the sum of squares.
__device__ __forceinline__ void stage_wide(const WideProductArgs& a, const WideMemory& m, uint32_t rows, uint32_t slice,
                                           uint32_t tile0, uint32_t n_k, int warp, int lane) {
  constexpr int kTogether = 4;
  const uint32_t n = n_k * rows, n_blocks = (a.op.cols + kFragmentBlock - 1) / kFragmentBlock;
  const uint32_t known_at = limb_words(a.op.cols);
#pragma unroll 1
  for (uint32_t first = warp; first < n; first += kWideWarps * kTogether) {
    uint4 limbs[kTogether];
    float known[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const uint32_t item = first + i * kWideWarps, k = item / rows, row = item % rows;
      limbs[i] = make_uint4(0, 0, 0, 0);
      known[i] = 0;
      if (item >= n || row >= a.n_rows) continue;
      const float* from = a.planes + size_t(row) * a.plane + a.op.fragments_in;
      const uint32_t block = (tile0 + k) * kBlocks + lane / kPiecesPerPair * 2;
      if (block < n_blocks) {
        limbs[i] = __ldcg(reinterpret_cast<const uint4*>(from + (tile0 + k) * kLimbWords) + lane);
        const uint32_t bias = lane / 4 % 2 == 0 ? kHighBias : 0, second = block + 1 < n_blocks ? bias : 0;
        limbs[i] = {limbs[i].x ^ bias, limbs[i].y ^ bias, limbs[i].z ^ second, limbs[i].w ^ second};
        if (block + 1 >= n_blocks) limbs[i].z = limbs[i].w = 0;
      }
      if ((tile0 + k) * kBlocks + lane / 4 < n_blocks) known[i] = __ldcg(from + known_at + (tile0 + k) * 32 + lane);
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const uint32_t item = first + i * kWideWarps;
      if (item >= n) break;
      reinterpret_cast<uint4*>(m.x + size_t(item) * kLimbWords)[lane] = limbs[i];
      m.known[size_t(item) * kWideKnown + lane] = known[i];
      if (!a.op.norm.present) continue;
      const float squares = warp_sum(lane % 4 == 3 ? known[i] : 0);
      if (lane == 0 && item % rows < a.n_rows)
        a.squares[(size_t(slice) * kWideRows + item % rows) * a.k_tiles + tile0 + item / rows] = squares;
    }
  }
}

// The sum of n_k products of a row tile and 4 kN rows of activations, from row `row0` on, into `to`: [4 kN][16].
template <Format F, int kN>
__device__ __forceinline__ void multiply_group(const WideMemory& m, uint32_t rows, uint32_t row0, const uint8_t* tiles,
                                               uint32_t n_k, float* to, int lane) {
  const int g = lane >> 2, t = lane & 3;
  float left[kN][2], sum[kN][2];
  Tile<F> next;
  load_tile<F>(next, tiles, lane);
#pragma unroll 1
  for (uint32_t k = 0; k < n_k; ++k) {
    const Tile<F> tile = next;
    if (k + 1 < n_k) load_tile<F>(next, tiles + (k + 1) * tile_bytes(F), lane);
    const float* known = m.known + size_t(k * rows + row0 + t) * kWideKnown;
    const auto known_of = [&](int n, int pair) {
      const float* of = known + n * kRowsOfMma * kWideKnown + 8 * pair;
      if constexpr (LaneScales<F>::kEach == 2) {
        const float2 first = *reinterpret_cast<const float2*>(of), last = *reinterpret_cast<const float2*>(of + 4);
        return KnownOfPair{{first.x, last.x}, {first.y, last.y}, {}};
      } else {
        const float4 first = *reinterpret_cast<const float4*>(of), last = *reinterpret_cast<const float4*>(of + 4);
        return KnownOfPair{{first.x, last.x}, {first.y, last.y}, {first.z, last.z}};
      }
    };
    float product[kN][2];
    product_of_rows<F, kN>(product, tile, limbs_of_lane(m.x + size_t(k * rows + row0) * kLimbWords, lane), known_of,
                           lane);
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        if (k == 2) left[n][row] = sum[n][row];
        sum[n][row] = k % 2 == 0 ? product[n][row] : sum[n][row] + product[n][row];
      }
  }
  // (0 + 1) + (2 + 3), where those that do not exist are zeros.
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float v = n_k % 2 != 0 ? sum[n][row] + 0.0f : sum[n][row];
      v = n_k > 2 ? left[n][row] + v : v + 0.0f;
      __stcg(to + (t + kRowsOfMma * n) * int(kTileRows) + g + 8 * row, v);
    }
}

// Where a group's sums of a row tile of the launch lie: [rows][kTileRows].
__device__ __forceinline__ float* sums_of_tile(const WideProductArgs& a, uint32_t rows, uint32_t group, uint32_t tile) {
  return a.partials + (size_t(group) * a.n_row_tiles + tile) * rows * kTileRows;
}

// By thread 0: the block has multiplied, and the slice's others have.
__device__ __forceinline__ void meet_slice(const WideProductArgs& a, uint32_t slice) {
  Watchdog dog;
  dog.begin(a.failed, a.patience_ns);
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(a.arrived + slice) : "memory");
  await_count(a.arrived + slice, a.n_groups, dog);
}

// Ends the outputs of a unit in rows [row0, row0 + kWideFold), of which a warp has a block of 32 each.
__device__ __forceinline__ void end_unit(const WideProductArgs& a, uint32_t rows, uint32_t unit, uint32_t tile,
                                         uint32_t row0, const float* scales, int lane) {
  const StepOp& op = a.op;
  const Ending ending(op);
  const bool gate = ending.kind == EndingKind::kGate;
  const int r16 = lane % int(kTileRows);
  const WideTile place = tile_of_unit(op, unit, lane / kTileRows);
  const uint32_t r = place.row + r16, first = place.row - lane / kTileRows * kTileRows;
  const bool exists = r < op.rows[place.part];
  float y[kWideFold][2] = {}, add[kWideFold] = {};
  if (ending.add != kNoPlace && exists)
#pragma unroll
    for (int i = 0; i < kWideFold; ++i)
      if (row0 + i < a.n_rows) add[i] = __ldcg(a.planes + size_t(row0 + i) * a.plane + ending.add + r);
  const float weight = op.fragments_norm != nullptr && exists ? __ldg(op.fragments_norm + r) : 1.0f;
  const float* sums = sums_of_tile(a, rows, 0, tile + lane / kTileRows) + row0 * kTileRows + r16;
  const size_t stride = size_t(a.n_row_tiles) * rows * kTileRows;
#pragma unroll 4
  for (uint32_t group = 0; group < a.n_groups; ++group, sums += stride)
#pragma unroll
    for (int i = 0; i < kWideFold; ++i) {
      y[i][0] += __ldcg(sums + i * kTileRows);
      if (gate) y[i][1] += __ldcg(sums + 2 * rows * kTileRows + i * kTileRows);
    }
  const float *bias = op.bias[place.part], *other_bias = op.bias[1];
#pragma unroll
  for (int i = 0; i < kWideFold; ++i) {
    const uint32_t row = row0 + i;
    if (row >= a.n_rows) break;
    float* plane = a.planes + size_t(row) * a.plane;
    float value = 0;
    if (exists) {
      float y0 = y[i][0] * scales[row], y1 = y[i][1] * scales[row];
      if (bias != nullptr) y0 += __ldg(bias + r);
      if (other_bias != nullptr && gate) y1 += __ldg(other_bias + r);
      value = ending.of(y0, y1, add[i]);
      if (ending.kind == EndingKind::kLogits) {
        if (a.dest[row] != kNoLogits) a.logits[size_t(a.dest[row]) * ending.rows0 + r] = value;
      } else if (ending.floats_out) {
        publish(plane + op.out[place.part] + r, value);
      }
    }
    if (ending.fragments_out != kNoPlace)
      publish_block(plane + ending.fragments_out, ending.rows0, first + lane, value, weight, exists);
  }
}

template <FormatSet kSet, int kN>
__global__ void __launch_bounds__(kWideThreads, 1) wide_product(const __grid_constant__ WideProductArgs a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(128) uint8_t dynamic[];
  __shared__ float scales[kWideRows];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t rows = wide_padded_rows(a.n_rows), slice = blockIdx.x % a.n_slices, group = blockIdx.x / a.n_slices;
  const uint32_t tile0 = group * kWideKTiles, n_k = min(kWideKTiles, a.k_tiles - tile0);
  const uint32_t first = a.slice_units[slice], n_units = a.slice_units[slice + 1] - first;
  const uint32_t unit_tiles = wide_unit_tiles(a.op), n_chunks = rows / (kN * kRowsOfMma);
  const uint32_t launch_first = a.slice_units[0];
  const auto from = [&](const WideTile& tile) {
    return a.tiles[tile.part] + (size_t(tile.row / kTileRows) * a.k_tiles + tile0) * a.tile_bytes[tile.part];
  };
  // What a warp multiplies first, on its way while the previous kernel ends.
  const auto bring_ahead = [&](uint32_t item) {
    if (item >= n_units * unit_tiles * n_chunks || lane != 0) return;
    const WideTile tile = tile_of_unit(a.op, first + item / n_chunks / unit_tiles, item / n_chunks % unit_tiles);
    if (tile.exists)
      asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from(tile)), "r"(n_k * a.tile_bytes[tile.part])
                   : "memory");
  };
  let_next_begin();
  bring_ahead(warp);
  wait_for_previous();
  if (n_units == 0) return;
  const WideMemory m(dynamic, rows);
  stage_wide(a, m, rows, slice, tile0, n_k, warp, lane);
  __syncthreads();
#pragma unroll 1
  for (uint32_t item = warp; item < n_units * unit_tiles * n_chunks; item += kWideWarps) {
    const uint32_t chunk = item % n_chunks, t = item / n_chunks;
    bring_ahead(item + kWideWarps);
    const WideTile tile = tile_of_unit(a.op, first + t / unit_tiles, t % unit_tiles);
    if (!tile.exists) continue;
    float* to =
        sums_of_tile(a, rows, group, (first - launch_first) * unit_tiles + t) + chunk * (kN * kRowsOfMma * kTileRows);
    switch (a.formats[tile.part]) {
#define HC_X(e)                                                                                   \
  case Format::e:                                                                                 \
    if constexpr (has_format(kSet, Format::e))                                                    \
      multiply_group<Format::e, kN>(m, rows, chunk * kN * kRowsOfMma, from(tile), n_k, to, lane); \
    break;
      HC_CUDA_PACKED(HC_X)
#undef HC_X
      default: break;
    }
  }
  __syncthreads();
  if (a.n_groups > 1 && threadIdx.x == 0) meet_slice(a, slice);
  __syncthreads();
#pragma unroll 1
  for (uint32_t row = warp; row < a.n_rows; row += kWideWarps) {
    float squares = 0;
    if (a.op.norm.present)
      for (uint32_t tile = lane; tile < a.k_tiles; tile += 32)
        squares += __ldcg(a.squares + (size_t(slice) * kWideRows + row) * a.k_tiles + tile);
    squares = warp_sum(squares);
    if (lane == 0) scales[row] = a.op.norm.present ? rsqrtf(fmaf(squares, a.op.per_column, a.op.norm.eps)) : 1.0f;
  }
  __syncthreads();
  const uint32_t n_folds = (a.n_rows + kWideFold - 1) / kWideFold;
  const uint32_t mine = (n_units + a.n_groups - 1 - group) / a.n_groups;  // units group, group + n_groups, …
#pragma unroll 1
  for (uint32_t item = warp; item < mine * n_folds; item += kWideWarps) {
    const uint32_t unit = group + item / n_folds * a.n_groups;
    end_unit(a, rows, first + unit, (first - launch_first + unit) * unit_tiles, item % n_folds * kWideFold, scales,
             lane);
  }
#endif
}

template <FormatSet kSet, int kN>
int allow_wide() {
  return cudaFuncSetAttribute(wide_product<kSet, kN>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              int(WideMemory::bytes(kN == 4 ? kWideRows : kN * kRowsOfMma)));
}
template <FormatSet kSet>
int prepare_wide_product() {
  int status = allow_wide<kSet, 1>();
  if (status == cudaSuccess) status = allow_wide<kSet, 2>();
  return status != cudaSuccess ? status : allow_wide<kSet, 4>();
}
template <FormatSet kSet>
int launch_wide_product(const WideProductArgs& a, Stream stream) {
  const uint32_t rows = wide_padded_rows(a.n_rows);
  const auto with = [&](auto* kernel) {
    return launch(kernel, a.n_groups * a.n_slices, kWideThreads, WideMemory::bytes(rows), stream, a);
  };
  return rows == 4   ? with(wide_product<kSet, 1>)
         : rows == 8 ? with(wide_product<kSet, 2>)
                     : with(wide_product<kSet, 4>);
}

}  // namespace honeycrisp::backend::cuda
