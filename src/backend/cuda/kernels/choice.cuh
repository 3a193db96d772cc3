// The choice among a mixture's experts, by the block that needs it: the kernel of the choice (mixture.cu) or the
// product of the chosen experts itself (expert_mat_vec.cu).
#pragma once

#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/mixture_args.h"

namespace honeycrisp::backend::cuda {

// Scores in shared memory are padded to this with ones that no expert is behind.
constexpr uint32_t kScorePad = 64;
__host__ __device__ __forceinline__ uint32_t padded_scores(uint32_t n) {
  return (n + kScorePad - 1) / kScorePad * kScorePad;
}

/// Shared memory of a choice.
struct ChoiceMemory {
  float *scores, *ranked;
  uint32_t* chosen;  // [top_k], best first

  __device__ __forceinline__ ChoiceMemory(const ChoiceArgs& a, float* shared)
      : scores(shared),
        ranked(shared + padded_scores(a.n_experts)),
        chosen(reinterpret_cast<uint32_t*>(shared + 2 * padded_scores(a.n_experts))) {}
  static __host__ __device__ __forceinline__ uint32_t floats(uint32_t n_experts, uint32_t top_k) {
    return 2 * padded_scores(n_experts) + (top_k + 3) / 4 * 4;
  }
};

/// Chooses for listed row i, by the whole block. An expert's rank is the number of better ones: larger scores, and
/// equal ones of a lower index. A score that is no number is worse than any. Eight lanes count for an expert.
template <int kThreads>
__device__ __forceinline__ void choose(const ChoiceArgs& a, uint32_t i, const ChoiceMemory& m) {
  constexpr uint32_t kLanes = 8;
  const float* from = a.scores + size_t(i) * (a.n_experts + 1);
  const uint32_t n = padded_scores(a.n_experts), lane = threadIdx.x % kLanes;
  for (uint32_t e = threadIdx.x; e < n; e += kThreads) {
    const float score = e < a.n_experts ? __ldcg(from + e) : -INFINITY;
    m.scores[e] = score;
    m.ranked[e] = isnan(score) ? -INFINITY : score;
  }
  __syncthreads();
  for (uint32_t e0 = 0; e0 < n; e0 += kThreads / kLanes) {  // whole warps, as n is padded
    const uint32_t e = e0 + threadIdx.x / kLanes;
    if (e >= n) break;
    const float mine = m.ranked[e];
    uint32_t rank = 0;
#pragma unroll 8
    for (uint32_t other = lane; other < n; other += kLanes)
      rank += m.ranked[other] > mine || (m.ranked[other] == mine && other < e) ? 1 : 0;
#pragma unroll
    for (uint32_t distance = 1; distance < kLanes; distance *= 2) rank += __shfl_xor_sync(~0u, rank, distance);
    if (lane == 0 && e < a.n_experts && rank < a.top_k) m.chosen[rank] = e;
  }
  __syncthreads();
}

/// Stores the experts of listed row i and their weights, by one warp.
__device__ __forceinline__ void store_choice(const ChoiceArgs& a, uint32_t i, const ChoiceMemory& m, uint32_t lane) {
  const float best = m.scores[m.chosen[0]];
  const bool among_all = a.routing == program::Routing::kSoftmaxTopK;
  float sum = 0;
  for (uint32_t e = lane; e < (among_all ? a.n_experts : a.top_k); e += 32)
    sum += expf(m.scores[among_all ? e : m.chosen[e]] - best);
  sum = warp_sum(sum);
  for (uint32_t rank = lane; rank < a.top_k; rank += 32) {
    const uint32_t e = m.chosen[rank];
    const float weight = expf(m.scores[e] - best) / sum;
    a.experts[size_t(i) * a.top_k + rank] = e;
    a.weights[size_t(i) * a.top_k + rank] = a.expert_scale != nullptr ? weight * a.expert_scale[e] : weight;
  }
}

/// Sum over a row's ranks, in order, of weight · product(rank), whose bias is included, and the shared expert's.
template <class Product>
__device__ __forceinline__ float sum_of_experts(const CombineArgs& a, uint32_t i, uint32_t row, uint32_t c,
                                                const Product& product) {
  float sum = 0;
#pragma unroll 4
  for (uint32_t rank = 0; rank < a.top_k; ++rank)
    sum = fmaf(__ldcg(a.weights + size_t(i) * a.top_k + rank), product(rank), sum);
  if (a.shared.data == nullptr) return sum;
  const float factor =
      a.shared_score != nullptr ? 1 / (1 + expf(-a.shared_score[size_t(i) * (a.n_experts + 1)])) : 1.0f;
  return fmaf(factor, a.shared.data[size_t(row) * a.shared.stride + c], sum);
}

}  // namespace honeycrisp::backend::cuda
