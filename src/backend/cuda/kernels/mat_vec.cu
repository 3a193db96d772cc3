// y = W · norm(x) for generated rows, over packed tiles, with the ending fused in.
//
// Work split: a block owns consecutive row tiles of all parts together (of a gate: pairs of tiles); their tiles, row
// tile by row tile, are cut into 16 equal contiguous runs, one a warp. A warp leaves one partial sum per row tile in
// shared memory, and the partial sums of a row are added in the warps' order. The order of every sum therefore depends
// on the weight's shape and the number of multiprocessors, never on the rows of the batch: those are columns of the
// mma, which do not mix. Activations are split in two f16, high + 2^-11 low, in neighbouring columns, after scaling
// each row by a power of two: 22 bits, so products are as exact as f32, and no activation overflows. x is scaled by the
// norm's weight before the product and by 1 / rms after it.
#include "backend/cuda/kernels/ending.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/packed.cuh"

namespace honeycrisp::backend::cuda {
namespace {

constexpr int kWarps = 16, kThreads = kWarps * 32;
constexpr int kChunkTiles = 32;  // tiles of K whose activations are in shared memory together
constexpr int kPassTiles = 64;   // row tiles of a block whose sums are in shared memory together
constexpr float kLowFactor = 2048;
constexpr int kLargestExponent = 9;  // of scaled activations: sums of 32 stay below the largest f16

template <Format F>
constexpr int kSumHalves = F == Format::kQ6_K ? 32 : 16;  // per tile and column

struct SharedSizes {
  size_t activations, sums, partials, totals;
  __host__ __device__ size_t all() const { return activations + sums + partials + totals; }
};
template <Format F, int kRows>
__host__ __device__ SharedSizes shared_sizes(int k_tiles) {
  const size_t chunk = size_t(k_tiles < kChunkTiles ? k_tiles : kChunkTiles);
  return {chunk * kTileCols * 2 * kRows * sizeof(__half), chunk * 2 * kRows * kSumHalves<F> * sizeof(__half),
          (kPassTiles + kWarps) * kTileRows * kRows * sizeof(float), kPassTiles * kTileRows * kRows * sizeof(float)};
}

// Where row tile `t` of all parts together lies.
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

// What a row of activations is multiplied with: before the product (a power of two) and after it.
struct RowScale {
  float before, after;
};

// The rows of activations of a block, found before the previous kernel has ended: row lists are inputs of the step.
template <int kRows>
struct Inputs {
  const float* row[kRows];  // null past the last row
  bool aligned;             // to float4
};
template <int kRows>
__device__ __forceinline__ Inputs<kRows> inputs_of(const MatVecArgs& a, uint32_t first) {
  Inputs<kRows> in;
#pragma unroll
  for (int i = 0; i < kRows; ++i)
    in.row[i] = first + i < a.rows.n ? a.in.data + size_t(a.rows.index[first + i]) * a.in.stride : nullptr;
  in.aligned = reinterpret_cast<uintptr_t>(a.in.data) % sizeof(float4) == 0 && a.in.stride % 4 == 0;
  return in;
}

// The same of a pair of a mixture.
__device__ __forceinline__ Inputs<1> input_of_pair(const MatVecArgs& a, uint32_t pair) {
  const uint32_t row = a.pairs.per_row != 0 ? a.rows.index[pair / a.pairs.per_row] : pair;
  return {{a.in.data + size_t(row) * a.in.stride},
          reinterpret_cast<uintptr_t>(a.in.data) % sizeof(float4) == 0 && a.in.stride % 4 == 0};
}

// Elements k..k+3 and k+16..k+19; zero beyond cols.
__device__ __forceinline__ void load8(const float* x, uint32_t k, uint32_t cols, bool aligned, float (&v)[8]) {
#pragma unroll
  for (int half = 0; half < 2; ++half, k += 16) {
    if (aligned && k + 4 <= cols) {
      const float4 four = *reinterpret_cast<const float4*>(x + k);
      v[4 * half] = four.x;
      v[4 * half + 1] = four.y;
      v[4 * half + 2] = four.z;
      v[4 * half + 3] = four.w;
    } else {
#pragma unroll
      for (uint32_t e = 0; e < 4; ++e) v[4 * half + e] = k + e < cols ? x[k + e] : 0.0f;
    }
  }
}
// Column of the first of the 8 values that piece `i` of a row holds.
__device__ __forceinline__ uint32_t column_of_piece(uint32_t i) { return i / 4 * 32 + i % 4 * 4; }

// Every row's mean square and largest value, in an order that the number of columns fixes.
template <int kRows>
__device__ void measure_rows(const MatVecArgs& a, const Inputs<kRows>& in, RowScale* scales, float2* shared) {
  float squares[kRows] = {}, largest[kRows] = {};
  for (uint32_t i = threadIdx.x; column_of_piece(i) < a.cols; i += kThreads) {
    const uint32_t k = column_of_piece(i);
    float weight[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    if (a.input_norm.weight != nullptr) load8(a.input_norm.weight, k, a.cols, true, weight);
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      if (in.row[row] == nullptr) continue;
      float v[8];
      load8(in.row[row], k, a.cols, in.aligned, v);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        squares[row] = fmaf(v[e], v[e], squares[row]);
        largest[row] = fmaxf(largest[row], fabsf(v[e] * weight[e]));
      }
    }
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const float2 both = {warp_sum(squares[row]), warp_max(largest[row])};
    if (lane == 0) shared[row * kWarps + warp] = both;
  }
  __syncthreads();
  if (warp < kRows) {
    const float2 both = lane < kWarps ? shared[warp * kWarps + lane] : float2{0, 0};
    const float sum = warp_sum(both.x), most = warp_max(both.y);
    int exponent = most > 0 && most < INFINITY ? kLargestExponent - ilogbf(most) : 0;
    exponent = max(-118, min(100, exponent));  // whatever f32 holds; both powers are normal
    const float rms = a.input_norm.present ? 1 / sqrtf(sum / float(a.cols) + a.input_norm.eps) : 1.0f;
    if (lane == 0) scales[warp] = {ldexpf(1, exponent), rms * ldexpf(1, -exponent)};
  }
  __syncthreads();
}

// Fragments and sums of the columns of one K chunk. A thread makes the 8 values of (block, row, lane t), twice.
template <Format F, int kRows>
__device__ void stage(const MatVecArgs& a, const Inputs<kRows>& in, const RowScale* scales, int tile0, int n_tiles,
                      __half* activations, __half* sums) {
  constexpr int kColumns = 2 * kRows;
  for (int i = threadIdx.x; i < n_tiles * 8 * kRows * 4; i += kThreads) {  // whole warps: a multiple of 32
    const int t = i % 4, row = i / 4 % kRows, blk = i / (4 * kRows);
    float v[8] = {};
    const float* x = in.row[0];
#pragma unroll
    for (int r = 1; r < kRows; ++r) x = row == r ? in.row[r] : x;  // no indexing: the pointers stay in registers
    if (x != nullptr) {
      const uint32_t k = uint32_t(tile0) * kTileCols + blk * 32 + t * 4;
      load8(x, k, a.cols, in.aligned, v);
      if (a.input_norm.weight != nullptr) {
        float weight[8];
        load8(a.input_norm.weight, k, a.cols, true, weight);
#pragma unroll
        for (int e = 0; e < 8; ++e) v[e] *= weight[e];
      }
#pragma unroll
      for (int e = 0; e < 8; ++e) v[e] *= scales[row].before;
    }
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      float h[8];
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        h[e] = __half2float(__float2half_rn(v[e]));
        v[e] = (v[e] - h[e]) * kLowFactor;
      }
      float low = (h[0] + h[1]) + (h[2] + h[3]), high = (h[4] + h[5]) + (h[6] + h[7]);
      constexpr float kHigh = high_factor(F);
      const uint4 fragment = {pack_halves(h[0], h[1]), pack_halves(h[2], h[3]), pack_halves(h[4] * kHigh, h[5] * kHigh),
                              pack_halves(h[6] * kHigh, h[7] * kHigh)};
      const int column = 2 * row + part;
      reinterpret_cast<uint4*>(activations)[(blk * kColumns + column) * 4 + t] = fragment;
      __half* s = sums + ((blk / 8) * kColumns + column) * kSumHalves<F> + blk % 8 / 2 * (kSumHalves<F> / 4);
      if constexpr (F == Format::kQ6_K) {
        for (int d = 1; d < 4; d *= 2) {
          low += __shfl_xor_sync(~0u, low, d);
          high += __shfl_xor_sync(~0u, high, d);
        }
        if (t == 0) {
          const float half_sums[2] = {-low, -high};
          for (int e = 0; e < 2; ++e) {
            const __half rounded = __float2half_rn(half_sums[e]);
            s[blk % 2 * 2 + e] = rounded;
            s[4 + blk % 2 * 2 + e] = __float2half_rn(half_sums[e] - __half2float(rounded));
          }
        }
      } else {
        float sum = low + high;
        for (int d = 1; d < 4; d *= 2) sum += __shfl_xor_sync(~0u, sum, d);
        if (t == 0) {
          const __half rounded = __float2half_rn(-sum);
          s[blk % 2] = rounded;
          s[2 + blk % 2] = __float2half_rn(-sum - __half2float(rounded));
        }
      }
    }
  }
}

