// f16 for the kernels' headers, as cuda_runtime.h beside it.
#pragma once

#include "base/half.h"
#include "cuda_runtime.h"

struct __half {
  uint16_t bits;
};
struct __half2 {
  __half x, y;
};

inline __half __ushort_as_half(uint16_t bits) { return {bits}; }
inline __half __float2half_rn(float v) { return {honeycrisp::f32_to_f16(v)}; }
inline float __half2float(__half h) { return honeycrisp::f16_to_f32(h.bits); }
inline float2 __half22float2(__half2 h) { return {__half2float(h.x), __half2float(h.y)}; }
inline __half2 __floats2half2_rn(float x, float y) {
  return {{honeycrisp::f32_to_f16(x)}, {honeycrisp::f32_to_f16(y)}};
}
