// A head's vector before it attends or is cached: norm and rotation; and what all kernels of Attend know as constants.
#pragma once

#include "cache.h"

constant uint kKeyDim [[function_constant(0)]];
constant uint kValueDim [[function_constant(1)]];
constant uint kKvHeads [[function_constant(2)]];
constant uint kHeadsPerKv [[function_constant(3)]];
constant uint kQNorm [[function_constant(6)]];
constant uint kKNorm [[function_constant(7)]];
constant uint kVNorm [[function_constant(8)]];
constant bool kQWeight [[function_constant(9)]];
constant bool kKWeight [[function_constant(10)]];
constant bool kVWeight [[function_constant(11)]];
constant uint kRope [[function_constant(12)]];
constant bool kOutputGate [[function_constant(13)]];
constant bool kAppends [[function_constant(17)]];
constant bool kOwnValue [[function_constant(18)]];
constant bool kHasRope = kRope != kNoRope;
constant bool kReadsValue = kAppends && kOwnValue;
constant uint kHeads = kKvHeads * kHeadsPerKv;
constant uint kQueryStride = kOutputGate ? 2 * kKeyDim : kKeyDim;  // from a head's query to the next one's

/// One projection's norm. `weight` is bound only if `weighted`.
struct HeadNorm {
  uint kind;  // AttendNorm
  bool weighted;
  float eps;
  device const float* weight;
};

/// Head `head` of n_heads, `stride` floats apart, into `to`, normed. By one simdgroup; reads 4 dim bytes (all heads for
/// a norm over the whole projection) and the weight's.
static inline void load_head(device const float* heads, uint head, uint n_heads, uint stride, uint dim, HeadNorm norm,
                             threadgroup float* to, uint lane) {
  device const float* from = heads + head * stride;
  float scale = 1.0f;
  if (norm.kind != kNoNorm) {
    const bool whole = norm.kind == kWholeNorm;
    device const float* x = whole ? heads : from;
    const uint n = whole ? n_heads * dim : dim;
    float squares = 0.0f;
    for (uint i = lane; i < n; i += 32) {
      squares = fma(x[i], x[i], squares);
    }
    scale = 1.0f / precise::sqrt(simd_sum(squares) / float(n) + norm.eps);
  }
  const uint first_weight = norm.kind == kWholeNorm ? head * dim : 0;
  for (uint d = lane; d < dim; d += 32) {
    float v = from[d];
    if (norm.kind != kNoNorm) {
      v *= scale;
    }
    if (norm.kind != kNoNorm && norm.weighted) {
      v *= norm.weight[first_weight + d];
    }
    to[d] = v;
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

/// Rotates the pairs of a head by the table of its position, [pairs]{cos, sin}. By one simdgroup.
static inline void rotate_head(device const float2* turns, constant AttendArgs& a, threadgroup float* x, uint lane) {
  for (uint i = lane; i < a.n_pairs; i += 32) {
    const uint first = kRope == kInterleavedRope ? 2 * i : i;
    const uint second = kRope == kInterleavedRope ? first + 1 : first + a.pair_distance;
    const float2 turn = turns[i];
    const float p = x[first];
    const float q = x[second];
    x[first] = fma(p, turn.x, -(q * turn.y));
    x[second] = fma(p, turn.y, q * turn.x);
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
}
