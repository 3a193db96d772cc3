// What needs a whole row: norms of a prompt's input, residuals that wait for one, and the ending of a Store with a
// norm.
#include "offsets.h"
#include "project_args.h"
#include "row_norm.h"

#include <metal_stdlib>
using namespace metal;

constant bool kNorm [[function_constant(7)]];
constant bool kNormWeight [[function_constant(8)]];
constant bool kPending [[function_constant(9)]];
constant bool kPendingWeight [[function_constant(10)]];
constant bool kAdd [[function_constant(15)]];

/// Sum over the threadgroup of each thread's share, for all threads.
static inline float sum_of_all(float share, threadgroup float* partial, uint lane, uint simdgroup) {
  threadgroup_barrier(mem_flags::mem_threadgroup);  // the sums before have been read
  deposit(share, partial, lane, simdgroup);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return total(partial);
}

// One threadgroup per batch row. If kPending, x becomes what waits for it, in place; if kNorm, out is its norm.
// Bytes per element: 4 read (8 more if kPending), 4 written for each of the two.
kernel void prepare_rows(device float* x [[buffer(0)]],                   // [rows][in_stride]; written if kPending
                         device const float* pending_y [[buffer(1)]],     // [rows][y_stride], if kPending
                         device const float* pending_norm [[buffer(2)]],  // [width], if kPendingWeight
                         device const float* norm [[buffer(3)]],          // [width], if kNormWeight
                         device float* out [[buffer(4)]],                 // [rows][width], if kNorm
                         constant PrepareRowsArgs& args [[buffer(5)]], uint row [[threadgroup_position_in_grid]],
                         uint thread_index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                         uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float partial[kProjectSimdgroups];
  device float* row_x = x + batch_offset(row, args.in_stride);
  if (kPending) {
    device const float* y = pending_y + batch_offset(row, args.pending.y_stride);
    const float squares = sum_of_all(squares_of(y, args.width, thread_index), partial, lane, simdgroup);
    const float y_inverse = inverse_rms(squares, args.width, args.pending.eps);
    for (uint i = thread_index; i < args.width; i += kProjectThreads) {
      row_x[i] = resolved(row_x[i], y[i], y_inverse, kPendingWeight ? pending_norm[i] : 1.0f, args.pending);
    }
  }
  if (kNorm) {  // each thread reads the elements that it has written
    const float squares = sum_of_all(squares_of(row_x, args.width, thread_index), partial, lane, simdgroup);
    const float inverse = inverse_rms(squares, args.width, args.norm_eps);
    device float* row_out = out + batch_offset(row, args.width);
    for (uint i = thread_index; i < args.width; i += kProjectThreads) {
      const float v = row_x[i] * inverse;
      row_out[i] = kNormWeight ? v * norm[i] : v;
    }
  }
}

// out = out_scale · (add + norm(scale · y)): one threadgroup per run of a batch row (x: runs, y: rows).
// Bytes per element: 4 read (8 with add), 4 written.
kernel void finish_rows(device const float* y [[buffer(0)]],     // [rows][y_stride]
                        device const float* norm [[buffer(1)]],  // [run], if kNormWeight
                        device const float* add [[buffer(2)]],   // [rows][add_stride], if kAdd
                        device float* out [[buffer(3)]],         // [rows][out_stride]; may be add
                        constant FinishRowsArgs& args [[buffer(4)]], uint2 at [[threadgroup_position_in_grid]],
                        uint thread_index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                        uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float partial[kProjectSimdgroups];
  device const float* run_y = y + batch_offset(at.y, args.y_stride) + at.x * args.run;
  float share = 0.0f;
  for (uint i = thread_index; i < args.run; i += kProjectThreads) {
    const float v = run_y[i] * args.scale;
    share = fma(v, v, share);
  }
  const float inverse = inverse_rms(sum_of_all(share, partial, lane, simdgroup), args.run, args.eps);
  device float* run_out = out + batch_offset(at.y, args.out_stride) + at.x * args.run;
  device const float* run_add = add + batch_offset(at.y, args.add_stride) + at.x * args.run;
  for (uint i = thread_index; i < args.run; i += kProjectThreads) {
    float v = run_y[i] * args.scale * inverse;
    v = kNormWeight ? v * norm[i] : v;
    run_out[i] = args.out_scale * (kAdd ? run_add[i] + v : v);
  }
}
