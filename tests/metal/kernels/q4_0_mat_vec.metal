// y = W x (+ bias), W in Q4_0 blocks. Threadgroup: any number of simdgroups; each computes kRows rows, its lanes deal
// the blocks of a row among them. x is cached in threadgroup memory once, as floats. Columns: a multiple of 32.
#include "blocks.h"

#include <metal_stdlib>
using namespace metal;

constant bool kHasBias [[function_constant(0)]];
constant uint kRowsWanted [[function_constant(1)]];
constant uint kRows = is_function_constant_defined(kRowsWanted) ? kRowsWanted : 4;
constant constexpr uint kMaxRows = 8;

struct MatVecArgs {
  uint rows;
  uint columns;
};

static inline float block_dot(device const block_q4_0& b, threadgroup const float4* x) {
  float4 products = float4(0.0f);
  float4 sums = float4(0.0f);
  for (uint i = 0; i < 4; ++i) {
    const uint4 q = uint4(b.qs[4 * i], b.qs[4 * i + 1], b.qs[4 * i + 2], b.qs[4 * i + 3]);
    const float4 low = x[i];
    const float4 high = x[i + 4];
    products = fma(float4(q & 0x0Fu), low, products);
    products = fma(float4(q >> 4u), high, products);
    sums += low + high;
  }
  return float(b.d) * (dot(products, float4(1.0f)) - 8.0f * dot(sums, float4(1.0f)));
}

kernel void q4_0_mat_vec(device const block_q4_0* w [[buffer(0)]],  // [rows][columns / 32]
                         device const float* x [[buffer(1)]],       // [columns]
                         device float* y [[buffer(2)]],             // [rows]
                         device const float* bias [[buffer(3), function_constant(kHasBias)]],
                         constant MatVecArgs& args [[buffer(4)]],
                         threadgroup float* cache [[threadgroup(0)]],  // [columns]
                         uint group [[threadgroup_position_in_grid]],
                         ushort thread_index [[thread_index_in_threadgroup]],
                         ushort threads [[threads_per_threadgroup]], ushort lane [[thread_index_in_simdgroup]],
                         ushort simdgroup [[simdgroup_index_in_threadgroup]],
                         ushort simdgroups [[simdgroups_per_threadgroup]]) {
  for (uint i = thread_index; i < args.columns; i += threads) {
    cache[i] = x[i];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);

  const uint blocks = args.columns / 32;
  const uint first = (group * simdgroups + simdgroup) * kRows;
  float sums[kMaxRows] = {0.0f};
  for (uint b = lane; b < blocks; b += 32) {
    threadgroup const float4* xb = (threadgroup const float4*)(cache + b * 32);
    for (uint r = 0; r < kRows; ++r) {
      if (first + r < args.rows) {
        sums[r] += block_dot(w[(first + r) * blocks + b], xb);
      }
    }
  }
  for (uint r = 0; r < kRows; ++r) {
    float total = simd_sum(sums[r]);
    if (lane == 0 && first + r < args.rows) {
      if (kHasBias) {
        total += bias[first + r];
      }
      y[first + r] = total;
    }
  }
}
