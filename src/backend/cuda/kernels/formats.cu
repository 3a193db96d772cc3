// Reading weights of every format: rows of an embedding table, rows as operands of the matrix products (split in two
// bf16, or half tiles and their exponents), plain matrix-vector products in f32, and the repacking of a file's rows
// into tiles.
#include "backend/cuda/kernels/halves.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/packing.cuh"
#include "backend/cuda/kernels/tile_format.cuh"
#include "quant/tables.h"

#include <cuda_bf16.h>

namespace honeycrisp::backend::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

template <Format F, bool kPacked>
__device__ __forceinline__ void read_octet(const DeviceMatrix& m, uint32_t row, uint32_t o, float (&v)[8]) {
  if constexpr (kPacked)
    packed_octet<F>(m.data, m.first_row + row, o, m.cols, v);
  else
    row_octet<F>(m.data + size_t(m.first_row + row) * m.row_bytes, o, m.cols, v);
}

struct UnpackArgs {
  DeviceMatrix matrix;
  const int32_t* tokens;  // which rows; absent: all of them
  uint32_t n_rows;
  uint32_t n_octets;  // to write per row
  Rows out;           // f32, or
  uint16_t *high, *low;
  float scale;
};

// A thread per octet; blockIdx.y strides over rows.
template <Format F, bool kPacked>
__global__ void __launch_bounds__(kThreads) unpack(UnpackArgs a) {
  wait_for_previous();
  const uint32_t o = blockIdx.x * kThreads + threadIdx.x;
  if (o >= a.n_octets) return;
  for (uint32_t i = blockIdx.y; i < a.n_rows; i += gridDim.y) {
    float v[8] = {};
    if (8 * o < a.matrix.cols) read_octet<F, kPacked>(a.matrix, a.tokens ? uint32_t(a.tokens[i]) : i, o, v);
    if (a.out.data != nullptr) {
      float* out = a.out.data + size_t(i) * a.out.stride + 8 * o;
      for (uint32_t k = 0; k < 8 && 8 * o + k < a.matrix.cols; ++k) out[k] = v[k] * a.scale;
      continue;
    }
    alignas(16) uint16_t high[8], low[8];
    for (int k = 0; k < 8; ++k) {
      const __nv_bfloat16 h = __float2bfloat16_rn(v[k]);
      high[k] = __bfloat16_as_ushort(h);
      low[k] = __bfloat16_as_ushort(__float2bfloat16_rn(v[k] - __bfloat162float(h)));
    }
    const size_t at = size_t(i) * a.n_octets + o;
    reinterpret_cast<uint4*>(a.high)[at] = *reinterpret_cast<const uint4*>(high);
    reinterpret_cast<uint4*>(a.low)[at] = *reinterpret_cast<const uint4*>(low);
  }
}

