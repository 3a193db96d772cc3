// A block's stream of weights through shared memory: stages of up to one tile a warp, in a ring of bytes that runs on
// across ops, formats and passes. A stage is one or two bulk copies. No warp is a producer: the warps take turns at
// giving back what came before the stage that they have just used, and at fetching what then has room, so that whoever
// is last does not fall behind further; after the last stage of a pass, which all wait for, a warp that has nothing
// else to do gives back instead. Which bytes come next is a list that travels the same way: with stage i comes the
// description of stage i + kRingSlots, which takes its slot.
//
// Who gives back is alone: the warp lets go of stage i only afterwards, and the next turn waits for all to have let go
// of stage i, or cannot come before the stage is fetched that it is for. The room of an op's last stage stays empty
// until the next op's input has arrived, so that memory is quiet while vectors are exchanged: then the warp whose turn
// comes next gives it back.
#pragma once

#include "backend/cuda/persistent_args.h"

#include <cuda_runtime.h>

namespace honeycrisp::backend::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

/// In shared memory.
struct alignas(16) RingState {
  StepStage ahead[kRingSlots];  // stage i in slot i % kRingSlots, from when stage i - kRingSlots has arrived
  uint64_t full[kRingSlots];    // barriers: the stage and what follows it have arrived
  uint64_t empty[kRingSlots];   // barriers: all warps have let go of it
  uint2 place[kRingSlots];      // where the stage begins, and its tiles
  uint32_t taken[kRingSlots];   // bytes, with those skipped before it
  uint32_t put, used;           // where the next stage begins; bytes that are taken
  uint32_t issued, retired;     // stages
  const StepStage* next;        // description of stage issued + kRingSlots
};

struct Ring {
  RingState& state;
  const uint8_t* memory;  // shared
  uint32_t bytes;
  uint32_t at = 0;  // stages used before the next; the same in every thread

  /// By the whole block, before a barrier. A list has kRingSlots descriptions without tiles at its end.
  __device__ __forceinline__ void begin(const StepStage* stages) {
    constexpr uint32_t kWords = kRingSlots * sizeof(StepStage) / sizeof(uint4);
    if (threadIdx.x < kWords) {
      reinterpret_cast<uint4*>(state.ahead)[threadIdx.x] = __ldg(reinterpret_cast<const uint4*>(stages) + threadIdx.x);
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // bulk copies write the same slots later
    }
    if (threadIdx.x < kRingSlots) {
      begin_barrier(&state.full[threadIdx.x], 1);
      begin_barrier(&state.empty[threadIdx.x], kStepWarps);
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (threadIdx.x == 0) {
      state.put = state.used = state.issued = state.retired = 0;
      state.next = stages + kRingSlots;
    }
  }

  /// Whether the warp gives back what comes before the next stage to use.
  __device__ __forceinline__ bool its_turn(int warp) const { return at % kStepWarps == uint32_t(warp); }
  /// The next stage, once it is there: where it begins in the ring, and its tiles.
  __device__ __forceinline__ uint2 wait() const {
    await_barrier(&state.full[at % kRingSlots], at / kRingSlots);
    return state.place[at % kRingSlots];
  }
  /// Lets go of it, as the warp has used what it needs. `last`: close() follows.
  __device__ __forceinline__ void release(int warp, int lane, bool last) {
    const bool turn = its_turn(warp) && !last;
    const uint32_t slot = at % kRingSlots;
    ++at;
    __syncwarp();
    if (lane != 0) return;
    if (turn) give_back(at - 1);
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&state.empty[slot])) : "memory");
    if (turn && state.issued == at) give_back(at);  // the next stage needs this one's room
  }
  /// By one thread, once all have let go of the last stage of a pass, before they go on to the next.
  __device__ __forceinline__ void close() const {
    if (at == 0) return;
    give_back(at - 1);
    if (state.issued == at) give_back(at);  // the next stage needs the last one's room
  }
  /// Takes back all stages before `end`, and fetches as many as there is room for. By one thread.
  __device__ __forceinline__ void give_back(uint32_t end) const {
    RingState& s = state;
    // All have let go of what comes before, and whose turn it was is done.
    if (end != 0) await_barrier(&s.empty[(end - 1) % kRingSlots], (end - 1) / kRingSlots);
    uint32_t used = s.used, put = s.put, issued = s.issued, retired = s.retired;
    const StepStage* next = s.next;
#pragma unroll 1
    for (; retired != end; ++retired) used -= s.taken[retired % kRingSlots];
#pragma unroll 1
    while (issued != retired + kRingSlots) {
      const uint32_t slot = issued % kRingSlots;
      const StepStage stage = s.ahead[slot];
      const uint32_t size = stage.bytes[0] + stage.bytes[1];
      if (stage.n_tiles == 0) break;
      if (used == 0) put = 0;
      const bool wraps = put + size > bytes;
      const uint32_t taken = size + (wraps ? bytes - put : 0);
      if (used + taken > bytes) break;
      if (wraps) put = 0;
      s.place[slot] = {put, stage.n_tiles};
      s.taken[slot] = taken;
      const uint32_t barrier = shared_address(&s.full[slot]), to = shared_address(memory) + put;
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                   "r"(size + uint32_t(sizeof(StepStage)))
                   : "memory");
      copy(to, stage.from[0], stage.bytes[0], barrier);
      if (stage.bytes[1] != 0) copy(to + stage.bytes[0], stage.from[1], stage.bytes[1], barrier);
      copy(shared_address(&s.ahead[slot]), next, sizeof(StepStage), barrier);
      ++next;
      ++issued;
      used += taken;
      put += size;
    }
    s.used = used;
    s.put = put;
    s.issued = issued;
    s.retired = retired;
    s.next = next;
  }

 private:
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
