// Products of wide steps (wide_args.h): W · norm(x) for up to 64 generated rows, with the sums of the persistent kernel
// in their order (persistent_project.cuh). What ends them is a kernel of its own (wide_finish.cu).
//
// A block takes four k tiles, whose activations of all rows stay in shared memory, and the row tiles of its slice. A
// warp multiplies a row tile by these four for all rows, or for a part of them where there are fewer row tiles than
// warps: it unpacks a tile once, for two octets of rows at a time, with the sums in shared memory, so that the loop is
// short and stays in the instruction cache. The sums of four k tiles go to memory.
// Only for compute capability 9.0, as the persistent kernel.
#pragma once

#include "backend/cuda/kernels/persistent_stage.cuh"
#include "backend/cuda/kernels/wide_sums.cuh"

namespace honeycrisp::backend::cuda {

constexpr int kWideWarps = int(kWideThreads) / 32;

/// A block's activations, of its k tiles and all rows, and the sums of what its warps multiply.
struct WideMemory {
  uint32_t* x;         // [k tiles][rows][kHalfWords]
  KnownOfTile* known;  // [k tiles][rows]
  float4* sums;        // [warps][octets of rows][lanes]

  static __host__ __device__ constexpr uint32_t bytes(uint32_t rows) {
    return kWideKTiles * rows * (kHalfWords * 4 + sizeof(KnownOfTile)) +
           kWideWarps * (rows / kRowsOfMma) * 32 * sizeof(float4);
  }
  __device__ __forceinline__ WideMemory(uint8_t* memory, uint32_t rows)
      : x(reinterpret_cast<uint32_t*>(memory)),
        known(reinterpret_cast<KnownOfTile*>(x + kWideKTiles * rows * kHalfWords)),
        sums(reinterpret_cast<float4*>(known + kWideKTiles * rows)) {}
};

// A warp's share of the input's fragments of n_k k tiles, of all rows, into shared memory; rows that do not exist are
// zeros. The slices share out the rows whose sums of squares they leave.
__device__ __forceinline__ void stage_wide(const WideProductArgs& a, const WideMemory& m, uint32_t rows, uint32_t slice,
                                           uint32_t tile0, uint32_t n_k, int warp, int lane) {
  constexpr uint32_t kTogether = 2;
  const uint32_t n_blocks = (a.op.cols + kFragmentBlock - 1) / kFragmentBlock;
  const float* from = a.planes + a.op.fragments_in + tile0 * kHalfWords + lane * 4;
  const int known_at = int(value_words(a.op.cols)) + int(tile0) * (32 - kHalfWords) - lane * 3;
#pragma unroll 1
  for (uint32_t first = warp; first < rows; first += kWideWarps * kTogether) {
    uint4 words[kTogether][kWideKTiles];
    float known[kTogether][kWideKTiles];
#pragma unroll
    for (uint32_t i = 0; i < kTogether; ++i) {
      const uint32_t row = first + i * kWideWarps;
      const float* of_row = from + size_t(row) * a.plane;
#pragma unroll
      for (uint32_t k = 0; k < kWideKTiles; ++k) {
        words[i][k] = make_uint4(0, 0, 0, 0);
        known[i][k] = 0;
        if (row >= a.n_rows || (tile0 + k) * kBlocks + lane / 4 >= n_blocks) continue;
        words[i][k] = __ldcg(reinterpret_cast<const uint4*>(of_row + k * kHalfWords));
        known[i][k] = __ldcg(of_row + known_at + int(k) * 32);
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < kTogether; ++i) {
      const uint32_t row = first + i * kWideWarps;
      if (row >= rows) break;
#pragma unroll
      for (uint32_t k = 0; k < kWideKTiles; ++k) {
        if (k >= n_k) break;
        const Relative relative(known[i][k], lane, true);
        leave_halves(m.x + (k * rows + row) * kHalfWords, int(row), words[i][k], relative.factor, lane);
        leave_known(m.known[k * rows + row], relative, lane);
        if (!a.op.norm.present || row % a.n_slices != slice || row >= a.n_rows) continue;
        const float squares = warp_sum(lane % 4 == 3 ? known[i][k] : 0);
        if (lane == 0) a.squares[row * a.k_tiles + tile0 + k] = squares;
      }
    }
  }
}

// The sums of n_k products of a row tile and `octets` octets of rows of activations, an even number, from row `row0`
// on, into `to`: [rows][16].
template <Format F>
__device__ __forceinline__ void multiply_group(const WideMemory& m, uint32_t rows, uint32_t row0, uint32_t octets,
                                               const uint8_t* tiles, uint32_t n_k, float* to, int warp, int lane) {
  constexpr uint32_t kTogether = 2;
  const int g = lane >> 2, t = lane & 3;
  float4* sums = m.sums + warp * (rows / kRowsOfMma) * 32 + lane;
  Tile<F> next;
  load_tile<F>(next, tiles, lane);
#pragma unroll 1
  for (uint32_t k = 0; k < n_k; ++k) {
    const Tile<F> tile = next;
    if (k + 1 < n_k) load_tile<F>(next, tiles + (k + 1) * tile_bytes(F), lane);
    const HalfScales<F> scales(tile);
    HalfPair<F> pairs[4] = {
        {tile, scales, 0, lane}, {tile, scales, 1, lane}, {tile, scales, 2, lane}, {tile, scales, 3, lane}};
#pragma unroll
    for (HalfPair<F>& pair : pairs) pair.hold();
#pragma unroll 1
    for (uint32_t i = 0; i < octets; i += kTogether) {
      const uint32_t at = k * rows + row0 + i * kRowsOfMma;
      float product[kTogether][4];
#pragma unroll
      for (uint32_t j = 0; j < kTogether; ++j) {
        const HalfRows of_mma(m.x + (at + j * kRowsOfMma) * kHalfWords, m.known + at + j * kRowsOfMma, kRowsOfMma,
                              lane);
        multiply_tile<F>(product[j], [&](int pair) -> const HalfPair<F>& { return pairs[pair]; }, scales, of_mma);
      }
#pragma unroll
      for (uint32_t j = 0; j < kTogether; ++j) {
        float4 sum = {0, 0, 0, 0};
        if (k != 0) sum = sums[(i + j) * 32];
        sum = {sum.x + product[j][0], sum.y + product[j][1], sum.z + product[j][2], sum.w + product[j][3]};
        if (k + 1 != n_k) {
          sums[(i + j) * 32] = sum;
          continue;
        }
        float* out = to + ((i + j) * kRowsOfMma + 2 * t) * kTileRows + g;
        __stcg(out, sum.x), __stcg(out + kTileRows, sum.y), __stcg(out + 8, sum.z), __stcg(out + kTileRows + 8, sum.w);
      }
    }
  }
}

// Into how many parts a warp's rows are cut, so that the warps have as little to do as may be; unpacking a tile costs
// about as much as multiplying it by two octets of rows.
__device__ __forceinline__ uint32_t parts_of_rows(uint32_t pairs, uint32_t tiles) {
  uint32_t best = 1, least = ~0u;
#pragma unroll
  for (uint32_t parts = 1; parts <= 4; parts *= 2) {
    const uint32_t rounds = (tiles * parts + kWideWarps - 1) / kWideWarps;
    const uint32_t cost = rounds * ((pairs + parts - 1) / parts + 1);
    if (cost < least) least = cost, best = parts;
  }
  return best;
}

template <FormatSet kSet>
__global__ void __launch_bounds__(kWideThreads, 1) wide_product(const __grid_constant__ WideProductArgs a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(128) uint8_t dynamic[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t rows = wide_padded_rows(a.n_rows), slice = blockIdx.x % a.n_slices, group = blockIdx.x / a.n_slices;
  const uint32_t tile0 = group * kWideKTiles, n_k = min(kWideKTiles, a.k_tiles - tile0);
  const uint32_t first = a.slice_units[slice], unit_tiles = wide_unit_tiles(a.op);
  const uint32_t n_tiles = (a.slice_units[slice + 1] - first) * unit_tiles, pairs = rows / (2 * kRowsOfMma);
  const uint32_t n_parts = parts_of_rows(pairs, n_tiles), part_pairs = (pairs + n_parts - 1) / n_parts;
  const auto from = [&](const WideTile& tile) {
    return a.tiles[tile.part] + (size_t(tile.row / kTileRows) * a.k_tiles + tile0) * a.tile_bytes[tile.part];
  };
  // What a warp multiplies first, on its way while the previous kernel ends.
  const auto bring_ahead = [&](uint32_t item) {
    if (item >= n_tiles * n_parts || lane != 0) return;
    const WideTile tile = tile_of_unit(a.op, first + item / n_parts / unit_tiles, item / n_parts % unit_tiles);
    if (tile.exists)
      asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from(tile)), "r"(n_k * a.tile_bytes[tile.part])
                   : "memory");
  };
  let_next_begin();
  bring_ahead(warp);
  wait_for_previous();
  const WideMemory m(dynamic, rows);
  stage_wide(a, m, rows, slice, tile0, n_k, warp, lane);
  __syncthreads();
#pragma unroll 1
  for (uint32_t item = warp; item < n_tiles * n_parts; item += kWideWarps) {
    const uint32_t pair = item % n_parts * part_pairs, t = item / n_parts;
    bring_ahead(item + kWideWarps);
    const WideTile tile = tile_of_unit(a.op, first + t / unit_tiles, t % unit_tiles);
    if (!tile.exists || pair >= pairs) continue;
    const uint32_t row0 = pair * 2 * kRowsOfMma, octets = 2 * min(part_pairs, pairs - pair);
    float* to = sums_of_tile(a, rows, group, (first - a.first_unit) * unit_tiles + t) + row0 * kTileRows;
    switch (a.formats[tile.part]) {
#define HC_X(e)                                                                          \
  case Format::e:                                                                        \
    if constexpr (has_format(kSet, Format::e))                                           \
      multiply_group<Format::e>(m, rows, row0, octets, from(tile), n_k, to, warp, lane); \
    break;
      HC_CUDA_PACKED(HC_X)
#undef HC_X
      default: break;
    }
  }
#endif
}

template <FormatSet kSet>
int prepare_wide_product() {
  return cudaFuncSetAttribute(wide_product<kSet>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              int(WideMemory::bytes(kWideRows)));
}
template <FormatSet kSet>
int launch_wide_product(const WideProductArgs& a, Stream stream) {
  return launch(wide_product<kSet>, a.n_groups * a.n_slices, kWideThreads,
                WideMemory::bytes(wide_padded_rows(a.n_rows)), stream, a);
}

}  // namespace honeycrisp::backend::cuda