// A warp per row of the weight; its lanes take octets 32 apart, and up to kMatVecRows rows of x share what they read.
template <Format F, bool kPacked>
__global__ void __launch_bounds__(kThreads) plain_mat_vec(DeviceMatrix m, const float* x, uint32_t n, Rows products) {
  wait_for_previous();
  const uint32_t row = blockIdx.x * (kThreads / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t first = blockIdx.y * kMatVecRows;
  if (row >= m.rows) return;
  float sums[kMatVecRows] = {};
  for (uint32_t o = lane; 8 * o < m.cols; o += 32) {
    float v[8];
    read_octet<F, kPacked>(m, row, o, v);
#pragma unroll
    for (uint32_t i = 0; i < kMatVecRows; ++i) {
      if (first + i >= n) break;
      const float* xi = x + size_t(first + i) * m.cols + 8 * o;
#pragma unroll
      for (uint32_t k = 0; k < 8; ++k)
        if (8 * o + k < m.cols) sums[i] = fmaf(v[k], xi[k], sums[i]);
    }
  }
#pragma unroll
  for (uint32_t i = 0; i < kMatVecRows; ++i) {
    const float sum = warp_sum(sums[i]);
    if (lane == 0 && first + i < n) products.data[size_t(first + i) * products.stride + row] = sum;
  }
}

// The same for pairs of a mixture: each has its own expert and reads its weights alone.
template <Format F>
__global__ void __launch_bounds__(kThreads)
    plain_expert_mat_vec(DeviceMatrix m, const float* x, Pairs pairs, Rows products) {
  wait_for_previous();
  const uint32_t row = blockIdx.x * (kThreads / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= m.rows) return;
  for (uint32_t pair = blockIdx.y; pair < pairs.n; pair += gridDim.y) {
    const float* xi = x + size_t(pairs.per_row != 0 ? pair / pairs.per_row : pair) * m.cols;
    const uint32_t expert_row = pairs.experts[pair] * m.slice_rows + row;
    float sum = 0;
    for (uint32_t o = lane; 8 * o < m.cols; o += 32) {
      float v[8];
      read_octet<F, false>(m, expert_row, o, v);
#pragma unroll
      for (uint32_t k = 0; k < 8; ++k)
        if (8 * o + k < m.cols) sum = fmaf(v[k], xi[8 * o + k], sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) products.data[size_t(pair) * products.stride + row] = sum;
  }
}

// ---- packing

// A thread per 16-bit word; blockIdx.y is the tile in its row of tiles, blockIdx.z the row of tiles.
template <Format F>
__global__ void __launch_bounds__(kThreads) pack(PackSource source, uint8_t* tiles, uint32_t row_tile) {
  const int at = int(blockIdx.x * kThreads + threadIdx.x);
  if (at >= int(tile_bytes(F) / 2)) return;
  const size_t tile = size_t(row_tile + blockIdx.z) * gridDim.y + blockIdx.y;
  reinterpret_cast<uint16_t*>(tiles + tile * tile_bytes(F))[at] =
      packed_word<F>(source, blockIdx.z * kTileRows, blockIdx.y * kTileCols, at);
}

// ---- the product in halves: exponents of rows, and half tiles

// The largest term that halves.cuh makes of block `blk` (32 columns) of a row of a tile, from its scales alone.
template <Format F>
__device__ __forceinline__ float largest_term(const uint8_t* tile, uint32_t row, uint32_t blk) {
  const auto* w16 = reinterpret_cast<const uint16_t*>(tile);
  const uint32_t g = row & 7, r8 = row >> 3;
  if constexpr (F == Format::kQ4_0) {
    return 8 * fabsf(f16(w16[1024 + g * 16 + r8 * 8 + blk]));
  } else if constexpr (F == Format::kQ8_0) {
    return 128 * fabsf(f16(w16[2048 + g * 16 + r8 * 8 + blk]));
  } else if constexpr (F == Format::kQ4_K) {
    const uint32_t l = g * 4 + (blk >> 1);
    const uint64_t all = reinterpret_cast<const uint32_t*>(tile)[512 + l] | uint64_t(w16[1088 + l]) << 32;
    const uint32_t fields = uint32_t(all >> (24 * r8)) >> (12 * (blk & 1));
    const float scale = f16(w16[1120 + row * 2]) * float(fields & 63);
    const float min = f16(w16[1121 + row * 2]) * float(fields >> 6 & 63);
    return fmaxf(8 * fabsf(scale), fabsf(min - 8 * scale));
  } else {
    const auto* scales = reinterpret_cast<const int8_t*>(tile + 3072 + (g * 4 + (blk >> 1)) * 8 + r8 * 4 + blk % 2 * 2);
    return 32 * fabsf(f16(w16[1664 + row])) * float(max(abs(int(scales[0])), abs(int(scales[1]))));
  }
}

// A warp per row, up to whole row tiles.
template <Format F, bool kPacked>
__global__ void __launch_bounds__(kThreads) row_exponents(DeviceMatrix m, int8_t* exponents) {
  const uint32_t row = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= (m.rows + kTileRows - 1) / kTileRows * kTileRows) return;
  float largest = 0;
  if (row < m.rows) {
    if constexpr (kPacked && is_unpacked_in_registers(F)) {
      const uint32_t k_tiles = (m.cols + kTileCols - 1) / kTileCols;
      const uint8_t* tiles = m.data + size_t(row / kTileRows) * k_tiles * tile_bytes(F);
      for (uint32_t i = lane; i < k_tiles * 8; i += 32)
        largest = fmaxf(largest, largest_term<F>(tiles + size_t(i / 8) * tile_bytes(F), row % kTileRows, i % 8));
    } else {
      for (uint32_t o = lane; 8 * o < m.cols; o += 32) {
        float v[8];
        read_octet<F, kPacked>(m, row, o, v);
        for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(v[i]));
      }
    }
  }
  largest = warp_max(largest);
  if (lane == 0) exponents[row] = int8_t(exponent_for(largest, -kLargestRowExponent, kLargestRowExponent));
}

