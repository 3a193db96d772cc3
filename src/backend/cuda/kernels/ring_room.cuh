// Where stages lie in a ring of bytes that is filled in order and given back in order. Knows nothing of barriers.
#pragma once

#include <cstdint>
#include <cuda_runtime.h>

namespace honeycrisp::backend::cuda {

struct RingRoom {
  uint32_t bytes;              // of the ring
  uint32_t put = 0, used = 0;  // where the last stage ends; bytes that are taken

  /// False: a stage of `size` has no room yet. Else it lies at `at`, and takes `taken` bytes, with those that it skips.
  __device__ __forceinline__ bool place(uint32_t size, uint32_t& at, uint32_t& taken) {
    if (used == 0) put = 0;
    const bool wraps = put + size > bytes;  // nothing is skipped where the stage before ends with the ring
    taken = size + (wraps ? bytes - put : 0);
    if (used + taken > bytes) return false;
    at = wraps ? 0 : put;
    put = at + size;
    used += taken;
    return true;
  }
  /// The oldest stage's bytes.
  __device__ __forceinline__ void give_back(uint32_t taken) { used -= taken; }
};

}  // namespace honeycrisp::backend::cuda