// Walks a run of tiles: local row tile by row tile, `k_tiles` of each from `tile0` on.
template <Format F>
struct Cursor {
  const MatVecArgs& a;
  uint32_t first_tile;  // of the pass, in all parts together
  uint32_t expert;      // 0 without a mixture
  int k_per_row, k_tiles, tile0;
  int row, k;
  const uint8_t* row_tiles;

  __device__ __forceinline__ void begin_row() {
    const TilePlace p = place_of(a.ending, first_tile + uint32_t(row));
    row_tiles =
        a.tiles[p.part] + expert * a.slice_bytes[p.part] + (size_t(p.row_tile) * k_per_row + tile0) * tile_bytes(F);
  }
  __device__ __forceinline__ const uint8_t* tile() const { return row_tiles + size_t(k) * tile_bytes(F); }
  /// Steps on; `more`: whether the run goes on, so that a row is not looked up past its end.
  __device__ __forceinline__ void advance(bool more) {
    if (++k < k_tiles) return;
    k = 0;
    ++row;
    if (more) begin_row();
  }
};

template <Format F, int kRows>
__device__ void leave_partial(float* partials, int slot, float (&acc)[4], float (&correction)[4], int lane) {
  const int g = lane >> 2, t = lane & 3;
  constexpr float kLow = 1 / kLowFactor;
  if (t < kRows) {  // columns 2t and 2t + 1: high and low part of row t
    float* p = partials + slot * int(kTileRows) * kRows;
    p[g * kRows + t] = fmaf(finished<F>(acc[1], correction[1]), kLow, finished<F>(acc[0], correction[0]));
    p[(g + 8) * kRows + t] = fmaf(finished<F>(acc[3], correction[3]), kLow, finished<F>(acc[2], correction[2]));
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) acc[i] = correction[i] = 0;
}

