// Products of generated rows with their experts, over packed tiles: of a pair of a row and an expert by itself, of up
// to four pairs of one expert together, and of a row with all its experts, added up. A pair's bits are the same in all
// three. How the work is split: mat_vec.cuh.
#include "backend/cuda/kernels/choice.cuh"
#include "backend/cuda/kernels/mat_vec.cuh"

#include <algorithm>

namespace honeycrisp::backend::cuda {
namespace {

__device__ __forceinline__ const uint8_t* tile_of_expert(const MatVecArgs& a, uint32_t expert, uint32_t row_tile,
                                                         uint32_t k_tiles, uint32_t k, uint32_t bytes) {
  const TilePlace p = place_of(a.ending, row_tile);
  return a.tiles[p.part] + expert * a.slice_bytes[p.part] + (size_t(p.row_tile) * k_tiles + k) * bytes;
}
// The row of the buffers that a pair reads.
__device__ __forceinline__ const float* input_of_pair(const MatVecArgs& a, uint32_t pair) {
  const uint32_t row = a.pairs.per_row != 0 ? a.rows.index[pair / a.pairs.per_row] : pair;
  return a.in.data + size_t(row) * a.in.stride;
}
__device__ __forceinline__ void prefetch_norm(const MatVecArgs& a) {
  if (a.input_norm.weight != nullptr && threadIdx.x * 32 < a.cols)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(a.input_norm.weight + threadIdx.x * 32));
}
// ---- a pair by itself, or up to four of one expert

template <Format F, int kRows>
struct PairsWork {
  const ExpertMatVecArgs& args;
  const MatVecArgs& a;
  uint32_t k_tiles, at;  // kRows 1: the pair, else the tile of sorted pairs
  float* choice;         // shared memory of the choice
  bool aligned;
  uint32_t first_tile = 0, expert = 0, n = 1;

  // Which expert it is.
  __device__ __forceinline__ void begin() {
    wait_for_previous();
    const ChoiceArgs& c = args.choice;
    if (kRows != 1) {
      const uint2 tile = __ldcg(reinterpret_cast<const uint2*>(args.sorted.tiles + at));  // {expert, n}
      expert = tile.x, n = tile.y;
    } else if (c.scores != nullptr) {
      const ChoiceMemory m(c, choice);
      choose<kProductThreads<F, kRows>>(c, at / c.top_k, m);
      expert = m.chosen[at % c.top_k];
    } else {
      expert = __ldcg(a.pairs.experts + at);
    }
  }
  __device__ __forceinline__ void wait() const {}

