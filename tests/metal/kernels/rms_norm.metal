// y = x / sqrt(mean(x^2) + epsilon) * gain, one row per threadgroup.
#include <metal_stdlib>
using namespace metal;

struct RmsNormArgs {
  uint width;
  float epsilon;
};

kernel void rms_norm(device const float* x [[buffer(0)]],     // [rows][width]
                     device const float* gain [[buffer(1)]],  // [width]
                     device float* y [[buffer(2)]],           // [rows][width]
                     constant RmsNormArgs& args [[buffer(3)]], uint row [[threadgroup_position_in_grid]],
                     uint thread_index [[thread_index_in_threadgroup]], uint threads [[threads_per_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                     uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float sums[32];
  device const float* in = x + row * args.width;
  float squares = 0.0f;
  for (uint i = thread_index; i < args.width; i += threads) {
    squares = fma(in[i], in[i], squares);
  }
  squares = simd_sum(squares);
  if (lane == 0) {
    sums[simdgroup] = squares;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  squares = simd_sum(lane < simdgroups ? sums[lane] : 0.0f);
  const float scale = rsqrt(squares / float(args.width) + args.epsilon);
  for (uint i = thread_index; i < args.width; i += threads) {
    y[row * args.width + i] = in[i] * scale * gain[i];
  }
}

// x += y
kernel void add(device float* x [[buffer(0)]], device const float* y [[buffer(1)]], constant uint& count [[buffer(2)]],
                uint i [[thread_position_in_grid]]) {
  if (i < count) {
    x[i] += y[i];
  }
}
