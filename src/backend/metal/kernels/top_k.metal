// The largest logits of each row, in descending order, ties to the lowest index, NaN last: on the device, so that one
// small read ends a token. Two launches of one kernel: each threadgroup takes the best k of a slice of 4096 logits,
// then one threadgroup per row takes the best k of those. k = 1 is the argmax.
//
// Threads: 128 per threadgroup; x counts slices, y rows. A threadgroup ranks its values k times: every thread looks at
// 32 of them for the best one that comes after the last found. Nothing is written but the result, so one barrier per
// round and a reduction do. Threadgroup memory: 48 B. Bytes: 4 per logit read, k times (the first from memory).
#include "project_args.h"

#include <metal_stdlib>
using namespace metal;

constant bool kIndexed [[function_constant(0)]];  // values come with indices: the second launch

constant constexpr uint kSimdgroups = kTopKThreads / 32;

struct Ranked {
  float value;
  uint index;
};

/// Whether a stands before b. A NaN stands after all that are none; equals stand by their indices.
static inline bool before(Ranked a, Ranked b) {
  if (isnan(a.value) || isnan(b.value)) {
    return isnan(a.value) == isnan(b.value) ? a.index < b.index : isnan(b.value);
  }
  return a.value > b.value || (a.value == b.value && a.index < b.index);
}
/// Stands after everything that can be found.
static inline Ranked none() { return {NAN, UINT_MAX}; }

/// The first of all lanes.
static inline Ranked first_of(Ranked r) {
  for (ushort step = 16; step > 0; step /= 2) {
    const Ranked other = {simd_shuffle_xor(r.value, step), simd_shuffle_xor(r.index, step)};
    if (before(other, r)) {
      r = other;
    }
  }
  return r;
}

kernel void top_k(device const float* values [[buffer(0)]],  // [rows][stride]
                  device const uint* indices [[buffer(1)]],  // [rows][stride], if kIndexed
                  device float* best [[buffer(2)]],          // [rows][slices][k]
                  device uint* best_indices [[buffer(3)]],   // [rows][slices][k]; UINT_MAX past the last value
                  constant TopKArgs& args [[buffer(4)]], uint2 group [[threadgroup_position_in_grid]],
                  uint2 groups [[threadgroups_per_grid]], uint thread_index [[thread_index_in_threadgroup]],
                  uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float round_values[2][kSimdgroups];  // of even and of odd rounds: one barrier per round
  threadgroup uint round_indices[2][kSimdgroups];
  const uint begin = group.x * args.slice;
  const uint end = min(begin + args.slice, args.count);
  device const float* row = values + ulong(group.y) * args.stride;
  device const uint* row_indices = indices + ulong(group.y) * args.stride;
  const ulong out = (ulong(group.y) * groups.x + group.x) * args.k;
  Ranked last = none();
  for (uint rank = 0; rank < args.k; ++rank) {
    Ranked mine = none();
    for (uint i = begin + thread_index; i < end; i += kTopKThreads) {
      const Ranked r = {row[i], kIndexed ? row_indices[i] : i};
      if ((rank == 0 || before(last, r)) && before(r, mine)) {
        mine = r;
      }
    }
    mine = first_of(mine);
    if (lane == 0) {
      round_values[rank % 2][simdgroup] = mine.value;
      round_indices[rank % 2][simdgroup] = mine.index;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    last = {round_values[rank % 2][0], round_indices[rank % 2][0]};
    for (uint s = 1; s < kSimdgroups; ++s) {
      const Ranked other = {round_values[rank % 2][s], round_indices[rank % 2][s]};
      if (before(other, last)) {
        last = other;
      }
    }
    if (thread_index == 0) {
      best[out + rank] = last.value;
      best_indices[out + rank] = last.index;
    }
  }
}
