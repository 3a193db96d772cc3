// Counts of 16 classes: first within the threadgroup, then added to the device's counts.
#include <metal_stdlib>
using namespace metal;

constant constexpr uint kClasses = 16;

kernel void histogram(device const uchar* values [[buffer(0)]],
                      device atomic_uint* counts [[buffer(1)]],  // [kClasses]
                      constant uint& count [[buffer(2)]], uint i [[thread_position_in_grid]],
                      uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup atomic_uint local_counts[kClasses];
  if (thread_index < kClasses) {
    atomic_store_explicit(&local_counts[thread_index], 0u, memory_order_relaxed);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (i < count) {
    atomic_fetch_add_explicit(&local_counts[values[i] % kClasses], 1u, memory_order_relaxed);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (thread_index < kClasses) {
    const uint n = atomic_load_explicit(&local_counts[thread_index], memory_order_relaxed);
    atomic_fetch_add_explicit(&counts[thread_index], n, memory_order_relaxed);
  }
}

// Exclusive prefix sum of one threadgroup's elements, through device memory in two phases.
kernel void prefix_sum(device const uint* values [[buffer(0)]],
                       device uint* sums [[buffer(1)]],    // [threads]
                       device uint* totals [[buffer(2)]],  // [simdgroups]
                       uint thread_index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint before = simd_prefix_exclusive_sum(values[thread_index]);
  if (lane == 31) {
    totals[simdgroup] = before + values[thread_index];
  }
  threadgroup_barrier(mem_flags::mem_device);
  uint start = 0;
  for (uint s = 0; s < simdgroup; ++s) {
    start += totals[s];
  }
  sums[thread_index] = start + before;
}
