// What the kernels' headers need of CUDA's, for a C++ compiler: so much that products of packed tiles run on the host.
// Functions that lanes of a warp call together are in warp.h.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#define __host__
#define __device__
#define __constant__
#define __forceinline__ inline

struct uint2 {
  alignas(8) uint32_t x;
  uint32_t y;
};
struct uint4 {
  alignas(16) uint32_t x;
  uint32_t y, z, w;
};
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
struct float2 {
  alignas(8) float x;
  float y;
};

template <class T>
T __ldcs(const T* p) {
  return *p;
}
inline float __uint_as_float(uint32_t v) { return std::bit_cast<float>(v); }
inline uint32_t __float_as_uint(float v) { return std::bit_cast<uint32_t>(v); }
inline float __int_as_float(int v) { return std::bit_cast<float>(v); }
inline float __double2float_rn(double v) { return float(v); }
inline int __float2int_rn(float v) { return int(std::nearbyint(v)); }
using std::max;
using std::min;
inline int __popc(int v) { return std::popcount(uint32_t(v)); }
inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t by) {
  return uint32_t((uint64_t{high} << 32 | low) << (by & 31) >> 32);
}
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t by) {
  return uint32_t((uint64_t{high} << 32 | low) >> (by & 31));
}
/// As the instruction, prmt: bit 3 of a selector repeats the byte's sign.
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selectors) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t selector = selectors >> (4 * i) & 15, byte = uint32_t(bytes >> (8 * (selector & 7))) & 255;
    result |= (selector < 8 ? byte : byte >= 128 ? 255u : 0u) << (8 * i);
  }
  return result;
}

// By a lane together with the others of its warp.
uint32_t shuffled(uint32_t v, int from);
template <class T>
T __shfl_sync(unsigned, T v, int from) {
  return std::bit_cast<T>(shuffled(std::bit_cast<uint32_t>(v), from));
}
int this_lane();
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int with) {
  return __shfl_sync(mask, v, this_lane() ^ with);
}
