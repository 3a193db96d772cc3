// The paged KV cache as kernels see it: where a head's vectors lie, rounding and storing them, loading them, and which
// positions of a chunk a row sees; writing an output, merging partial ones.
#pragma once

#include "backend/cuda/args.h"
#include "backend/cuda/kernels/launch.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace honeycrisp::backend::cuda {

constexpr uint32_t kChunk = program::kAttentionChunk, kPage = program::kPagePositions;
constexpr uint32_t kQ8Block = 32;
constexpr uint8_t kF16 = kCacheF16, kF32 = kCacheF32, kQ8 = kCacheQ8_0;

__device__ __forceinline__ uint8_t* page_memory(const CacheView& c, uint32_t page) {
  return c.chunks[page >> c.chunk_shift] + (page & ((1u << c.chunk_shift) - 1)) * c.page_bytes;
}
// Keys of one KV head in a page; its values lie value_offset further.
__device__ __forceinline__ uint8_t* head_in_page(const CacheView& c, uint32_t page, uint32_t kv_head) {
  return page_memory(c, page) + c.layer_offset + kv_head * c.head_bytes;
}
// q8_0: codes of all positions of the page first, then their scales.
__device__ __forceinline__ __half* q8_scales(uint8_t* section, uint32_t dim, uint32_t position) {
  return reinterpret_cast<__half*>(section + kPage * dim) + position * (dim / kQ8Block);
}

// Rounds a vector in shared memory to the cache's type and stores it. By one warp.
__device__ inline void store_vector(uint8_t* section, uint8_t type, uint32_t position, const float* x, uint32_t dim,
                                    int lane) {
  if (type == kF32) {
    for (uint32_t d = lane; d < dim; d += 32) reinterpret_cast<float*>(section)[position * dim + d] = x[d];
  } else if (type == kF16) {
    for (uint32_t d = lane; d < dim; d += 32)
      reinterpret_cast<__half*>(section)[position * dim + d] = __float2half_rn(x[d]);
  } else {
    for (uint32_t block = 0; block < dim / kQ8Block; ++block) {
      const float v = x[block * kQ8Block + lane];
      const float d = warp_max(fabsf(v)) / 127;
      const bool finite = __all_sync(~0u, isfinite(v));
      const float code = d == 0 || !finite ? 0.0f : rintf(v * (1 / d));
      reinterpret_cast<int8_t*>(section)[position * dim + block * kQ8Block + lane] = int8_t(code);
      if (lane == 0) q8_scales(section, dim, position)[block] = __float2half_rn(finite ? d : NAN);
    }
  }
}

// Rotates a head in shared memory by the table of its position, [pairs]{cos, sin}. By one warp.
__device__ __forceinline__ void rotate(const float* table, uint32_t n_pairs, bool interleaved, uint32_t pair_distance,
                                       float* head, int lane) {
#pragma unroll 1
  for (uint32_t i = lane; i < n_pairs; i += 32) {
    float& first = head[interleaved ? 2 * i : i];
    float& second = head[interleaved ? 2 * i + 1 : i + pair_distance];
    const float cosine = table[2 * i], sine = table[2 * i + 1], x = first, y = second;
    first = x * cosine - y * sine;
    second = x * sine + y * cosine;
  }
  __syncwarp();
}

// Eight values of a cached vector from element d on.
template <uint8_t kType>
__device__ __forceinline__ void load8(uint8_t* section, uint32_t dim, uint32_t position, uint32_t d, float (&v)[8]) {
  if constexpr (kType == kF32) {
    const auto* p = reinterpret_cast<const float4*>(reinterpret_cast<const float*>(section) + position * dim + d);
    const float4 a = p[0], b = p[1];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
  } else if constexpr (kType == kF16) {
    const uint4 w = *reinterpret_cast<const uint4*>(reinterpret_cast<const __half*>(section) + position * dim + d);
    const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 f = __half22float2(*reinterpret_cast<const __half2*>(&words[i]));
      v[2 * i] = f.x;
      v[2 * i + 1] = f.y;
    }
  } else {
    const float scale = __half2float(q8_scales(section, dim, position)[d / kQ8Block]);
    const uint2 w = *reinterpret_cast<const uint2*>(section + position * dim + d);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = scale * float(int8_t((i < 4 ? w.x : w.y) >> (8 * (i % 4))));
  }
}
// Two values from element d on.
template <uint8_t kType>
__device__ __forceinline__ float2 load2(uint8_t* section, uint32_t dim, uint32_t position, uint32_t d) {
  if constexpr (kType == kF32)
    return *reinterpret_cast<const float2*>(reinterpret_cast<const float*>(section) + position * dim + d);
  if constexpr (kType == kF16)
    return __half22float2(
        *reinterpret_cast<const __half2*>(reinterpret_cast<const __half*>(section) + position * dim + d));
  const float scale = __half2float(q8_scales(section, dim, position)[d / kQ8Block]);
  const char2 codes = *reinterpret_cast<const char2*>(section + position * dim + d);
  return {scale * float(int8_t(codes.x)), scale * float(int8_t(codes.y))};
}

