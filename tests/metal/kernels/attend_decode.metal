// Attention of one new position over `positions` cached ones. One threadgroup per query head. The cached positions are
// dealt to the simdgroups, each keeps a running softmax over its own, and the first merges them in a fixed order.
#include <metal_stdlib>
using namespace metal;

struct AttendArgs {
  uint positions;
  uint kv_heads;
  uint heads_per_kv;
  float scale;
};

constant constexpr uint kMaxSimdgroups = 8;

template <typename T, uint D>
kernel void attend_decode(device const float* q [[buffer(0)]],  // [heads][D]
                          device const T* k [[buffer(1)]],      // [positions][kv_heads][D]
                          device const T* v [[buffer(2)]],      // [positions][kv_heads][D]
                          device float* out [[buffer(3)]],      // [heads][D]
                          constant AttendArgs& args [[buffer(4)]], uint head [[threadgroup_position_in_grid]],
                          uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                          uint simdgroups [[simdgroups_per_threadgroup]]) {
  constexpr uint kPart = D / 32;  // elements of a head that a lane holds
  threadgroup float maxima[kMaxSimdgroups];
  threadgroup float weights[kMaxSimdgroups];
  threadgroup float partial[kMaxSimdgroups][D];

  const uint kv_head = head / args.heads_per_kv;
  float query[kPart];
  float sum[kPart];
  for (uint i = 0; i < kPart; ++i) {
    query[i] = q[head * D + lane * kPart + i] * args.scale;
    sum[i] = 0.0f;
  }
  float maximum = -INFINITY;
  float weight = 0.0f;
  for (uint p = simdgroup; p < args.positions; p += simdgroups) {
    const uint at = (p * args.kv_heads + kv_head) * D + lane * kPart;
    float score = 0.0f;
    for (uint i = 0; i < kPart; ++i) {
      score = fma(query[i], float(k[at + i]), score);
    }
    score = simd_sum(score);
    const float raised = max(maximum, score);
    const float old_scale = precise::exp(maximum - raised);
    const float new_scale = precise::exp(score - raised);
    weight = weight * old_scale + new_scale;
    for (uint i = 0; i < kPart; ++i) {
      sum[i] = sum[i] * old_scale + new_scale * float(v[at + i]);
    }
    maximum = raised;
  }
  if (lane == 0) {
    maxima[simdgroup] = maximum;
    weights[simdgroup] = weight;
  }
  for (uint i = 0; i < kPart; ++i) {
    partial[simdgroup][lane * kPart + i] = sum[i];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);

  if (simdgroup == 0) {
    const float mine = lane < simdgroups ? maxima[lane] : -INFINITY;
    const float all = simd_max(mine);
    const float share = lane < simdgroups ? exp(mine - all) * weights[lane] : 0.0f;
    const float total = simd_sum(share);
    for (uint i = 0; i < kPart; ++i) {
      float o = 0.0f;
      for (uint s = 0; s < simdgroups; ++s) {
        o += exp(maxima[s] - all) * partial[s][lane * kPart + i];
      }
      out[head * D + lane * kPart + i] = o / total;
    }
  }
}

template [[host_name("attend_decode_f16_64")]] kernel decltype(attend_decode<half, 64>) attend_decode<half, 64>;
template [[host_name("attend_decode_bf16_96")]] kernel decltype(attend_decode<bfloat, 96>) attend_decode<bfloat, 96>;
template [[host_name("attend_decode_f32_128")]] kernel decltype(attend_decode<float, 128>) attend_decode<float, 128>;
