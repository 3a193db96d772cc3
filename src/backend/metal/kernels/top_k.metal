// The largest logits of each row, by rank as TopLogits has them (honeycrisp/top_logits.h), and how many are unusable:
// on the device, so that one small read ends a token. Two launches of one kernel: each threadgroup takes the best k of
// a slice of 4096 logits, then one threadgroup per row takes the best k of those. k = 1 is the argmax.
//
// Threads: 128 per threadgroup; x counts slices, y rows. A threadgroup ranks its values k times: every thread looks at
// 32 of them for the best one that comes after the last found. Nothing is written but the result, so one barrier per
// round and a reduction do. Threadgroup memory: 80 B. Bytes: 4 per logit read, k times (the first from memory).
#include "project_args.h"

#include <metal_stdlib>
using namespace metal;

constant bool kIndexed [[function_constant(0)]];  // values come with indices: the second launch

constant constexpr uint kSimdgroups = kTopKThreads / 32;

struct Ranked {
  float value;
  uint index;
};

static inline bool is_unusable(float value) { return isnan(value) || value == INFINITY; }
/// Whether a stands before b.
static inline bool before(Ranked a, Ranked b) {
  const bool a_unusable = is_unusable(a.value), b_unusable = is_unusable(b.value);
  if (a_unusable || b_unusable) {
    return a_unusable && b_unusable ? a.index < b.index : a_unusable;
  }
  return a.value > b.value || (a.value == b.value && a.index < b.index);
}
/// Stands after everything that can be found.
static inline Ranked none() { return {-INFINITY, UINT_MAX}; }

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
                  device const uint* counted [[buffer(2)]],  // [rows][count / k] unusable values, if kIndexed
                  device float* best [[buffer(3)]],          // [rows][slices][k]
                  device uint* best_indices [[buffer(4)]],   // [rows][slices][k]; UINT_MAX past the last value
                  device uint* unusable [[buffer(5)]],       // [rows][slices]
                  constant TopKArgs& args [[buffer(6)]], uint2 group [[threadgroup_position_in_grid]],
                  uint2 groups [[threadgroups_per_grid]], uint thread_index [[thread_index_in_threadgroup]],
                  uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float round_values[2][kSimdgroups];  // of even and of odd rounds: one barrier per round
  threadgroup uint round_indices[2][kSimdgroups];
  threadgroup uint unusable_here[kSimdgroups];
  const uint begin = group.x * args.slice;
  const uint end = min(begin + args.slice, args.count);
  device const float* row = values + ulong(group.y) * args.stride;
  device const uint* row_indices = indices + ulong(group.y) * args.stride;
  const ulong out = (ulong(group.y) * groups.x + group.x) * args.k;
  uint n_unusable = 0;
  if (kIndexed) {
    const uint n = args.count / args.k;
    for (uint i = thread_index; i < n; i += kTopKThreads) {
      n_unusable += counted[ulong(group.y) * n + i];
    }
  } else {
    for (uint i = begin + thread_index; i < end; i += kTopKThreads) {
      n_unusable += is_unusable(row[i]) ? 1 : 0;
    }
  }
  n_unusable = simd_sum(n_unusable);
  if (lane == 0) {
    unusable_here[simdgroup] = n_unusable;  // the first round's barrier is before its read
  }
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
  if (thread_index == 0) {
    uint sum = 0;
    for (uint s = 0; s < kSimdgroups; ++s) {
      sum += unusable_here[s];
    }
    unusable[group.y * groups.x + group.x] = sum;
  }
}
