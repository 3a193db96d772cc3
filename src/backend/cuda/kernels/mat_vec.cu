// y = W · norm(x) for generated rows, over packed tiles, with the ending fused in: one row, or four that share what is
// read of the weights. How the work is split: mat_vec.cuh.
#include "backend/cuda/kernels/mat_vec.cuh"

#include <algorithm>

namespace honeycrisp::backend::cuda {
namespace {

template <Format F, int kRows>
struct RowsWork {
  const MatVecArgs& a;
  uint32_t k_tiles, first_row, first_tile;
  bool aligned;

  __device__ __forceinline__ void wait() const { wait_for_previous(); }
  __device__ __forceinline__ const uint8_t* tile(int row, int k) const {
    const TilePlace p = place_of(a.ending, first_tile + uint32_t(row));
    return a.tiles[p.part] + (size_t(p.row_tile) * k_tiles + k) * tile_bytes(F);
  }
  __device__ __forceinline__ InputRow input(int) const {
    const uint32_t at = first_row + (kRows == 1 ? 0 : threadIdx.x % 32 / 8);
    return {at < a.rows.n ? a.in.data + size_t(a.rows.index[at]) * a.in.stride : nullptr, a.cols, aligned};
  }
  __device__ __forceinline__ int column_tile(int k) const { return k; }
  __device__ __forceinline__ float total(float sum, const float* partials, int n_k, int o, uint32_t) const {
    return add_partials<kRows>(sum, partials, n_k, o);
  }
  __device__ __forceinline__ Output find(int i) const {
    const int o = i % kTileOutputs<kRows>;
    const TilePlace p = place_of(a.ending, first_tile + uint32_t(i / kTileOutputs<kRows>) * tiles_of_unit(a.ending));
    const uint32_t r = p.row_tile * kTileRows + uint32_t(o / kRows), at = first_row + uint32_t(o % kRows);
    if (r >= a.ending.rows[p.part] || at >= a.rows.n) return {};
    return find_output(a.ending, p, r, a.rows.index[at], a.rows.dest != nullptr ? a.rows.dest[at] : at, 0);
  }
};

template <Format F, int kRows>
__global__ void __launch_bounds__(kProductThreads<F, kRows>, 2) mat_vec(const __grid_constant__ MatVecArgs a) {
  extern __shared__ __align__(16) float shared[];
  let_next_begin();
  const uint32_t k_tiles = (a.cols + kTileCols - 1) / kTileCols;
  if (a.input_norm.weight != nullptr && threadIdx.x * 32 < a.cols)  // not in the cache yet
    asm volatile("prefetch.global.L2 [%0];" ::"l"(a.input_norm.weight + threadIdx.x * 32));
  RowsWork<F, kRows> work{a, k_tiles, blockIdx.y * kRows, 0, is_aligned(a.in)};
  multiply_block<F, kRows>(work, a.ending, tiles_of_block(a.ending, blockIdx.x, gridDim.x), k_tiles, a.cols,
                           a.input_norm, shared);
}

template <Format F, int kRows>
int launch_rows(const MatVecArgs& a, Stream stream) {
  constexpr uint32_t kManyTiles = 8 * kProductThreads<F, kRows> / 32;  // of a block: worth a second one beside it
  const uint32_t k_tiles = (a.cols + kTileCols - 1) / kTileCols, unit = tiles_of_unit(a.ending);
  const uint32_t units = row_tiles(a.ending) / unit, groups = (a.rows.n + kRows - 1) / kRows;
  const bool many = uint64_t{units} * unit * k_tiles > uint64_t{kManyTiles} * a.n_blocks;
  const uint32_t n_blocks = std::min(units, many ? 2 * a.n_blocks : a.n_blocks);
  const ProductShared<kRows> sizes(a.ending, (units + n_blocks - 1) / n_blocks * unit, k_tiles);
  return launch(mat_vec<F, kRows>, dim3(n_blocks, groups), kProductThreads<F, kRows>, sizes.bytes(), stream, a);
}

template <Format F>
int allow_shared() {
  const auto allow = [](auto* kernel) {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostProductBytes);
  };
  const int status = allow(mat_vec<F, 1>);
  return status == cudaSuccess ? allow(mat_vec<F, kMatVecRows>) : status;
}

}  // namespace

int launch_mat_vec(const MatVecArgs& a, Stream stream) {
  switch (a.format) {
#define HC_X(e)   \
  case Format::e: \
    return a.rows.n == 1 ? launch_rows<Format::e, 1>(a, stream) : launch_rows<Format::e, kMatVecRows>(a, stream);
    HC_CUDA_PACKED_CODES(HC_X)
#undef HC_X
    default: return cudaErrorInvalidValue;
  }
}

int prepare_mat_vec() {
  int status = cudaSuccess;
#define HC_X(e) \
  if (status == cudaSuccess) status = allow_shared<Format::e>();
  HC_CUDA_PACKED_CODES(HC_X)
#undef HC_X
  return status == cudaSuccess ? prepare_expert_mat_vec() : status;
}

}  // namespace honeycrisp::backend::cuda
