// One result per thread, each of a rule of the language or of a library function; the test knows what they must be.
#include <metal_stdlib>
using namespace metal;

struct Packed {
  uchar head;
  packed_float3 v;
};
static_assert(sizeof(packed_float3) == 12 && sizeof(float3) == 16 && sizeof(half4) == 8, "sizes");

kernel void simd_functions(device const float* x [[buffer(0)]],  // [32]
                           device float* out [[buffer(1)]],      // [16][32]
                           uint lane [[thread_index_in_simdgroup]]) {
  const float v = x[lane];
  device float* row = out + lane;
  row[0 * 32] = simd_sum(v);
  row[1 * 32] = simd_max(v);
  row[2 * 32] = simd_min(v);
  row[3 * 32] = simd_product(lane < 3 ? v : 1.0f);
  row[4 * 32] = simd_prefix_inclusive_sum(v);
  row[5 * 32] = simd_prefix_exclusive_sum(v);
  row[6 * 32] = simd_shuffle(v, ushort(31 - lane));
  row[7 * 32] = simd_shuffle_xor(v, 5);
  row[8 * 32] = simd_shuffle_up(v, 3);
  row[9 * 32] = simd_shuffle_down(v, 3);
  row[10 * 32] = simd_broadcast(v, 7);
  row[11 * 32] = simd_broadcast_first(v);
  row[12 * 32] = float(simd_any(lane == 9)) + 2.0f * float(simd_all(lane < 32)) + 4.0f * float(simd_all(lane < 31));
  row[13 * 32] = float(ulong(simd_vote::vote_t(simd_ballot(lane % 8 == 1))) % 65536ul);
  row[14 * 32] = simd_sum(float4(v, 1.0f, 2.0f, 3.0f)).w;
  row[15 * 32] = float(simd_xor(lane)) + float(simd_or(lane)) + float(simd_and(lane));
}

// The lanes from 20 on end early; the rest go on among themselves.
kernel void early_end(device const float* x [[buffer(0)]],
                      device float* out [[buffer(1)]],  // [20]
                      uint lane [[thread_index_in_simdgroup]]) {
  if (lane >= 20) {
    return;
  }
  out[lane] = simd_sum(x[lane]);
}

kernel void language(device const Packed* packed [[buffer(0)]],
                     device float* out [[buffer(1)]],  // [32]
                     uint i [[thread_position_in_grid]]) {
  const float4 v = float4(1.0f, 2.0f, 3.0f, 4.0f);
  float4 w = float4(v.xy, v.wz);
  w.zw = w.wz;
  const float3 p = packed[0].v;
  float r = 0.0f;
  switch (i) {
    case 0: r = dot(v, w); break;
    case 1: r = float4(v.wzyx).x; break;
    case 2: r = float3(v.yzw).z; break;
    case 3: r = float(half(2049.0f)); break;                         // ties to even: 2048
    case 4: r = float(half(1.0f) / half(3.0f) * half(3.0f)); break;  // rounded twice
    case 5: r = float(bfloat(1.00390625f)); break;                   // ties to even: 1
    case 6: r = float(as_type<uint>(1.0f) >> 23); break;
    case 7: r = as_type<half2>(0x3C004000u).x; break;
    case 8: r = p.x + 10.0f * p.y + 100.0f * p.z; break;
    case 9: r = float(char(-1)); break;
    case 10: r = float(uint4(int4(-1)).x >> 31); break;
    case 11: r = select(1.0f, 2.0f, v.x < v.y); break;
    case 12: r = float(all(v == v)) + float(any(v != v)); break;
    case 13: r = clamp(5.0f, -1.0f, 1.5f); break;
    case 14: r = mix(2.0f, 4.0f, 0.25f); break;
    case 15: r = float(popcount(0xF0F0u)) + float(clz(1u)) + float(ctz(8u)); break;
    case 16: r = length(float2(3.0f, 4.0f)); break;
    case 17: r = fast::exp2(3.0f) + precise::rsqrt(0.25f); break;
    case 18: r = max(NAN, 2.0f); break;
    case 19: r = float(extract_bits(0xABCDu, 4, 8)); break;
    case 20: r = float((uchar4(250, 251, 252, 253) + uchar4(10)).w); break;  // wraps
    case 21: r = saturate(-0.5f) + saturate(0.25f) + saturate(7.0f); break;
    case 22: r = float(rotate(0x80000001u, 1u)); break;
    case 23: r = float(numeric_limits<half>::max()); break;
    case 24: r = round(2.5f) + rint(2.5f) + trunc(-2.5f); break;
    case 25: r = float(mulhi(0x80000000u, 6u)); break;
    default: r = -1.0f; break;
  }
  out[i] = r;
}

// Three-dimensional positions.
kernel void positions(device uint* out [[buffer(0)]], uint3 grid [[threads_per_grid]],
                      uint3 at [[thread_position_in_grid]], uint3 in_group [[thread_position_in_threadgroup]],
                      uint3 group [[threadgroup_position_in_grid]], uint3 size [[threads_per_threadgroup]]) {
  out[(at.z * grid.y + at.y) * grid.x + at.x] = in_group.x + 10u * in_group.y + 100u * in_group.z + 1000u * group.x +
                                                10000u * group.y + 100000u * size.x + 1000000u * size.y;
}
