// A mixture of experts besides its products: scores and choice of experts, pairs sorted by expert, the gated unit where
// products went to memory, and the sum over a row's experts. Every sum's order is fixed by the shapes alone.
#include "backend/cuda/kernels/ending.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/mixture_args.h"

#include <algorithm>

namespace honeycrisp::backend::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kSortThreads = 1024;
constexpr uint32_t kRouteRows = 4;  // that share what a block reads of the router

__device__ __forceinline__ float4 load4(const float* x, uint32_t k, uint32_t cols, bool aligned) {
  if (aligned && k + 4 <= cols) return *reinterpret_cast<const float4*>(x + k);
  return {x[k], k + 1 < cols ? x[k + 1] : 0, k + 2 < cols ? x[k + 2] : 0, k + 3 < cols ? x[k + 3] : 0};
}
__device__ __forceinline__ bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// Scores in shared memory are padded to this with ones that no expert is behind.
constexpr uint32_t kScorePad = 64;
__host__ __device__ __forceinline__ uint32_t padded_scores(uint32_t n) {
  return (n + kScorePad - 1) / kScorePad * kScorePad;
}

// The choice for listed row i, by the whole block. An expert's rank is the number of better ones: larger scores, and
// equal ones of a lower index. A score that is no number is worse than any. Eight lanes count for an expert.
__device__ void choose(const RouteArgs& a, uint32_t i, float* scores, uint32_t* chosen, float* reduction) {
  constexpr uint32_t kLanes = 8;
  const float* from = a.scores + size_t(i) * (a.n_experts + 1);
  const uint32_t n = padded_scores(a.n_experts), lane = threadIdx.x % kLanes;
  float* ranked = scores + n;
  for (uint32_t e = threadIdx.x; e < n; e += kThreads) {
    const float score = e < a.n_experts ? __ldcg(from + e) : -INFINITY;
    scores[e] = score;
    ranked[e] = isnan(score) ? -INFINITY : score;
  }
  __syncthreads();
  for (uint32_t e = threadIdx.x / kLanes; e < n; e += kThreads / kLanes) {  // whole warps
    const float mine = ranked[e];
    uint32_t rank = 0;
#pragma unroll 8
    for (uint32_t other = lane; other < n; other += kLanes)
      rank += ranked[other] > mine || (ranked[other] == mine && other < e) ? 1 : 0;
#pragma unroll
    for (uint32_t distance = 1; distance < kLanes; distance *= 2) rank += __shfl_xor_sync(~0u, rank, distance);
    if (lane == 0 && e < a.n_experts && rank < a.top_k) chosen[rank] = e;
  }
  __syncthreads();
  const float best = scores[chosen[0]];
  const bool among_all = a.routing == program::Routing::kSoftmaxTopK;
  float sum = 0;
  for (uint32_t e = threadIdx.x; e < (among_all ? a.n_experts : a.top_k); e += kThreads)
    sum += expf(scores[among_all ? e : chosen[e]] - best);
  sum = block_sum<kThreads>(sum, reduction);
  for (uint32_t rank = threadIdx.x; rank < a.top_k; rank += kThreads) {
    const uint32_t e = chosen[rank];
    const float weight = expf(scores[e] - best) / sum;
    a.experts[size_t(i) * a.top_k + rank] = e;
    a.weights[size_t(i) * a.top_k + rank] = a.expert_scale != nullptr ? weight * a.expert_scale[e] : weight;
  }
  __syncthreads();
}

