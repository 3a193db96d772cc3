// A block's stream of weights through shared memory: stages of up to one tile a warp, in a ring of bytes that runs on
// across ops, formats and passes. A stage is one or two bulk copies, fetched by a warp that does nothing else, which
// follows a list of stages and fetches whatever there is room for; the warps that multiply wait for a stage and let go
// of it, and never for each other.
//
// The room of an op's last stage stays empty until the next op's input has arrived (open()), so that memory is quiet
// while vectors are exchanged.
#pragma once

#include "backend/cuda/kernels/ring_room.cuh"
#include "backend/cuda/persistent_args.h"

#include <cuda_runtime.h>

namespace honeycrisp::backend::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

/// In shared memory.
struct alignas(16) RingState {
  uint64_t full[kRingSlots];   // barriers: the stage has arrived
  uint64_t empty[kRingSlots];  // barriers: all warps have let go of it
  uint2 place[kRingSlots];     // where the stage begins, and its tiles
  uint32_t taken[kRingSlots];  // bytes, with those skipped before it; kEndsOp above
  uint32_t opened;             // ops whose input has arrived
};
constexpr uint32_t kEndsOp = 1u << 31;

struct Ring {
  RingState& state;
  const uint8_t* memory;  // shared
  uint32_t bytes;
  uint32_t at = 0;  // stages used before the next; the same in every thread

  /// By the whole block, before a barrier.
  __device__ __forceinline__ void begin() {
    if (threadIdx.x < kRingSlots) {
      begin_barrier(&state.full[threadIdx.x], 1);
      begin_barrier(&state.empty[threadIdx.x], kStepWarps);
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (threadIdx.x == 0) state.opened = 0;
  }

  /// The next stage, once it is there: where it begins in the ring, and its tiles.
  __device__ __forceinline__ uint2 wait() const {
    await_barrier(&state.full[at % kRingSlots], at / kRingSlots);
    return state.place[at % kRingSlots];
  }
  /// Lets go of it, as the warp has used what it needs.
  __device__ __forceinline__ void release(int lane) {
    const uint32_t slot = at % kRingSlots;
    ++at;
    __syncwarp();  // orders all lanes' reads, of place[slot] too, before lane 0 arrives for them
    if (lane == 0)
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&state.empty[slot])) : "memory");
  }
  /// The input of the block's next op has arrived. By one thread.
  __device__ __forceinline__ void open() const {
    asm volatile("st.relaxed.cta.shared::cta.u32 [%0], %1;" ::"r"(shared_address(&state.opened)), "r"(opened() + 1));
  }

  /// Fetches the stages of a list, which ends with some without tiles. By one warp.
  __device__ __forceinline__ void fetch_all(const StepStage* stages) const {
    RingState& s = state;
    const int lane = threadIdx.x % 32;
    RingRoom room{bytes};
    uint32_t retired = 0, ended = 0;
    StepStage mine = stages[lane];  // of the next 32, the lane's
#pragma unroll 1
    for (uint32_t issued = 0;; ++issued) {
      if (issued % 32 == 0 && issued != 0) mine = stages[issued + lane];
      if (issued % 32 == 16 && lane % 4 == 0)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(stages + issued + 16 + lane));
      const int from = int(issued % 32);
      const uint32_t n_tiles = __shfl_sync(~0u, mine.n_tiles, from);
      if (n_tiles == 0) break;
      const uint32_t first = __shfl_sync(~0u, mine.bytes[0], from), second = __shfl_sync(~0u, mine.bytes[1], from);
      const uint32_t size = first + second, ends_op = __shfl_sync(~0u, mine.ends_op, from);
      uint32_t begin_at, taken;
#pragma unroll 1
      while (issued - retired == kRingSlots || !room.place(size, begin_at, taken)) {
        const uint32_t slot = retired % kRingSlots;
        await_barrier(&s.empty[slot], retired / kRingSlots);
        const uint32_t oldest = s.taken[slot];
        if ((oldest & kEndsOp) != 0) {
          ++ended;
          while (opened() <= ended) __nanosleep(20);
        }
        room.give_back(oldest & ~kEndsOp);
        ++retired;
        __syncwarp();
      }
      const uint32_t slot = issued % kRingSlots;
      if (lane == from) {
        s.place[slot] = {begin_at, n_tiles};
        s.taken[slot] = taken | (ends_op != 0 ? kEndsOp : 0);
        const uint32_t barrier = shared_address(&s.full[slot]), to = shared_address(memory) + begin_at;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(size) : "memory");
        copy(to, mine.from[0], first, barrier);
        if (second != 0) copy(to + first, mine.from[1], second, barrier);
      }
      __syncwarp();
    }
  }

 private:
  // Relaxed: it says when to fetch, and nothing that is read hangs on it.
  __device__ __forceinline__ uint32_t opened() const {
    uint32_t n;
    asm volatile("ld.relaxed.cta.shared::cta.u32 %0, [%1];" : "=r"(n) : "r"(shared_address(&state.opened)));
    return n;
  }
  static __device__ __forceinline__ void begin_barrier(uint64_t* barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
  }
  // Until the barrier's use `turn` (0, 1, …) is complete.
  static __device__ __forceinline__ void await_barrier(const uint64_t* barrier, uint32_t turn) {
    asm volatile(
        "{\n .reg .pred done;\n again_%=: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        " @!done bra again_%=;\n}" ::"r"(shared_address(barrier)),
        "r"(turn & 1)
        : "memory");
  }
  static __device__ __forceinline__ void copy(uint32_t to, const void* from, uint32_t size, uint32_t barrier) {
    // Used once: it must not push code, vectors and the KV cache out of L2.
    asm volatile(
        "{\n .reg .b64 once;\n createpolicy.fractional.L2::evict_first.b64 once, 1.0;\n"
        " cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
        "once;\n}" ::"r"(to),
        "l"(from), "r"(size), "r"(barrier)
        : "memory");
  }
};

}  // namespace honeycrisp::backend::cuda