// The sum of row tile `row`'s partial sums for output `o` of [16][kRows], in the order of the warps that made them.
template <int kRows>
__device__ __forceinline__ float add_partials(const float* partials, int row, int o, int k_tiles, int n) {
  const int w0 = (kWarps * (row * k_tiles + 1) - 1) / n, w1 = (kWarps * (row + 1) * k_tiles - 1) / n;
  float sum = 0;
  for (int w = w0; w <= w1; ++w)
    if (n * w / kWarps < n * (w + 1) / kWarps) sum += partials[(row + w) * int(kTileRows) * kRows + o];
  return sum;
}

// What a block works on. Without a mixture: rows [first, first + kRows) of the list; else one pair, which is `first`.
struct BlockPlace {
  uint32_t first, expert, block, n_blocks;
};
template <bool kMixture, int kRows>
__device__ __forceinline__ BlockPlace place_of_block(const MatVecArgs& a) {
  if constexpr (!kMixture) return {blockIdx.y * kRows, 0, blockIdx.x, gridDim.x};
  const uint32_t pair = blockIdx.x / a.n_blocks;
  wait_for_previous();  // the choice of experts
  return {pair, a.pairs.experts[pair], blockIdx.x % a.n_blocks, a.n_blocks};
}

template <bool kMixture, int kRows>
__device__ void end_rows(const MatVecArgs& a, const BlockPlace& at_block, const RowScale* scales, const float* totals,
                         uint32_t first_tile, int n_row_tiles) {
  const EndingArgs& e = a.ending;
  const bool pairs = e.kind == EndingKind::kGate;
  const int step = pairs ? 2 : 1;
  constexpr int kOutputs = int(kTileRows) * kRows;
  for (int i = threadIdx.x; i < n_row_tiles / step * kOutputs; i += kThreads) {
    const int tile = i / kOutputs * step, o = i % kOutputs, batch_row = o % kRows;
    const TilePlace p = place_of(e, first_tile + uint32_t(tile));
    const uint32_t r = p.row_tile * kTileRows + uint32_t(o / kRows), at = at_block.first + uint32_t(batch_row);
    if (r >= e.rows[p.part] || (!kMixture && at >= a.rows.n)) continue;
    const size_t bias_at = size_t(at_block.expert) * e.rows[p.part] + r;
    float y = totals[tile * kOutputs + o] * scales[batch_row].after, other = 0;
    if (e.bias[p.part] != nullptr) y += e.bias[p.part][bias_at];
    if (pairs) {
      other = totals[(tile + 1) * kOutputs + o] * scales[batch_row].after;
      if (e.bias[1] != nullptr) other += e.bias[1][bias_at];
    }
    if constexpr (kMixture)
      finish(e, p.part, r, at, at, y, other);
    else
      finish(e, p.part, r, a.rows.index[at], a.rows.dest != nullptr ? a.rows.dest[at] : at, y, other);
  }
}

