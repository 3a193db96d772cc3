// What the pieces of the persistent kernel share: a block's fixed shared memory and its place in the step.
#pragma once

#include "backend/cuda/kernels/exchange.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/ring.cuh"

namespace honeycrisp::backend::cuda {

constexpr int kWarps = kStepWarps, kThreads = kStepThreads;

// What a row of activations is multiplied with: before the product (a power of two) and after it.
struct RowScale {
  float before, after;
};

struct BlockMemory {
  uint64_t barriers[kWarps * kRingSlots];
  Fetcher fetchers[kWarps];
  StepOp ops[2];       // of this and the next pass
  StepPass passes[3];  // this, the next and the one after it
  RowScale scales[kStepRows];
  float2 measures[kStepRows * kWarps];  // of inputs, by warp: sum of squares, largest
  Watchdog dog;
  uint32_t poison_piece;                       // words of 16 bytes, of a pass
  float2 whole[kWarps * kMostStepHeadsPerKv];  // largest score and sum, of attention's parts
};

__device__ __forceinline__ void copy_async(void* to, const void* from, uint32_t bytes, int lane) {
  if (uint32_t(lane) * 16 >= bytes) return;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(shared_address(to) + lane * 16),
               "l"(static_cast<const uint8_t*>(from) + lane * 16)
               : "memory");
}

/// The block's passes. fetch() copies the pass after the next, and the next one's op, while this pass runs; by one
/// warp, after the block has left the pass before. finish_fetch() comes before a __syncthreads().
struct Itinerary {
  const StepPass* passes;
  uint32_t n, at = 0;

  __device__ __forceinline__ const StepPass& pass(const BlockMemory& s) const { return s.passes[at % 3]; }
  __device__ __forceinline__ const StepOp& op(const BlockMemory& s) const { return s.ops[at % 2]; }
  __device__ __forceinline__ void fetch(BlockMemory& s, const StepOp* ops, int warp, int lane) const {
    if (warp != kWarps - 1) return;
    if (at + 1 < n) copy_async(&s.ops[(at + 1) % 2], ops + s.passes[(at + 1) % 3].op, sizeof(StepOp), lane);
    if (at + 2 < n) copy_async(&s.passes[(at + 2) % 3], passes + at + 2, sizeof(StepPass), lane);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  __device__ __forceinline__ void finish_fetch(int warp) const {
    if (warp == kWarps - 1) asm volatile("cp.async.wait_all;" ::: "memory");
  }
};

}  // namespace honeycrisp::backend::cuda