// Block (tile of columns, tile of rows, expert): a thread makes eight columns of the rows g and g + 8.
template <Format F>
__global__ void __launch_bounds__(kThreads)
    make_half_tiles(DeviceMatrix m, const int8_t* exponents, uint32_t parts, uint8_t* tiles, int8_t* tile_exponents) {
  wait_for_previous();
  const uint32_t o = threadIdx.x % 32, g = threadIdx.x / 32, slice = blockIdx.z;
  m.first_row += slice * m.slice_rows;
  exponents += size_t(slice) * m.slice_rows;
  tiles += size_t(slice) * gridDim.y * gridDim.x * parts * tile_bytes(kHalfTiles);
  tile_exponents += size_t(slice) * gridDim.y * kTileRows;
  uint32_t words[2][2][2][2];  // [high, low][lane t][elements 0 1, elements 2 3][row]
#pragma unroll
  for (uint32_t r8 = 0; r8 < 2; ++r8) {
    float v[8] = {};
    const uint32_t row = blockIdx.y * kTileRows + g + 8 * r8;
    const uint32_t octet = blockIdx.x * 32 + o;
    if (row < m.rows && 8 * octet < m.cols) read_octet<F, false>(m, row, octet, v);
    const int exponent = row < m.rows ? exponents[row] : 0;
    const float factor = power_of_two(exponent);
    if (blockIdx.x == 0 && o == 0) tile_exponents[row] = int8_t(exponent);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float v0 = v[2 * i] * factor, v1 = v[2 * i + 1] * factor;
      const uint32_t high = pack_halves(v0, v1);
      words[0][i / 2][i % 2][r8] = high;
      words[1][i / 2][i % 2][r8] = pack_halves(v0 - halves(high).x, v1 - halves(high).y);
    }
  }
#pragma unroll
  for (uint32_t part = 0; part < 2; ++part) {
    if (part == parts) break;
    const size_t tile = (size_t(blockIdx.y) * parts + part) * gridDim.x + blockIdx.x;
    auto* to = reinterpret_cast<uint4*>(tiles + tile * tile_bytes(kHalfTiles)) + o / 2 * 32 + g * 4 + o % 2 * 2;
#pragma unroll
    for (int t = 0; t < 2; ++t)
      to[t] = {words[part][t][0][0], words[part][t][0][1], words[part][t][1][0], words[part][t][1][1]};
  }
}