  __device__ __forceinline__ uint32_t pair_of(uint32_t i) const {
    return kRows == 1 ? at : __ldcg(args.sorted.slots + at * kRows + i);
  }
  __device__ __forceinline__ const uint8_t* tile(int row, int k) const {
    return tile_of_expert(a, expert, first_tile + uint32_t(row), k_tiles, uint32_t(k), tile_bytes(F));
  }
  __device__ __forceinline__ InputRow input(int) const {
    const uint32_t i = kRows == 1 ? 0 : threadIdx.x % 32 / 8;
    return {i < n ? input_of_pair(a, pair_of(i)) : nullptr, a.cols, aligned};
  }
  __device__ __forceinline__ int column_tile(int k) const { return k; }
  __device__ __forceinline__ float total(float sum, const float* partials, int n_k, int o, uint32_t) const {
    return add_partials<kRows>(sum, partials, n_k, o);
  }
  __device__ __forceinline__ Output find(int i) const {
    const int o = i % kTileOutputs<kRows>;
    const TilePlace p = place_of(a.ending, first_tile + uint32_t(i / kTileOutputs<kRows>) * tiles_of_unit(a.ending));
    const uint32_t r = p.row_tile * kTileRows + uint32_t(o / kRows), at = uint32_t(o % kRows);
    if (r >= a.ending.rows[p.part] || at >= n) return {};
    const uint32_t to = pair_of(at);
    return find_output(a.ending, p, r, to, to, expert);
  }
};

// Blocks (pair, share of its rows). With scores, the block chooses for the pair's row itself; the first of a row stores
// the choice.
template <Format F>
__global__ void __launch_bounds__(kProductThreads<F, 1>, 2) pairs(const __grid_constant__ ExpertMatVecArgs args) {
  extern __shared__ __align__(16) float shared[];
  const MatVecArgs& a = args.product;
  let_next_begin();
  prefetch_norm(a);
  const uint32_t k_tiles = (a.cols + kTileCols - 1) / kTileCols;
  const uint32_t pair = blockIdx.x / a.n_blocks, block = blockIdx.x % a.n_blocks;
  const ChoiceArgs& c = args.choice;
  const bool chooses = c.scores != nullptr;
  PairsWork<F, 1> work{args, a, k_tiles, pair, shared, is_aligned(a.in)};
  work.begin();
  multiply_block<F, 1>(work, a.ending, tiles_of_block(a.ending, block, a.n_blocks), k_tiles, a.cols, a.input_norm,
                       shared + (chooses ? ChoiceMemory::floats(c.n_experts, c.top_k) : 0));
  if (chooses && block == 0 && pair % c.top_k == 0 && threadIdx.x < 32)
    store_choice(c, pair / c.top_k, ChoiceMemory(c, shared), threadIdx.x);
}

// Blocks (tile of sorted pairs, share of the rows).
template <Format F>
__global__ void __launch_bounds__(kProductThreads<F, kMatVecRows>, 2)
    pairs_together(const __grid_constant__ ExpertMatVecArgs args) {
  extern __shared__ __align__(16) float shared[];
  const MatVecArgs& a = args.product;
  let_next_begin();
  prefetch_norm(a);
  const uint32_t k_tiles = (a.cols + kTileCols - 1) / kTileCols;
  const uint32_t at = blockIdx.x / a.n_blocks, block = blockIdx.x % a.n_blocks;
  PairsWork<F, kMatVecRows> work{args, a, k_tiles, at, nullptr, is_aligned(a.in)};
  work.begin();
  if (work.n == 0) return;
  multiply_block<F, kMatVecRows>(work, a.ending, tiles_of_block(a.ending, block, a.n_blocks), k_tiles, a.cols,
                                 a.input_norm, shared);
}

// ---- a row with all its experts

// k runs over (rank, k tile of the expert).
template <Format F>
struct SumWork {
  const MatVecArgs& a;
  const CombineArgs& sum;
  uint32_t k_tiles, listed;
  bool aligned;
  uint32_t first_tile = 0;

