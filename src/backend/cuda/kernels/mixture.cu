// A mixture of experts besides its products: scores and choice of experts, pairs sorted by expert, the gated unit where
// products went to memory, and the sum over a row's experts. Every sum's order is fixed by the shapes alone.
#include "backend/cuda/kernels/choice.cuh"
#include "backend/cuda/kernels/ending.cuh"
#include "backend/cuda/kernels/launch.cuh"

#include <algorithm>

namespace honeycrisp::backend::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kSortThreads = 1024;
constexpr uint32_t kRouteRows = 4;  // that share what a block reads of the router

template <bool kPastL1 = false>
__device__ __forceinline__ float4 load4(const float* x, uint32_t k, uint32_t cols, bool aligned) {
  if (aligned && k + 4 <= cols) {
    const auto* p = reinterpret_cast<const float4*>(x + k);
    return kPastL1 ? __ldcg(p) : *p;
  }
  const auto at = [&](uint32_t i) { return i >= cols ? 0.0f : kPastL1 ? __ldcg(x + i) : x[i]; };
  return {at(k), at(k + 1), at(k + 2), at(k + 3)};
}
__device__ __forceinline__ bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// Block (an output, kRows listed rows). A thread holds the weights of its first columns before the rows have come.
template <int kRows>
__global__ void __launch_bounds__(kThreads) route(const __grid_constant__ RouteArgs a) {
  constexpr int kAhead = 2;
  __shared__ float2 sums[kRows][kWarps];  // {of products, of squares}
  let_next_begin();
  const uint32_t output = blockIdx.x, first = blockIdx.y * kRows;
  const bool routes = output < a.n_experts;
  const float* weights = routes ? a.matrix + size_t(output) * a.cols : a.shared_scale;
  const NormArgs& norm = routes && a.router_norm.present ? a.router_norm : a.input_norm;
  const bool aligned = is_aligned(weights) && is_aligned(a.in.data) && a.in.stride % 4 == 0;
  const auto weight_at = [&](uint32_t k) {
    float4 w = load4(weights, k, a.cols, aligned);
    if (norm.weight == nullptr) return w;
    const float4 n = load4(norm.weight, k, a.cols, true);
    return float4{w.x * n.x, w.y * n.y, w.z * n.z, w.w * n.w};
  };
  float4 ahead[kAhead] = {};
#pragma unroll
  for (int j = 0; j < kAhead; ++j)
    if (const uint32_t k = 4 * (threadIdx.x + j * kThreads); k < a.cols) ahead[j] = weight_at(k);
  const float* x[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    x[r] = a.in.data + size_t(a.rows.index[min(first + r, a.rows.n - 1)]) * a.in.stride;  // repeated past the end
  wait_for_previous();
  float2 both[kRows] = {};
#pragma unroll
  for (int j = 0; j <= kAhead; ++j) {
    for (uint32_t k = 4 * (threadIdx.x + j * kThreads); k < a.cols; k += 4 * kThreads) {
      const float4 w = j < kAhead ? ahead[j] : weight_at(k);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float4 v = load4<true>(x[r], k, a.cols, aligned);
        both[r].x = fmaf(w.w, v.w, fmaf(w.z, v.z, fmaf(w.y, v.y, fmaf(w.x, v.x, both[r].x))));
        both[r].y = fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, both[r].y))));
      }
      if (j < kAhead) break;
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    both[r] = {warp_sum(both[r].x), warp_sum(both[r].y)};
    if (threadIdx.x % 32 == 0) sums[r][threadIdx.x / 32] = both[r];
  }
  __syncthreads();
  const uint32_t i = first + threadIdx.x;
  if (threadIdx.x < kRows && i < a.rows.n) {
    float score = 0, squares = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      score += sums[threadIdx.x][w].x;
      squares += sums[threadIdx.x][w].y;
    }
    if (norm.present) score *= 1 / sqrtf(squares / float(a.cols) + norm.eps);
    if (routes && a.bias != nullptr) score += a.bias[output];
    a.scores[size_t(i) * (a.n_experts + 1) + (routes ? output : a.n_experts)] = score;
  }
}

