// What the pieces of the persistent kernel share: a block's fixed shared memory and its place in the step.
#pragma once

#include "backend/cuda/kernels/cache.cuh"
#include "backend/cuda/kernels/exchange.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/ring.cuh"

namespace honeycrisp::backend::cuda {

// The warps that compute. A group of four more has the one that fetches weights; registers are dealt out anew between
// them, as these are given out in units of a group.
constexpr int kWarps = kStepWarps, kThreads = kStepThreads;
constexpr int kFetchThreads = 128, kFetchRegisters = 32, kRegisters = 112;
constexpr int kLaunchRegisters = 65536 / (kThreads + kFetchThreads) / 8 * 8;  // of a thread: the block has no others
static_assert(kFetchThreads * kFetchRegisters + kThreads * kRegisters <= (kThreads + kFetchThreads) * kLaunchRegisters);

/// A barrier of the warps that compute.
__device__ __forceinline__ void sync_warps() { asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory"); }

constexpr uint32_t kPagesPerChunk = program::kAttentionChunk / program::kPagePositions;
constexpr uint32_t kFoundItems = 8;  // items of an op, of either of two pools, that a block remembers
struct AttendItem {
  uint32_t row, kv_head, chunk;  // row: of the launch; chunk: absolute
  uint32_t first_chunk, n_chunks;
  Visible visible;
};
/// An attention item, where its pages lie, and what a step does with it. window .. ordinal: what it follows from.
struct FoundItem {
  uint8_t* pages[kPagesPerChunk];
  AttendItem item;
  bool owns;          // the row's own position lies in the chunk
  uint32_t appended;  // rows of the launch, as bits, whose keys lie in the chunk and before the row's end
  uint32_t fresh;     // sixteen positions each, as bits: those that other rows append to
  uint32_t window, pool, kv_heads, ordinal;
};

struct BlockMemory {
  RingState ring;
  StepOp ops[3];                           // of the pass before, this and the next
  StepPass passes[4];                      // the pass before, this, the next and the one after it
  float scales[kStepRows];                 // 1 / rms of inputs
  float squares[kStepRows * kMostKTiles];  // of inputs, by k tile; kEnd: by warp
  Watchdog dog;
  uint32_t poison_piece;                       // words of 16 bytes, of a pass
  float2 whole[kWarps * kMostStepHeadsPerKv];  // largest score and sum, of attention's parts
  FoundItem items[kFoundItems * 2];
};

// Opaque, so that what follows from it is computed again wherever it is needed, instead of once for all passes and kept
// in local memory, which is an L2 round trip away.
__device__ __forceinline__ uint32_t this_thread() {
  uint32_t thread = threadIdx.x;
  asm volatile("" : "+r"(thread));
  return thread;
}

// Turns of the warps at what waits for the pass before: first those that have neither its outputs to end, which fall to
// the first warps, nor the last three warps' chores.
__device__ __forceinline__ uint32_t turn_of(int warp) { return uint32_t(kWarps - 4 - warp) % kWarps; }

__device__ __forceinline__ void copy_async(void* to, const void* from, uint32_t bytes, int lane) {
  if (uint32_t(lane) * 16 >= bytes) return;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(shared_address(to) + lane * 16),
               "l"(static_cast<const uint8_t*>(from) + lane * 16)
               : "memory");
}

/// The block's passes. fetch() copies the pass after the next, and the next one's op, while this pass runs; by one
/// warp, while others may still be in the pass before. finish_fetch() comes before a sync_warps().
struct Itinerary {
  const StepPass* passes;
  uint32_t n, at = 0;

  __device__ __forceinline__ const StepPass& pass(const BlockMemory& s) const { return s.passes[at % 4]; }
  __device__ __forceinline__ const StepOp& op(const BlockMemory& s) const { return s.ops[at % 3]; }
  __device__ __forceinline__ void fetch(BlockMemory& s, const StepOp* ops, int warp, int lane) const {
    if (warp != kWarps - 1) return;
    if (at + 1 < n) copy_async(&s.ops[(at + 1) % 3], ops + s.passes[(at + 1) % 4].op, sizeof(StepOp), lane);
    if (at + 2 < n) copy_async(&s.passes[(at + 2) % 4], passes + at + 2, sizeof(StepPass), lane);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  __device__ __forceinline__ void finish_fetch(int warp) const {
    if (warp == kWarps - 1) asm volatile("cp.async.wait_all;" ::: "memory");
  }
};

}  // namespace honeycrisp::backend::cuda