// What the scores of a query at this position are multiplied by.
__device__ __forceinline__ float score_scale(const AttendArgs& a, uint32_t position) {
  if (a.temperature.beta == 0) return a.scale;
  return float(double(a.scale) * (1 + a.temperature.beta * log(1.0 + double(position / a.temperature.period))));
}

// Element d of a head's output.
__device__ __forceinline__ void write_output(const AttendArgs& a, uint32_t row, uint32_t head, uint32_t d, float out) {
  if (a.output_gate) {
    const float gate = a.q.data[size_t(row) * a.q.stride + (size_t(head) * 2 + 1) * a.cache.key_dim + d];
    out = out / (1 + expf(-gate));
  }
  a.out.data[size_t(row) * a.out.stride + size_t(head) * a.cache.value_dim + d] = out;
}

// A number as the sum of two f16, or, kBf16, of two bf16.
struct TwoParts {
  uint16_t high, low;
};
template <bool kBf16>
__device__ __forceinline__ TwoParts two_parts(float v) {
  if constexpr (kBf16) {
    const __nv_bfloat16 high = __float2bfloat16_rn(v);
    return {__bfloat16_as_ushort(high), __bfloat16_as_ushort(__float2bfloat16_rn(v - __bfloat162float(high)))};
  } else {
    const __half high = __float2half_rn(v);
    return {__half_as_ushort(high), __half_as_ushort(__float2half_rn(v - __half2float(high)))};
  }
}

struct Visible {
  uint32_t begin, end;  // positions within the chunk
};
__device__ __forceinline__ Visible visible_part(uint32_t position, uint32_t window, uint32_t chunk) {
  const uint32_t first = window != 0 && position >= window ? position - window + 1 : 0, start = chunk * kChunk;
  const uint32_t begin = first > start ? first - start : 0;
  const uint32_t end = position < start ? 0 : min(position - start + 1, kChunk);
  return {begin, end};
}

/// The merge of attention's parts, which begin at multiples of kPositions, first to last: block (head, row).
template <uint32_t kPositions>
__global__ void __launch_bounds__(128) merge_partials(const __grid_constant__ AttendArgs a) {
  let_next_begin();
  wait_for_previous();
  const uint32_t head = blockIdx.x, row = a.first_row + blockIdx.y, position = a.positions[row];
  const uint32_t dim = a.cache.value_dim;
  const uint32_t first = a.window != 0 && position >= a.window ? (position - a.window + 1) / kPositions : 0;
  const uint32_t last = position / kPositions;
  const float* partials = a.partials + (size_t(blockIdx.y) * a.n_heads + head) * a.n_chunks * (dim + 2);
  float largest = a.sinks != nullptr ? a.sinks[head] : -INFINITY;
  for (uint32_t c = first; c <= last; ++c) largest = fmaxf(largest, partials[size_t(c) * (dim + 2) + dim]);
  float sum = a.sinks != nullptr ? expf(a.sinks[head] - largest) : 0;
  for (uint32_t c = first; c <= last; ++c) {
    const float* p = partials + size_t(c) * (dim + 2) + dim;
    sum = fmaf(expf(p[0] - largest), p[1], sum);
  }
  const float inverse = 1 / sum;
  for (uint32_t d = threadIdx.x; d < dim; d += blockDim.x) {
    float total = 0;
    for (uint32_t c = first; c <= last; ++c) {
      const float* p = partials + size_t(c) * (dim + 2);
      total = fmaf(expf(p[dim] - largest), p[d], total);
    }
    write_output(a, row, head, d, total * inverse);
  }
}

}  // namespace honeycrisp::backend::cuda