// The same of packed tiles; a warp makes a tile.
template <Format F>
__global__ void __launch_bounds__(kThreads)
    make_half_tiles_of_packed(DeviceMatrix m, const int8_t* exponents, uint32_t parts, uint32_t k_tiles, uint8_t* tiles,
                              int8_t* tile_exponents) {
  wait_for_previous();
  const uint32_t k = blockIdx.x * kWarps + threadIdx.x / 32, slice = blockIdx.z;
  if (k >= k_tiles) return;
  const int lane = int(threadIdx.x % 32);
  m.first_row += slice * m.slice_rows;
  exponents += size_t(slice) * m.slice_rows;
  tiles += (size_t(slice) * gridDim.y + blockIdx.y) * parts * k_tiles * tile_bytes(kHalfTiles);
  tile_exponents += (size_t(slice) * gridDim.y + blockIdx.y) * kTileRows;
  float factors[2];
  bool exists[2];
#pragma unroll
  for (int r8 = 0; r8 < 2; ++r8) {
    const uint32_t of_tile = lane / 4 + 8 * r8, row = blockIdx.y * kTileRows + of_tile;
    exists[r8] = row < m.rows;
    const int exponent = exists[r8] ? exponents[row] : 0;
    factors[r8] = power_of_two(exponent);
    if (k == 0 && lane % 4 == 0) tile_exponents[of_tile] = int8_t(exponent);
  }
  const size_t row_tile = m.first_row / kTileRows + blockIdx.y;
  Tile<F> r;
  load_tile<F>(r, m.data + (row_tile * k_tiles + k) * tile_bytes(F), lane);
  auto* high_part = reinterpret_cast<uint4*>(tiles + size_t(k) * tile_bytes(kHalfTiles)) + lane;
  auto* low_part = reinterpret_cast<uint4*>(tiles + (size_t(k_tiles) + k) * tile_bytes(kHalfTiles)) + lane;
  uint4 rounded, left;  // a fragment: elements 0 1 of both rows, then 2 3
  for_each_four<F>(r, lane, [&](int i, int high, int r8, const float(&v)[4]) {
    float x[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) x[e] = exists[r8] ? v[e] * factors[r8] : 0.0f;
    const uint32_t first = pack_halves(x[0], x[1]), last = pack_halves(x[2], x[3]);
    const uint32_t first_left = pack_halves(x[0] - halves(first).x, x[1] - halves(first).y);
    const uint32_t last_left = pack_halves(x[2] - halves(last).x, x[3] - halves(last).y);
    if (r8 == 0) {
      rounded.x = first, rounded.z = last, left.x = first_left, left.z = last_left;
      return;
    }
    rounded.y = first, rounded.w = last, left.y = first_left, left.w = last_left;
    high_part[(2 * i + high) * 32] = rounded;
    if (parts == 2) low_part[(2 * i + high) * 32] = left;
  });
}

int launch_unpack(const UnpackArgs& a, Stream stream) {
  const dim3 grid((a.n_octets + kThreads - 1) / kThreads, min(a.n_rows, 32768u));
  if (a.matrix.packed) {
    switch (a.matrix.format) {
#define HC_X(e) \
  case Format::e: return launch(unpack<Format::e, true>, grid, kThreads, 0, stream, a);
      HC_CUDA_PACKED(HC_X)
#undef HC_X
      default: return cudaErrorInvalidValue;
    }
  }
  switch (a.matrix.format) {
#define HC_X(e, id, name, elements, bytes) \
  case Format::e: return launch(unpack<Format::e, false>, grid, kThreads, 0, stream, a);
    HC_FORMATS(HC_X)
#undef HC_X
  }
  return cudaErrorInvalidValue;
}

// `run<F, packed>()` for the matrix's format.
template <class Run>
int for_format(const DeviceMatrix& m, const Run& run) {
  if (m.packed) {
    switch (m.format) {
#define HC_X(e) \
  case Format::e: return run.template operator()<Format::e, true>();
      HC_CUDA_PACKED(HC_X)
#undef HC_X
      default: return cudaErrorInvalidValue;
    }
  }
  switch (m.format) {
#define HC_X(e, id, name, elements, bytes) \
  case Format::e: return run.template operator()<Format::e, false>();
    HC_FORMATS(HC_X)
#undef HC_X
  }
  return cudaErrorInvalidValue;
}

}  // namespace

int launch_embed(const DeviceMatrix& table, const int32_t* tokens, uint32_t n_rows, Rows out, float scale,
                 Stream stream) {
  return launch_unpack({table, tokens, n_rows, (table.cols + 7) / 8, out, nullptr, nullptr, scale}, stream);
}

int launch_split_weights(const DeviceMatrix& matrix, uint16_t* high, uint16_t* low, uint32_t depth, Stream stream) {
  return launch_unpack({matrix, nullptr, matrix.rows, depth / 8, {}, high, low, 1}, stream);
}

