// Vectors that carry their own arrival between the blocks of the persistent kernel: writers publish floats, readers
// poll until none is poison. Both sides use relaxed accesses of device scope, each float is checked itself, and what
// was there before is ordered by the kernel boundary: no fence is needed. A reader that waits too long gives up, tells
// the other blocks and the host, and from then on takes whatever there is: the kernel ends, with an error.
#pragma once

#include "backend/cuda/persistent_args.h"

#include <cuda_runtime.h>

namespace honeycrisp::backend::cuda {

__device__ __forceinline__ uint64_t nanoseconds() {
  uint64_t t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

/// Watches how long a kernel waits. One per block, in shared memory.
struct Watchdog {
  uint32_t* failed;  // memory of the host
  uint64_t deadline;
  uint32_t hung;

  __device__ void begin(uint32_t* flag, uint64_t patience_ns) {
    failed = flag;
    deadline = nanoseconds() + patience_ns;
    hung = 0;
  }
  /// Looked at now and then by who waits.
  __device__ __forceinline__ bool gives_up() volatile {
    if (hung != 0) return true;
    uint32_t told;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(told) : "l"(failed) : "memory");
    if (told == 0 && nanoseconds() < deadline) return false;
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(failed), "r"(1u) : "memory");
    hung = 1;
    return true;
  }
};

constexpr uint32_t kPollsBetweenLooks = 4096;

__device__ __forceinline__ void publish(float* to, float v) {
  // No result has the poison's bits: a NaN of the hardware is 0x7fffffff, and what else there may be becomes that.
  const uint32_t bits = __float_as_uint(v);
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(bits == kPoison ? 0x7fffffffu : bits) : "memory");
}
__device__ __forceinline__ float look(const float* from) {
  uint32_t bits;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(bits) : "l"(from) : "memory");
  return __uint_as_float(bits);
}
__device__ __forceinline__ float4 look4(const float* from) {
  float4 v;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(from)
               : "memory");
  return v;
}
__device__ __forceinline__ bool is_poison(float v) { return __float_as_uint(v) == kPoison; }

/// What was seen, or what arrives.
__device__ __forceinline__ float await(float seen, const float* from, Watchdog& dog) {
  for (uint32_t polls = 1; is_poison(seen); ++polls) {
    seen = look(from);
    if (polls % kPollsBetweenLooks == 0 && dog.gives_up()) break;
  }
  return seen;
}
__device__ __forceinline__ float await(const float* from, Watchdog& dog) { return await(look(from), from, dog); }

/// Until so many have added to the counter, whose writes are seen then.
__device__ __forceinline__ void await_count(const uint32_t* counter, uint32_t n, Watchdog& dog) {
  uint32_t seen;
  for (uint32_t polls = 1;; ++polls) {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
    if (seen >= n || (polls % kPollsBetweenLooks == 0 && dog.gives_up())) break;
  }
}

}  // namespace honeycrisp::backend::cuda