template <Format F, int kRows, bool kMixture>
__global__ void __launch_bounds__(kThreads, 1) mat_vec(const __grid_constant__ MatVecArgs a) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ float2 reduction[kRows * kWarps];
  __shared__ RowScale scales[kRows];
  const int k_per_row = int((a.cols + kTileCols - 1) / kTileCols);
  const SharedSizes sizes = shared_sizes<F, kRows>(k_per_row);
  auto* activations = reinterpret_cast<__half*>(shared);
  auto* sums = reinterpret_cast<__half*>(shared + sizes.activations);
  auto* partials = reinterpret_cast<float*>(shared + sizes.activations + sizes.sums);
  auto* totals = reinterpret_cast<float*>(shared + sizes.activations + sizes.sums + sizes.partials);

  const BlockPlace place = place_of_block<kMixture, kRows>(a);
  const uint32_t unit = a.ending.kind == EndingKind::kGate ? 2 : 1;
  uint32_t n_tiles = 0;
  for (uint32_t i = 0; i < a.ending.n_parts; ++i) n_tiles += (a.ending.rows[i] + kTileRows - 1) / kTileRows;
  const uint32_t units = n_tiles / unit;
  const uint32_t tile_begin = uint32_t(uint64_t(units) * place.block / place.n_blocks) * unit;
  const uint32_t tile_end = uint32_t(uint64_t(units) * (place.block + 1) / place.n_blocks) * unit;
  const int n_chunks = (k_per_row + kChunkTiles - 1) / kChunkTiles;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Inputs<kRows> in;
  if constexpr (kMixture)
    in = input_of_pair(a, place.first);
  else
    in = inputs_of<kRows>(a, place.first);
  if (a.input_norm.weight != nullptr && threadIdx.x * 32 < a.cols)  // its 128-byte lines are not in the cache yet
    asm volatile("prefetch.global.L2 [%0];" ::"l"(a.input_norm.weight + threadIdx.x * 32));
  bool waited = false;

  for (uint32_t pass = tile_begin; pass < tile_end; pass += kPassTiles) {
    const int n_row_tiles = int(min(tile_end - pass, uint32_t(kPassTiles)));
    for (int chunk = 0; chunk < n_chunks; ++chunk) {
      const int tile0 = k_per_row * chunk / n_chunks, k_tiles = k_per_row * (chunk + 1) / n_chunks - tile0;
      const int n = n_row_tiles * k_tiles, begin = n * warp / kWarps, end = n * (warp + 1) / kWarps;
      Cursor<F> next{a, pass, place.expert, k_per_row, k_tiles, tile0, begin / k_tiles, begin % k_tiles, nullptr};
      Tile<F> ahead;
      if (begin < end) {  // weights are constant: on their way before the previous kernel has ended
        next.begin_row();
        load_tile<F>(ahead, next.tile(), lane);
        next.advance(begin + 1 < end);
      }
      if (!waited) {
        let_next_begin();
        wait_for_previous();
        measure_rows<kRows>(a, in, scales, reduction);
        waited = true;
      }
      if (pass == tile_begin || n_chunks > 1) stage<F, kRows>(a, in, scales, tile0, k_tiles, activations, sums);
      __syncthreads();
      float acc[4] = {}, correction[4] = {};
      int row = begin / k_tiles, k = begin % k_tiles;
      for (int i = begin; i < end; ++i) {
        const Tile<F> tile = ahead;
        if (i + 1 < end) {
          load_tile<F>(ahead, next.tile(), lane);
          next.advance(i + 2 < end);
        }
        multiply_tile<F, 2 * kRows>(acc, correction, tile, activations + size_t(k) * kTileCols * 2 * kRows,
                                    sums + size_t(k) * 2 * kRows * kSumHalves<F>, lane);
        if (++k == k_tiles || i + 1 == end) {
          leave_partial<F, kRows>(partials, row + warp, acc, correction, lane);
          if (k == k_tiles) {
            k = 0;
            ++row;
          }
        }
      }
      __syncthreads();
      constexpr int kOutputs = int(kTileRows) * kRows;
      for (int i = threadIdx.x; i < n_row_tiles * kOutputs; i += kThreads) {
        const float sum = add_partials<kRows>(partials, i / kOutputs, i % kOutputs, k_tiles, n);
        totals[i] = chunk == 0 ? sum : totals[i] + sum;
      }
      __syncthreads();
    }
    end_rows<kMixture, kRows>(a, place, scales, totals, pass, n_row_tiles);
    __syncthreads();
  }
  if (!waited) wait_for_previous();
}

