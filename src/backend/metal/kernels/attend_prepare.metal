// What goes before attend for rows of a prompt, or several rows of a sequence, which read each other's keys: norms and
// rotates the queries, and appends keys and values to the cache.
//
// A simdgroup takes one head of one row: query heads first, then heads of keys, then of values; the grid is (heads by
// four simdgroups, rows). Reads a head's floats once (twice with a norm; all heads with a norm over the projection),
// writes them once. Threadgroup memory: 4 · 4 · max(key_dim, value_dim) bytes.
#include "attend_head.h"

template <typename Cache>
kernel void attend_prepare(device const float* q [[buffer(0)]],  // rows of [heads][query (, gate)]
                           device const float* k [[buffer(1), function_constant(kAppends)]],
                           device const float* v [[buffer(2), function_constant(kReadsValue)]],
                           device float* prepared [[buffer(3)]],  // [rows][heads][key_dim]
                           device uchar* pages [[buffer(6)]], device const uint* positions [[buffer(7)]],
                           device const uint* table_start [[buffer(8)]],  // [rows][pools]
                           device const uint* tables [[buffer(9)]],
                           device const float2* rope [[buffer(10), function_constant(kHasRope)]],
                           device const float* q_weight [[buffer(11), function_constant(kQWeight)]],
                           device const float* k_weight [[buffer(12), function_constant(kKWeight)]],
                           device const float* v_weight [[buffer(13), function_constant(kVWeight)]],
                           constant AttendArgs& a [[buffer(15)]],
                           threadgroup float* heads [[threadgroup(0)]],  // [simdgroups][max(key_dim, value_dim)]
                           uint2 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                           uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint row = group.y;
  const uint position = positions[row];
  uint head = group.x * HC_PREPARE_SIMDGROUPS + simdgroup;
  device const float2* turns = rope + position * a.n_pairs;
  threadgroup float* x = heads + simdgroup * max(kKeyDim, kValueDim);
  if (head < kHeads) {
    const HeadNorm norm = {kQNorm, kQWeight, a.q_eps, q_weight};
    load_head(q + row * a.q_stride, head, kHeads, kQueryStride, kKeyDim, norm, x, lane);
    if (kHasRope) {
      rotate_head(turns, a, x, lane);
    }
    device float* to = prepared + (row * kHeads + head) * kKeyDim;
    for (uint d = lane; d < kKeyDim; d += 32) {
      to[d] = x[d];
    }
    return;
  }
  head -= kHeads;
  if (!kAppends || head >= 2 * kKvHeads) {
    return;
  }
  const uint page = tables[table_start[row * a.n_pools + a.pool] + position / kPage];
  const bool is_value = head >= kKvHeads;
  head -= is_value ? kKvHeads : 0;
  device uchar* section = head_in_page(pages, a.cache, page, head);
  if (!is_value) {
    const HeadNorm norm = {kKNorm, kKWeight, a.k_eps, k_weight};
    load_head(k + row * a.k_stride, head, kKvHeads, kKeyDim, kKeyDim, norm, x, lane);
    if (kHasRope) {
      rotate_head(turns, a, x, lane);
    }
    Cache::store(section, kKeyDim, position % kPage, x, lane);
  } else {
    const HeadNorm norm = {kVNorm, kVWeight, a.v_eps, v_weight};
    device const float* values = kOwnValue ? v + row * a.v_stride : k + row * a.k_stride;
    load_head(values, head, kKvHeads, kValueDim, kValueDim, norm, x, lane);
    Cache::store(section + a.cache.value_offset, kValueDim, position % kPage, x, lane);
  }
}

template [[host_name("attend_prepare_f32")]] kernel decltype(attend_prepare<CacheF32>) attend_prepare<CacheF32>;
template [[host_name("attend_prepare_f16")]] kernel decltype(attend_prepare<CacheF16>) attend_prepare<CacheF16>;
template [[host_name("attend_prepare_q8_0")]] kernel decltype(attend_prepare<CacheQ8>) attend_prepare<CacheQ8>;
