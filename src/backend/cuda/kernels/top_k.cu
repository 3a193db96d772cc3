// The largest logits of each row by rank, as TopLogits has them, and how many are unusable. A block per row and slice
// keeps the k best of 4096 values; the block of a row that ends last keeps the k best of all of theirs and writes them
// out, straight into host memory. Ranks are whole numbers and no two are equal (backend/rank.h), so the result
// does not depend on which block ends last, nor on the order in which candidates are found.
//
// Keeping the k best takes no k rounds: pairs of threads hold 34 ranks each, of which each pair knows its best; the
// k-th of these, found by counting, is a bound that at most k pairs reach, so that at most 34 k ranks are left, mostly
// about k. Their places are counted among themselves.
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/top_k_args.h"
#include "backend/rank.h"

namespace honeycrisp::backend::cuda {
namespace {

constexpr uint32_t kThreads = 256, kPairs = kThreads / 2, kPerThread = kTopKSlice / kThreads;
// A thread's ranks: its values', and one of the best of the values before.
constexpr uint32_t kRanks = kPerThread + 1;

struct Shared {
  uint64_t pair_best[kPairs];
  uint64_t bound;
  uint32_t n_found;
  uint32_t is_last;
  uint64_t found[kMostTopK * 2 * kRanks];
  uint64_t best[kMostTopK];  // in order; 0: none
};

/// The k best of rank(0), ..., rank(n − 1) into s.best. Ends with all threads in step.
template <class RankAt>
__device__ void keep_best(uint32_t n, uint32_t k, Shared& s, RankAt rank_at) {
  const uint32_t t = threadIdx.x;
  for (uint32_t base = 0; base < n; base += kTopKSlice) {
    uint64_t mine[kRanks], best = 0;
#pragma unroll
    for (uint32_t i = 0; i < kPerThread; ++i) {
      const uint32_t at = base + i * kThreads + t;
      mine[i] = at < n ? rank_at(at) : 0;
    }
    mine[kPerThread] = base != 0 && t < k ? s.best[t] : 0;
#pragma unroll
    for (uint32_t i = 0; i < kRanks; ++i) best = max(best, mine[i]);
    best = max(best, __shfl_xor_sync(~0u, best, 1));
    if (t % 2 == 0) s.pair_best[t / 2] = best;
    if (t == 0) s.n_found = s.bound = 0;
    __syncthreads();
    uint32_t above = 0;  // of half the pairs; the other thread counts the other half
#pragma unroll 8
    for (uint32_t i = t % 2; i < kPairs; i += 2) above += s.pair_best[i] > best ? 1 : 0;
    above += __shfl_xor_sync(~0u, above, 1);
    if (above == k - 1) s.bound = best;  // one pair, unless it has none
    __syncthreads();
    const uint64_t bound = max(s.bound, uint64_t{1});
#pragma unroll
    for (uint32_t i = 0; i < kRanks; ++i)
      if (mine[i] >= bound) s.found[atomicAdd(&s.n_found, 1u)] = mine[i];
    __syncthreads();
    const uint32_t n_found = s.n_found;
    if (t >= n_found && t < k) s.best[t] = 0;
    for (uint32_t c = t; c < n_found; c += kThreads) {
      const uint64_t rank = s.found[c];
      uint32_t place = 0;
#pragma unroll 8
      for (uint32_t i = 0; i < n_found; ++i) place += s.found[i] > rank ? 1 : 0;
      if (place < k) s.best[place] = rank;
    }
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kThreads) top_k(TopKArgs a) {
  let_next_begin();
  wait_for_previous();
  __shared__ Shared s;
  const uint32_t t = threadIdx.x, row = blockIdx.y, n_slices = gridDim.x;
  const uint32_t first = blockIdx.x * kTopKSlice;
  const float* logits = a.logits + size_t(row) * a.stride;
  uint64_t* candidates = a.candidates + size_t(row) * n_slices * a.k;
  uint32_t* n_done = a.counters + 2 * row;
  uint32_t* n_unusable = n_done + 1;

  uint32_t unusable = 0;
  keep_best(min(kTopKSlice, a.count - first), a.k, s, [&](uint32_t i) {
    const float logit = logits[first + i];
    unusable += is_unusable(logit) ? 1 : 0;
    return rank_of(logit, first + i);
  });
  if (unusable != 0) atomicAdd(n_unusable, unusable);
  if (t < a.k) candidates[size_t(blockIdx.x) * a.k + t] = s.best[t];
  __threadfence();
  __syncthreads();
  if (t == 0) s.is_last = atomicAdd(n_done, 1u) == n_slices - 1;
  __syncthreads();
  if (!s.is_last) return;
  __threadfence();

  keep_best(n_slices * a.k, a.k, s, [&](uint32_t i) { return __ldcg(candidates + i); });
  if (t < a.k && s.best[t] != 0) {
    const uint32_t token = token_of(s.best[t]);
    a.values[size_t(row) * a.k + t] = logits[token];  // its own bits: a rank does not tell −0 from +0
    a.tokens[size_t(row) * a.k + t] = token;
  }
  if (t == 0) {
    if (a.best != nullptr && row == 0) *a.best = int32_t(token_of(s.best[0]));
    *n_done = 0;
    a.unusable[row] = atomicExch(n_unusable, 0u);
  }
}

}  // namespace

int launch_top_k(const TopKArgs& a, uint32_t n_rows, Stream stream) {
  return launch(top_k, dim3(top_k_slices(a.count), n_rows), kThreads, 0, stream, a);
}

}  // namespace honeycrisp::backend::cuda