template <Format F, int kRows>
int launch_rows(const MatVecArgs& a, Stream stream) {
  const int k_tiles = int((a.cols + kTileCols - 1) / kTileCols);
  const dim3 grid(a.n_blocks, (a.rows.n + kRows - 1) / kRows);
  return launch(mat_vec<F, kRows, false>, grid, kThreads, shared_sizes<F, kRows>(k_tiles).all(), stream, a);
}
template <Format F>
int launch_pairs(const MatVecArgs& a, Stream stream) {
  const int k_tiles = int((a.cols + kTileCols - 1) / kTileCols);
  return launch(mat_vec<F, 1, true>, a.n_blocks * a.pairs.n, kThreads, shared_sizes<F, 1>(k_tiles).all(), stream, a);
}

template <Format F>
int allow_shared() {
  int status = cudaSuccess;
  const auto allow = [&](auto* kernel, size_t bytes) {
    if (status == cudaSuccess)
      status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
  };
  allow(mat_vec<F, 1, false>, shared_sizes<F, 1>(kChunkTiles).all());
  allow(mat_vec<F, 1, true>, shared_sizes<F, 1>(kChunkTiles).all());
  allow(mat_vec<F, kMatVecRows, false>, shared_sizes<F, kMatVecRows>(kChunkTiles).all());
  return status;
}

}  // namespace

int launch_mat_vec(const MatVecArgs& a, Stream stream) {
  switch (a.format) {
#define HC_X(e)                                                                \
  case Format::e:                                                              \
    if (a.pairs.experts != nullptr) return launch_pairs<Format::e>(a, stream); \
    return a.rows.n == 1 ? launch_rows<Format::e, 1>(a, stream) : launch_rows<Format::e, kMatVecRows>(a, stream);
    HC_CUDA_PACKED(HC_X)
#undef HC_X
    default: return cudaErrorInvalidValue;
  }
}

int prepare_mat_vec() {
  int status = cudaSuccess;
#define HC_X(e) \
  if (status == cudaSuccess) status = allow_shared<Format::e>();
  HC_CUDA_PACKED(HC_X)
#undef HC_X
  return status;
}

}  // namespace honeycrisp::backend::cuda
