// RMS norms of rows, and residuals that wait for one: the same sums in the same order wherever they are made, so that a
// row's bits do not depend on which kernel was chosen. A threadgroup of kProjectThreads threads works on a row: thread
// t adds the squares of elements t, t + 128, ..., simdgroups add their lanes, and the simdgroups' sums are added in
// order.
#pragma once

#include "project_args.h"

#include <metal_stdlib>
using namespace metal;

/// 1 / sqrt(mean + eps), not by rsqrt: its last bit is not specified.
static inline float inverse_rms(float squares, uint width, float eps) {
  return 1.0f / precise::sqrt(squares / float(width) + eps);
}

/// This thread's share of a row's squares.
static inline float squares_of(device const float* row, uint width, uint thread_index) {
  float sum = 0.0f;
  for (uint i = thread_index; i < width; i += kProjectThreads) {
    sum = fma(row[i], row[i], sum);
  }
  return sum;
}

/// Puts a simdgroup's sum where total() finds it. partial: [kProjectSimdgroups]. A barrier belongs in between.
static inline void deposit(float share, threadgroup float* partial, uint lane, uint simdgroup) {
  const float sum = simd_sum(share);
  if (lane == 0) {
    partial[simdgroup] = sum;
  }
}
static inline float total(threadgroup const float* partial) {
  float sum = partial[0];
  for (uint s = 1; s < kProjectSimdgroups; ++s) {
    sum += partial[s];
  }
  return sum;
}

/// An element of x after the residual that waits on it: residual_scale · (x + branch_scale · y · inverse_rms · weight).
static inline float resolved(float x, float y, float y_inverse, float weight, constant PendingArgs& args) {
  return args.residual_scale * (x + args.branch_scale * (y * y_inverse * weight));
}