// A block per listed row.
__global__ void __launch_bounds__(kThreads) choose_experts(const __grid_constant__ ChoiceArgs a) {
  extern __shared__ __align__(16) float shared[];
  let_next_begin();
  wait_for_previous();
  const ChoiceMemory m(a, shared);
  choose<kThreads>(a, blockIdx.x, m);
  if (threadIdx.x < 32) store_choice(a, blockIdx.x, m, threadIdx.x);
}

struct SortArgs {
  Pairs pairs;
  uint32_t n_experts, n_tiles, tile_slots;
  uint32_t* slots;
  ExpertTile* tiles;
};

// One block. Which slot of its expert a pair gets does not matter: slots are columns of the product, which do not mix.
__global__ void __launch_bounds__(kSortThreads) sort_pairs(const __grid_constant__ SortArgs a) {
  extern __shared__ uint32_t counts[];  // [n_experts] pairs, then first tiles
  uint32_t* first_tile = counts + a.n_experts;
  __shared__ uint32_t n_used;
  let_next_begin();
  for (uint32_t e = threadIdx.x; e < a.n_experts; e += kSortThreads) counts[e] = 0;
  wait_for_previous();
  __syncthreads();
  for (uint32_t p = threadIdx.x; p < a.pairs.n; p += kSortThreads) atomicAdd(counts + a.pairs.experts[p], 1u);
  __syncthreads();
  const auto tiles_of = [&](uint32_t e) { return (counts[e] + a.tile_slots - 1) / a.tile_slots; };
  if (threadIdx.x < 32) {
    uint32_t before = 0;
    for (uint32_t e0 = 0; e0 < a.n_experts; e0 += 32) {
      const uint32_t e = e0 + threadIdx.x, mine = e < a.n_experts ? tiles_of(e) : 0;
      uint32_t up_to = mine;
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const uint32_t other = __shfl_up_sync(~0u, up_to, distance);
        if (threadIdx.x >= uint32_t(distance)) up_to += other;
      }
      if (e < a.n_experts) first_tile[e] = before + up_to - mine;
      before += __shfl_sync(~0u, up_to, 31);
    }
    if (threadIdx.x == 0) n_used = before;
  }
  __syncthreads();
  for (uint32_t e = threadIdx.x; e < a.n_experts; e += kSortThreads)
    for (uint32_t t = 0; t < tiles_of(e); ++t)
      a.tiles[first_tile[e] + t] = {e, min(a.tile_slots, counts[e] - t * a.tile_slots)};
  for (uint32_t t = n_used + threadIdx.x; t < a.n_tiles; t += kSortThreads) a.tiles[t] = {0, 0};
  __syncthreads();
  for (uint32_t p = threadIdx.x; p < a.pairs.n; p += kSortThreads) {
    const uint32_t e = a.pairs.experts[p];
    a.slots[first_tile[e] * a.tile_slots + atomicSub(counts + e, 1u) - 1] = p;
  }
}

__global__ void __launch_bounds__(kThreads) gate_pairs(const __grid_constant__ GatePairsArgs a) {
  let_next_begin();
  wait_for_previous();
  const uint32_t r = blockIdx.x * kThreads + threadIdx.x;
  if (r >= a.n) return;
  for (uint32_t pair = blockIdx.y; pair < a.pairs.n; pair += gridDim.y) {
    const float* y = a.products.data + size_t(pair) * a.products.stride;
    float gate = y[r], up = y[a.n + r];
    const size_t bias = size_t(a.pairs.experts[pair]) * a.n + r;
    if (a.bias[0] != nullptr) gate += a.bias[0][bias];
    if (a.bias[1] != nullptr) up += a.bias[1][bias];
    a.hidden[size_t(pair) * a.n + r] = gated(a.activation, gate, up);
  }
}

