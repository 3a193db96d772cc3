// What turns activations into the integers that products take, and what undoes it: powers of two, of a block of 32.
#pragma once

#include <cstdint>
#include <cuda_runtime.h>

namespace honeycrisp::backend::cuda {

__device__ __forceinline__ uint32_t magnitude_bits(float v) { return __float_as_uint(v) & 0x7fffffff; }

/// Brings the largest magnitude of a block, whose bits are `largest`, to between 2^13 and 2^14. Integers have eleven
/// significant bits and stay below 127 · 128: a largest that would be rounded to that, 16252 / 8192 and more, counts as
/// two.
struct BlockScale {
  float before, after;

  __device__ __forceinline__ explicit BlockScale(uint32_t largest) {
    constexpr uint32_t kNearTwo = 0x021000, kInfinite = 0x7f800000;
    const uint32_t exponent = max((largest + kNearTwo) >> 23, 20u);  // biased
    before = __uint_as_float((267 - exponent) << 23);
    after = largest >= kInfinite ? __uint_as_float(0x7fffffff) : __uint_as_float((exponent - 13) << 23);
  }
  __device__ __forceinline__ int integer(float v) const {
    // Veltkamp's splitting: the 11 leading bits, rounded to nearest.
    const float scaled = v * before, times = scaled * 8193.0f;
    return __float2int_rn(times + (scaled - times));
  }
};

}  // namespace honeycrisp::backend::cuda
