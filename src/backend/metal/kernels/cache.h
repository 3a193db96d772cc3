// The paged cache of keys and values as kernels see it: where a head's vectors lie, how they are rounded and stored,
// and loads of four elements. One struct per type of the cache. A section is a head's keys or values in one page: [64
// positions][dim]; q8_0 has all codes first and then the scales [64][dim / 32].
#pragma once

#include <metal_stdlib>
using namespace metal;

#include "attend_args.h"  // after MSL's integers

constant constexpr uint kPage = 64;     // positions
constant constexpr uint kChunk = 256;   // positions; chunks start at multiples of it
constant constexpr uint kQ8Block = 32;  // elements with one scale

/// Keys of one KV head in a page.
static inline device uchar* head_in_page(device uchar* pages, constant CacheArgs& cache, uint page, uint kv_head) {
  return pages + (ulong(page) * cache.page_bytes + ulong(kv_head) * cache.head_bytes);
}

// store(): by one simdgroup, x in threadgroup memory as all its lanes see it. Reads 4 dim bytes, writes a vector.
// load4(): elements d .. d + 3; dim and d are multiples of four, so that every load is aligned.

struct CacheF32 {
  static inline void store(device uchar* section, uint dim, uint position, threadgroup const float* x, uint lane) {
    device float* to = (device float*)section + position * dim;
    for (uint d = lane; d < dim; d += 32) {
      to[d] = x[d];
    }
  }
  static inline float4 load4(device const uchar* section, uint dim, uint position, uint d) {
    return *(device const float4*)((device const float*)section + position * dim + d);
  }
};

struct CacheF16 {
  static inline void store(device uchar* section, uint dim, uint position, threadgroup const float* x, uint lane) {
    device half* to = (device half*)section + position * dim;
    for (uint d = lane; d < dim; d += 32) {
      to[d] = half(x[d]);
    }
  }
  static inline float4 load4(device const uchar* section, uint dim, uint position, uint d) {
    return float4(*(device const half4*)((device const half*)section + position * dim + d));
  }
};

struct CacheQ8 {
  static inline device half* scales(device uchar* section, uint dim, uint position) {
    return (device half*)(section + kPage * dim) + position * (dim / kQ8Block);
  }
  static inline void store(device uchar* section, uint dim, uint position, threadgroup const float* x, uint lane) {
    device char* codes = (device char*)section + position * dim;
    for (uint block = 0; block < dim / kQ8Block; ++block) {
      const float v = x[block * kQ8Block + lane];
      const bool finite = simd_all(isfinite(v));  // else the whole block becomes NaN: codes cannot say it
      const float d = simd_max(fabs(v)) / 127.0f;
      codes[block * kQ8Block + lane] = finite && d != 0.0f ? char(rint(v * (1.0f / d))) : char(0);
      if (lane == 0) {
        scales(section, dim, position)[block] = finite ? half(d) : half(NAN);
      }
    }
  }
  static inline float4 load4(device const uchar* section, uint dim, uint position, uint d) {
    device const half* scale = (device const half*)(section + kPage * dim) + position * (dim / kQ8Block);
    return float(scale[d / kQ8Block]) * float4(*(device const char4*)(section + position * dim + d));
  }
};
