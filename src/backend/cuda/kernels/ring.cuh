// A warp's stream of weights through shared memory: bulk copies of one tile each into a ring of bytes, running on
// across ops. Tiles of different sizes follow each other; one that does not fit before the ring's end begins at its
// start. Producer and consumer are the same warp and walk the same list of sizes, so both know where each tile lies.
// All state is the same in every lane.
#pragma once

#include "backend/cuda/persistent_args.h"

#include <cuda_runtime.h>

namespace honeycrisp::backend::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void barrier_begin(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void barriers_begun() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

/// What fetches: the next tiles' addresses. In shared memory, used by the warp's first lane only.
struct alignas(16) Fetcher {
  uint4 ahead;  // the span after the present one, on its way
  const uint8_t* from;
  uint32_t left, size;  // of the present span
  const StepSpan* next;
  uint32_t put, slot;  // where the next tile goes
  uint32_t used;       // bytes that are taken, with what was skipped at the ring's end
};

struct Ring {
  Fetcher& fetcher;
  const uint8_t* memory;  // shared
  uint32_t barriers, bytes;
  uint32_t take = 0, freed = 0;  // offset of the next tile to use; bytes skipped before it
  uint32_t slot = 0, phase = 0;

  __device__ __forceinline__ Ring(Fetcher& f, uint8_t* ring, uint64_t* bars, uint32_t ring_bytes, const StepSpan* spans,
                                  int lane)
      : fetcher(f), memory(ring), barriers(shared_address(bars)), bytes(ring_bytes) {
    if (lane != 0) return;
    f.next = spans;
    f.from = nullptr;
    f.left = f.size = f.put = f.slot = f.used = 0;
    look_ahead();
  }

  __device__ __forceinline__ void look_ahead() {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(shared_address(&fetcher.ahead)), "l"(fetcher.next)
                 : "memory");
  }

  /// Fetches the next tile if there is room; by the first lane.
  __device__ __forceinline__ bool fetch_one(uint32_t given_back) {
    Fetcher& f = fetcher;
    uint32_t left = f.left, size = f.size;
    const uint32_t used = f.used - given_back;
    if (left == 0) {
      asm volatile("cp.async.wait_all;" ::: "memory");
      const uint4 span = f.ahead;
      f.used = used;
      if (span.z == 0) return false;
      f.from = reinterpret_cast<const uint8_t*>(uint64_t(span.y) << 32 | span.x);
      left = f.left = span.z;
      size = f.size = span.w;
      ++f.next;
      look_ahead();
    }
    uint32_t put = f.put;
    const bool wraps = put + size > bytes;
    const uint32_t taken = used + (wraps ? bytes - put : 0) + size;
    if (taken > bytes) {
      f.used = used;
      return false;
    }
    if (wraps) put = 0;
    const uint8_t* from = f.from;
    const uint32_t slot_now = f.slot, barrier = barriers + slot_now * 8;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(size) : "memory");
    // Used once: it must not push code, vectors and the KV cache out of L2.
    asm volatile(
        "{\n .reg .b64 once;\n createpolicy.fractional.L2::evict_first.b64 once, 1.0;\n"
        " cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
        "once;\n}" ::"r"(shared_address(memory) + put),
        "l"(from), "r"(size), "r"(barrier)
        : "memory");
    f.from = from + size;
    f.left = left - 1;
    f.put = put + size;
    f.slot = slot_now + 1 == kRingSlots ? 0 : slot_now + 1;
    f.used = taken;
    return true;
  }
  /// Fetches as many tiles as there is room for.
  __device__ __forceinline__ void refill(int lane) {
    if (lane != 0) return;
#pragma unroll 1
    while (fetch_one(0)) {
    }
  }

  /// The next tile, once it is there.
  __device__ __forceinline__ const uint8_t* wait(uint32_t tile) {
    if (take + tile > bytes) {
      freed = bytes - take;
      take = 0;
    }
    asm volatile(
        "{\n .reg .pred done;\n again_%=: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        " @!done bra again_%=;\n}" ::"r"(barriers + slot * 8),
        "r"(phase)
        : "memory");
    return memory + take;
  }
  /// Gives its room back, as all lanes have read it, and fetches one more unless `holds_back`.
  __device__ __forceinline__ void release(uint32_t tile, bool holds_back, int lane) {
    const uint32_t bytes_back = tile + freed;
    freed = 0;
    take += tile;
    if (++slot == kRingSlots) {
      slot = 0;
      phase ^= 1;
    }
    if (lane != 0) return;
    if (holds_back)
      fetcher.used -= bytes_back;
    else
      (void)fetch_one(bytes_back);
  }
};

}  // namespace honeycrisp::backend::cuda