// Block (listed row, slice of the columns; all of them where there is a norm).
__global__ void __launch_bounds__(kThreads) combine(const __grid_constant__ CombineArgs a) {
  __shared__ float reduction[kWarps];
  let_next_begin();
  wait_for_previous();
  const uint32_t i = blockIdx.x, row = a.rows.index[i], begin = blockIdx.y * kThreads + threadIdx.x;
  const uint32_t step = gridDim.y * kThreads;
  float* y = a.products.data + size_t(i) * a.top_k * a.products.stride;  // of the best expert, then the sum
  const auto sum_at = [&](uint32_t c) {
    return sum_of_experts(a, i, row, c, [&](uint32_t rank) {
      const size_t pair = size_t(i) * a.top_k + rank;
      const float v = a.products.data[pair * a.products.stride + c];
      return a.bias != nullptr ? v + a.bias[size_t(a.experts[pair]) * a.cols + c] : v;
    });
  };
  const auto end = [&](uint32_t c, float v) {
    float& x = a.x.data[size_t(row) * a.x.stride + c];
    x = a.residual_scale * (x + a.branch_scale * v);
  };
  const auto with_addend = [&](uint32_t c, float v) {
    return a.add.data != nullptr ? v + a.add.data[size_t(row) * a.add.stride + c] : v;
  };
  if (!a.branch_norm.present && !a.post_norm.present) {
    for (uint32_t c = begin; c < a.cols; c += step) end(c, with_addend(c, sum_at(c)));
    return;
  }
  const auto scale_of = [&](const NormArgs& norm, float squares) {
    return norm.present ? 1 / sqrtf(block_sum<kThreads>(squares, reduction) / float(a.cols) + norm.eps) : 1.0f;
  };
  const auto normed = [&](const NormArgs& norm, float scale, float v, uint32_t c) {
    return !norm.present ? v : norm.weight != nullptr ? v * scale * norm.weight[c] : v * scale;
  };
  float squares = 0;
  for (uint32_t c = begin; c < a.cols; c += step) {
    y[c] = sum_at(c);
    squares = fmaf(y[c], y[c], squares);
  }
  const float branch = scale_of(a.branch_norm, squares);
  squares = 0;
  for (uint32_t c = begin; c < a.cols; c += step) {
    y[c] = with_addend(c, normed(a.branch_norm, branch, y[c], c));
    squares = fmaf(y[c], y[c], squares);
  }
  const float post = scale_of(a.post_norm, squares);
  for (uint32_t c = begin; c < a.cols; c += step) end(c, normed(a.post_norm, post, y[c], c));
}

}  // namespace

int launch_route(const RouteArgs& a, Stream stream) {
  const uint32_t n_outputs = a.n_experts + (a.shared_scale != nullptr ? 1 : 0);
  const bool one = a.rows.n == 1;
  const dim3 grid(n_outputs, one ? 1 : (a.rows.n + kRouteRows - 1) / kRouteRows);
  return launch(one ? route<1> : route<kRouteRows>, grid, kThreads, 0, stream, a);
}

int launch_choose(const ChoiceArgs& a, uint32_t n_rows, Stream stream) {
  return launch(choose_experts, n_rows, kThreads, ChoiceMemory::floats(a.n_experts, a.top_k) * sizeof(float), stream,
                a);
}

int launch_sort_pairs(const Pairs& pairs, uint32_t n_experts, const SortedPairs& sorted, Stream stream) {
  const SortArgs a{pairs,
                   n_experts,
                   sorted.n_tiles,
                   sorted.tile_slots,
                   const_cast<uint32_t*>(sorted.slots),
                   const_cast<ExpertTile*>(sorted.tiles)};
  return launch(sort_pairs, 1, kSortThreads, 2 * size_t(n_experts) * sizeof(uint32_t), stream, a);
}

int launch_gate_pairs(const GatePairsArgs& a, Stream stream) {
  return launch(gate_pairs, dim3((a.n + kThreads - 1) / kThreads, std::min(a.pairs.n, 65535u)), kThreads, 0, stream, a);
}

int launch_combine(const CombineArgs& a, Stream stream) {
  const uint32_t slices = a.branch_norm.present || a.post_norm.present ? 1 : (a.cols + kThreads - 1) / kThreads;
  return launch(combine, dim3(a.rows.n, slices), kThreads, 0, stream, a);
}

}  // namespace honeycrisp::backend::cuda