// Block (eight experts, kRows listed rows), a warp per expert; the last block of some rows to end chooses for them.
template <int kRows>
__global__ void __launch_bounds__(kThreads) route(const __grid_constant__ RouteArgs a) {
  extern __shared__ float shared[];
  __shared__ float reduction[kWarps];
  __shared__ bool is_last;
  let_next_begin();
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = blockIdx.y * kRows;
  const uint32_t output = blockIdx.x * kWarps + warp, n_outputs = a.n_experts + (a.shared_scale != nullptr ? 1 : 0);
  const bool routes = output < a.n_experts;
  const float* weights = routes ? a.matrix + size_t(output) * a.cols : a.shared_scale;
  const NormArgs& norm = routes && a.router_norm.present ? a.router_norm : a.input_norm;
  if (output < n_outputs)
    for (uint32_t k = lane * 32; k < a.cols; k += 1024) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(weights + k));
      if (norm.weight != nullptr) asm volatile("prefetch.global.L2 [%0];" ::"l"(norm.weight + k));
    }
  const float* x[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    x[r] = a.in.data + size_t(a.rows.index[min(first + r, a.rows.n - 1)]) * a.in.stride;  // repeated past the end
  wait_for_previous();

  float rms[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    rms[r] = 1;
    if (!a.input_norm.present && !a.router_norm.present) continue;
    float squares = 0;
#pragma unroll 8
    for (uint32_t k = threadIdx.x; k < a.cols; k += kThreads) squares = fmaf(x[r][k], x[r][k], squares);
    squares = block_sum<kThreads>(squares, reduction);
    if (norm.present) rms[r] = 1 / sqrtf(squares / float(a.cols) + norm.eps);
  }
  if (output < n_outputs) {
    const bool aligned = is_aligned(weights) && is_aligned(a.in.data) && a.in.stride % 4 == 0;
    float sums[kRows] = {};
#pragma unroll 8
    for (uint32_t k = lane * 4; k < a.cols; k += 128) {
      float4 w = load4(weights, k, a.cols, aligned);
      if (norm.weight != nullptr) {
        const float4 n = load4(norm.weight, k, a.cols, true);
        w = {w.x * n.x, w.y * n.y, w.z * n.z, w.w * n.w};
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float4 v = load4(x[r], k, a.cols, aligned);
        sums[r] = fmaf(w.x, v.x, sums[r]);
        sums[r] = fmaf(w.y, v.y, sums[r]);
        sums[r] = fmaf(w.z, v.z, sums[r]);
        sums[r] = fmaf(w.w, v.w, sums[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float score = warp_sum(sums[r]) * rms[r];
      if (routes && a.bias != nullptr) score += a.bias[output];
      if (lane == 0 && first + r < a.rows.n)
        a.scores[size_t(first + r) * (a.n_experts + 1) + (routes ? output : a.n_experts)] = score;
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicAdd(a.counters + blockIdx.y, 1u) + 1 == gridDim.x;
    __threadfence();
    if (is_last) a.counters[blockIdx.y] = 0;
  }
  __syncthreads();
  if (!is_last) return;
  for (uint32_t i = first; i < min(first + kRows, a.rows.n); ++i)
    choose(a, i, shared, reinterpret_cast<uint32_t*>(shared + 2 * padded_scores(a.n_experts)), reduction);
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
  const float shared_factor =
      a.shared_score != nullptr ? 1 / (1 + expf(-a.shared_score[size_t(i) * (a.n_experts + 1)])) : 1.0f;
  const auto sum_at = [&](uint32_t c) {
    float sum = 0;
#pragma unroll 4
    for (uint32_t rank = 0; rank < a.top_k; ++rank) {
      const size_t pair = size_t(i) * a.top_k + rank;
      float v = a.products.data[pair * a.products.stride + c];
      if (a.bias != nullptr) v += a.bias[size_t(a.experts[pair]) * a.cols + c];
      sum = fmaf(a.weights[pair], v, sum);
    }
    if (a.shared.data != nullptr) sum = fmaf(shared_factor, a.shared.data[size_t(row) * a.shared.stride + c], sum);
    return sum;
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

uint32_t route_bytes(uint32_t n_experts, uint32_t top_k) {
  return (2 * padded_scores(n_experts) + top_k) * sizeof(float);
}

int launch_route(const RouteArgs& a, Stream stream) {
  const uint32_t n_outputs = a.n_experts + (a.shared_scale != nullptr ? 1 : 0);
  const bool one = a.rows.n == 1;
  const dim3 grid((n_outputs + kWarps - 1) / kWarps, one ? 1 : (a.rows.n + kRouteRows - 1) / kRouteRows);
  return launch(one ? route<1> : route<kRouteRows>, grid, kThreads, route_bytes(a.n_experts, a.top_k), stream, a);
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