  __device__ __forceinline__ void wait() const {}
  __device__ __forceinline__ uint32_t expert_of(uint32_t rank) const {
    return __ldcg(sum.experts + size_t(listed) * sum.top_k + rank);
  }
  __device__ __forceinline__ const uint8_t* tile(int row, int k) const {
    const uint32_t rank = uint32_t(k) / k_tiles;
    return tile_of_expert(a, expert_of(rank), first_tile + uint32_t(row), k_tiles, uint32_t(k) % k_tiles,
                          tile_bytes(F));
  }
  __device__ __forceinline__ InputRow input(int k) const {
    return {a.in.data + size_t(listed * sum.top_k + uint32_t(k) / k_tiles) * a.in.stride, a.cols, aligned};
  }
  __device__ __forceinline__ int column_tile(int k) const { return int(uint32_t(k) % k_tiles); }
  __device__ __forceinline__ float total(float, const float* partials, int, int o, uint32_t r) const {
    if (r >= sum.cols) return 0;
    return sum_of_experts(sum, listed, sum.rows.index[listed], r, [&](uint32_t rank) {
      const float y = add_partials<1>(0, partials + rank * k_tiles * kTileOutputs<1>, int(k_tiles), o);
      return sum.bias != nullptr ? y + sum.bias[size_t(expert_of(rank)) * sum.cols + r] : y;
    });
  }
  __device__ __forceinline__ Output find(int i) const {
    const uint32_t r = first_tile * kTileRows + uint32_t(i), row = sum.rows.index[listed];
    if (r >= sum.cols) return {};
    return find_output(a.ending, {0, 0}, r, row, row, 0);
  }
};

// Blocks (share of the rows, listed row).
template <Format F>
__global__ void __launch_bounds__(kProductThreads<F, 1>, 2) sums(const __grid_constant__ ExpertMatVecArgs args) {
  extern __shared__ __align__(16) float shared[];
  const MatVecArgs& a = args.product;
  let_next_begin();
  const uint32_t k_tiles = (a.cols + kTileCols - 1) / kTileCols;
  SumWork<F> work{a, args.sum, k_tiles, blockIdx.y, is_aligned(a.in)};
  wait_for_previous();
  multiply_block<F, 1>(work, a.ending, tiles_of_block(a.ending, blockIdx.x, gridDim.x), args.sum.top_k * k_tiles,
                       a.cols, {}, shared);
}

// ---- launches

uint32_t k_tiles_of(const MatVecArgs& a) { return (a.cols + kTileCols - 1) / kTileCols; }
// The most row tiles of a block.
uint32_t most_tiles(const EndingArgs& e, uint32_t n_blocks) {
  const uint32_t unit = tiles_of_unit(e), units = row_tiles(e) / unit;
  return (units + n_blocks - 1) / n_blocks * unit;
}

template <Format F>
int launch(const ExpertMatVecArgs& args, Stream stream) {
  const MatVecArgs& a = args.product;
  if (args.sum.x.data != nullptr) {
    const uint32_t n_blocks = std::min(row_tiles(a.ending), a.n_blocks);
    const ProductShared<1> sizes(a.ending, most_tiles(a.ending, n_blocks), args.sum.top_k * k_tiles_of(a));
    return launch(sums<F>, dim3(n_blocks, args.sum.rows.n), kProductThreads<F, 1>, sizes.bytes(), stream, args);
  }
  if (args.sorted.slots != nullptr) {
    const ProductShared<kMatVecRows> sizes(a.ending, most_tiles(a.ending, a.n_blocks), k_tiles_of(a));
    return launch(pairs_together<F>, a.n_blocks * args.sorted.n_tiles, kProductThreads<F, kMatVecRows>, sizes.bytes(),
                  stream, args);
  }
  const ProductShared<1> sizes(a.ending, most_tiles(a.ending, a.n_blocks), k_tiles_of(a));
  const ChoiceArgs& c = args.choice;
  const size_t choice = c.scores != nullptr ? ChoiceMemory::floats(c.n_experts, c.top_k) * sizeof(float) : 0;
  return launch(pairs<F>, a.n_blocks * a.pairs.n, kProductThreads<F, 1>, choice + sizes.bytes(), stream, args);
}

template <Format F>
int allow_shared() {
  int status = cudaSuccess;
  const auto allow = [&](auto* kernel) {
    if (status == cudaSuccess)
      status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostProductBytes);
  };
  allow(pairs<F>);
  allow(pairs_together<F>);
  allow(sums<F>);
  return status;
}

}  // namespace

int launch_expert_mat_vec(const ExpertMatVecArgs& a, Stream stream) {
  switch (a.product.format) {
#define HC_X(e) \
  case Format::e: return launch<Format::e>(a, stream);
    HC_CUDA_PACKED_CODES(HC_X)
#undef HC_X
    default: return cudaErrorInvalidValue;
  }
}

int prepare_expert_mat_vec() {
  int status = cudaSuccess;
#define HC_X(e) \
  if (status == cudaSuccess) status = allow_shared<Format::e>();
  HC_CUDA_PACKED_CODES(HC_X)
#undef HC_X
  return status;
}

}  // namespace honeycrisp::backend::cuda