int launch_plain_mat_vec(const DeviceMatrix& m, const float* x, uint32_t n, Rows products, Stream stream) {
  const dim3 grid((m.rows + kThreads / 32 - 1) / (kThreads / 32), (n + kMatVecRows - 1) / kMatVecRows);
  if (m.packed) {
    switch (m.format) {
#define HC_X(e) \
  case Format::e: return launch(plain_mat_vec<Format::e, true>, grid, kThreads, 0, stream, m, x, n, products);
      HC_CUDA_PACKED_FLOATS(HC_X)
#undef HC_X
      default: return cudaErrorInvalidValue;
    }
  }
  switch (m.format) {
#define HC_X(e, id, name, elements, bytes) \
  case Format::e: return launch(plain_mat_vec<Format::e, false>, grid, kThreads, 0, stream, m, x, n, products);
    HC_FORMATS(HC_X)
#undef HC_X
  }
  return cudaErrorInvalidValue;
}

int launch_plain_expert_mat_vec(const DeviceMatrix& m, const float* x, Pairs pairs, Rows products, Stream stream) {
  const dim3 grid((m.rows + kThreads / 32 - 1) / (kThreads / 32), min(pairs.n, 65535u));
  switch (m.format) {
#define HC_X(e, id, name, elements, bytes) \
  case Format::e: return launch(plain_expert_mat_vec<Format::e>, grid, kThreads, 0, stream, m, x, pairs, products);
    HC_FORMATS(HC_X)
#undef HC_X
  }
  return cudaErrorInvalidValue;
}

int launch_pack(quant::Format format, const uint8_t* source, uint32_t rows, uint32_t cols, uint8_t* tiles,
                uint32_t row_tile, Stream stream) {
  const dim3 grid((tile_bytes(format) / 2 + kThreads - 1) / kThreads, (cols + kTileCols - 1) / kTileCols,
                  (rows + kTileRows - 1) / kTileRows);
  const PackSource from{source, rows, cols};
  switch (format) {
#define HC_X(e) \
  case Format::e: pack<Format::e><<<grid, kThreads, 0, stream>>>(from, tiles, row_tile); return cudaGetLastError();
    HC_CUDA_PACKED(HC_X)
#undef HC_X
    default: return cudaErrorInvalidValue;
  }
}

int launch_row_exponents(const DeviceMatrix& m, int8_t* exponents, Stream stream) {
  const uint32_t blocks = (m.rows + kWarps - 1) / kWarps + 1;
  return for_format(m, [&]<Format F, bool kPacked>() -> int {
    row_exponents<F, kPacked><<<blocks, kThreads, 0, stream>>>(m, exponents);
    return cudaGetLastError();
  });
}

int launch_half_tiles(const DeviceMatrix& m, const int8_t* exponents, uint32_t n_slices, bool two_halves,
                      uint8_t* tiles, int8_t* tile_exponents, Stream stream) {
  const uint32_t k_tiles = (m.cols + kTileCols - 1) / kTileCols, parts = two_halves ? 2 : 1;
  const dim3 grid(k_tiles, (m.rows + kTileRows - 1) / kTileRows, n_slices);
  return for_format(m, [&]<Format F, bool kPacked>() -> int {
    if constexpr (kPacked && is_unpacked_in_registers(F)) {
      return cudaErrorInvalidValue;
    } else if constexpr (kPacked) {
      const dim3 of_tiles((k_tiles + kWarps - 1) / kWarps, grid.y, grid.z);
      return launch(make_half_tiles_of_packed<F>, of_tiles, kThreads, 0, stream, m, exponents, parts, k_tiles, tiles,
                    tile_exponents);
    } else {
      return launch(make_half_tiles<F>, grid, kThreads, 0, stream, m, exponents, parts, tiles, tile_exponents);
    }
  });
}

int upload_grids() {
  int status = cudaSuccess;
  const auto upload = [&](auto& symbol, const auto& grid) {
    static_assert(sizeof(symbol) == sizeof(grid));
    if (status == cudaSuccess) status = cudaMemcpyToSymbol(symbol, &grid, sizeof(grid));
  };
  upload(grid_iq2_xxs, quant::kGridIQ2_XXS);
  upload(grid_iq2_xs, quant::kGridIQ2_XS);
  upload(grid_iq2_s, quant::kGridIQ2_S);
  upload(grid_iq3_xxs, quant::kGridIQ3_XXS);
  upload(grid_iq3_s, quant::kGridIQ3_S);
  upload(grid_iq1, quant::kGridIQ1);
  return status;
}

}  // namespace honeycrisp::backend::cuda
