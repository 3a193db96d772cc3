// DeltaNet: the short convolution of all rows, the delta rule position by position, and the gated norm.
//
// The rule runs in parallel over sequences, value heads and columns of a head, each column's part of the state in the
// registers of eight lanes. Sums over keys run in a fixed order, and the state goes to memory in f32 as it is, so a
// row's bits do not depend on how a sequence is cut into steps. State of a layer: matrices [heads][value_dim][key_dim],
// then the convolution's last inputs [taps - 1][channels], oldest first. A sequence at position 0 has zeros, whatever
// lies in memory.
#include "backend/cuda/delta_net_args.h"
#include "backend/cuda/kernels/launch.cuh"

#include <algorithm>

namespace honeycrisp::backend::cuda {
namespace {

constexpr uint32_t kThreads = 256, kWarps = kThreads / 32;
constexpr uint32_t kKeyLanes = 8;                    // that share a column
constexpr uint32_t kColumns = kThreads / kKeyLanes;  // of a block
constexpr uint32_t kStaged = 8;                      // rows in shared memory together

__device__ __forceinline__ float silu(float x) { return x / (1 + expf(-x)); }
__device__ __forceinline__ float softplus(float x) { return x > 30 ? x : log1pf(expf(x)); }

// The input of a channel `back` positions before entry `at` of a run's rows; zero before position 0.
__device__ __forceinline__ float input_before(const DeltaNetArgs& a, const Run& run, uint32_t at, uint32_t position,
                                              uint32_t back, uint32_t channel) {
  if (back > position) return 0;
  const uint32_t index = at - run.first;
  if (back <= index) return a.qkv.data[size_t(a.runs.rows[at - back]) * a.qkv.stride + channel];
  const uint32_t slot = a.taps - 1 - (back - index);  // newest last
  return run.state[a.history + size_t(slot) * a.channels + channel];
}

// Block (entry of the rows, eight segments), a warp per segment: a head of q, of k or of v, or the gates of all heads.
__global__ void __launch_bounds__(kThreads) convolve(const __grid_constant__ DeltaNetArgs a) {
  let_next_begin();
  const uint32_t at = blockIdx.x, segment = blockIdx.y * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t row = a.runs.rows[at], position = a.positions[row];
  const Run run = a.runs.runs[a.runs.run_of[at]];
  wait_for_previous();
  const uint32_t n_keys = 2 * a.n_key_heads;
  if (segment == n_keys + a.n_heads) {
    for (uint32_t h = lane; h < a.n_heads; h += 32) {
      const uint32_t column = h / a.gate_run * a.gate_stride + h % a.gate_run;
      const float step = softplus(a.alpha.data[size_t(row) * a.alpha.stride + column] + a.dt_bias[h]);
      float* gates = a.gates + (size_t(at) * a.n_heads + h) * 2;
      gates[0] = expf(a.a[h] * step);
      gates[1] = 1 / (1 + expf(-a.beta.data[size_t(row) * a.beta.stride + column]));
    }
  }
  if (segment >= n_keys + a.n_heads) return;
  const bool is_key = segment < n_keys;
  const uint32_t dim = is_key ? a.key_dim : a.value_dim;
  const uint32_t first = is_key ? segment * dim : n_keys * a.key_dim + (segment - n_keys) * dim;
  float* out = a.convolved + size_t(at) * a.channels + first;
  float squares = 0;
  for (uint32_t d = lane; d < dim; d += 32) {
    const float* taps = a.conv + size_t(first + d) * a.taps;
    float sum = 0;
    for (uint32_t j = 0; j < a.taps; ++j)
      sum = fmaf(taps[j], input_before(a, run, at, position, a.taps - 1 - j, first + d), sum);
    const float c = silu(sum);
    out[d] = c;
    squares = fmaf(c, c, squares);
  }
  if (!is_key) return;
  const bool is_query = segment < a.n_key_heads;
  const float scale = (is_query ? 1 / sqrtf(float(dim)) : 1.0f) / sqrtf(warp_sum(squares) + a.l2_eps);
  for (uint32_t d = lane; d < dim; d += 32) out[d] *= scale;
}

// The convolution's inputs that the next step needs; a thread per channel.
__device__ __forceinline__ void keep_history(const DeltaNetArgs& a, const Run& run, uint32_t channel) {
  const uint32_t last = run.first + run.n - 1, position = a.positions[a.runs.rows[last]];
  float* history = run.state + a.history + channel;
  for (uint32_t slot = 0; slot + 1 < a.taps; ++slot)  // what a slot is made of lies in a later one, or in the rows
    history[size_t(slot) * a.channels] = input_before(a, run, last, position, a.taps - 2 - slot, channel);
}

__device__ __forceinline__ float sum_of_lanes(float v) {
#pragma unroll
  for (uint32_t distance = kKeyLanes / 2; distance != 0; distance /= 2) v += __shfl_xor_sync(~0u, v, distance);
  return v;
}

// Block (columns of a value head, sequence). Lane k of a column's eight has keys k, k + 8, ...
template <uint32_t kKeys>
__global__ void __launch_bounds__(kThreads) advance(const __grid_constant__ DeltaNetArgs a) {
  constexpr uint32_t kMostKeys = kKeys * kKeyLanes;
  __shared__ float keys[kStaged][kMostKeys], queries[kStaged][kMostKeys], values[kStaged][kColumns];
  __shared__ float2 gates[kStaged];
  __shared__ bool starts[kStaged];
  let_next_begin();
  const Run run = a.runs.runs[blockIdx.y];
  wait_for_previous();
  if (run.n == 0) return;
  const uint32_t groups = (a.value_dim + kColumns - 1) / kColumns;
  const uint32_t head = blockIdx.x / groups, column0 = blockIdx.x % groups * kColumns;
  const uint32_t key_head = a.grouped_heads ? head / (a.n_heads / a.n_key_heads) : head % a.n_key_heads;
  const uint32_t part = threadIdx.x % kKeyLanes, column = column0 + threadIdx.x / kKeyLanes;
  const bool present = column < a.value_dim;
  const uint32_t value_at = 2 * a.n_key_heads * a.key_dim + head * a.value_dim;
  float* state = run.state + a.matrices + (size_t(head) * a.value_dim + (present ? column : 0)) * a.key_dim;

  float s[kKeys];
#pragma unroll
  for (uint32_t i = 0; i < kKeys; ++i) {
    const uint32_t k = i * kKeyLanes + part;
    s[i] = present && k < a.key_dim ? state[k] : 0;
  }
  for (uint32_t staged = 0; staged < run.n; staged += kStaged) {
    const uint32_t n = min(kStaged, run.n - staged), first = run.first + staged;
    for (uint32_t i = threadIdx.x; i < n * kMostKeys; i += kThreads) {
      const uint32_t r = i / kMostKeys, k = i % kMostKeys;
      const float* from = a.convolved + size_t(first + r) * a.channels + key_head * a.key_dim + k;
      queries[r][k] = k < a.key_dim ? from[0] : 0;
      keys[r][k] = k < a.key_dim ? from[a.n_key_heads * a.key_dim] : 0;
    }
    for (uint32_t i = threadIdx.x; i < n * kColumns; i += kThreads) {
      const uint32_t r = i / kColumns, c = column0 + i % kColumns;
      values[r][i % kColumns] = c < a.value_dim ? a.convolved[size_t(first + r) * a.channels + value_at + c] : 0;
    }
    if (threadIdx.x < n) {
      const float* g = a.gates + (size_t(first + threadIdx.x) * a.n_heads + head) * 2;
      gates[threadIdx.x] = {g[0], g[1]};
      starts[threadIdx.x] = a.positions[a.runs.rows[first + threadIdx.x]] == 0;
    }
    __syncthreads();
    for (uint32_t r = 0; r < n; ++r) {
      const float decay = gates[r].x, beta = gates[r].y;
      float known = 0;
#pragma unroll
      for (uint32_t i = 0; i < kKeys; ++i) {
        s[i] = starts[r] ? 0 : s[i] * decay;
        known = fmaf(keys[r][i * kKeyLanes + part], s[i], known);
      }
      const float added = beta * (values[r][threadIdx.x / kKeyLanes] - sum_of_lanes(known));
      float sum = 0;
#pragma unroll
      for (uint32_t i = 0; i < kKeys; ++i) {
        s[i] = fmaf(keys[r][i * kKeyLanes + part], added, s[i]);
        sum = fmaf(queries[r][i * kKeyLanes + part], s[i], sum);
      }
      sum = sum_of_lanes(sum);
      if (present && part == 0) a.convolved[size_t(first + r) * a.channels + value_at + column] = sum;
    }
    __syncthreads();
  }
#pragma unroll
  for (uint32_t i = 0; i < kKeys; ++i) {
    const uint32_t k = i * kKeyLanes + part;
    if (present && k < a.key_dim) state[k] = s[i];
  }
  for (uint32_t c = blockIdx.x * kThreads + threadIdx.x; c < a.channels; c += gridDim.x * kThreads)
    keep_history(a, run, c);
}

// out = rms_norm(o) · silu(z): block (entry of the rows, eight value heads), a warp per head.
__global__ void __launch_bounds__(kThreads) finish_heads(const __grid_constant__ DeltaNetArgs a) {
  let_next_begin();
  const uint32_t at = blockIdx.x, head = blockIdx.y * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t row = a.runs.rows[at];
  wait_for_previous();
  if (head >= a.n_heads) return;
  const float* o = a.convolved + size_t(at) * a.channels + 2 * a.n_key_heads * a.key_dim + head * a.value_dim;
  const float* z = a.z.data + size_t(row) * a.z.stride + head * a.value_dim;
  float* out = a.out.data + size_t(row) * a.out.stride + head * a.value_dim;
  float squares = 0;
  for (uint32_t d = lane; d < a.value_dim; d += 32) squares = fmaf(o[d], o[d], squares);
  const float scale = 1 / sqrtf(warp_sum(squares) / float(a.value_dim) + a.norm.eps);
  for (uint32_t d = lane; d < a.value_dim; d += 32)
    out[d] = o[d] * scale * (a.norm.weight != nullptr ? a.norm.weight[d] : 1.0f) * silu(z[d]);
}

template <uint32_t kKeys>
int launch_advance(const DeltaNetArgs& a, Stream stream) {
  const uint32_t groups = (a.value_dim + kColumns - 1) / kColumns;
  return launch(advance<kKeys>, dim3(a.n_heads * groups, a.runs.n_runs), kThreads, 0, stream, a);
}

}  // namespace

int launch_delta_net(const DeltaNetArgs& a, Stream stream) {
  const uint32_t segments = 2 * a.n_key_heads + a.n_heads + 1;
  int status = launch(convolve, dim3(a.runs.n_rows, (segments + kWarps - 1) / kWarps), kThreads, 0, stream, a);
  if (status != cudaSuccess) return status;
  const uint32_t keys = (a.key_dim + kKeyLanes - 1) / kKeyLanes;
  status = keys <= 8    ? launch_advance<8>(a, stream)
           : keys <= 16 ? launch_advance<16>(a, stream)
                        : launch_advance<kMostDeltaKeys / kKeyLanes>(a, stream);
  if (status != cudaSuccess) return status;
  return launch(finish_heads, dim3(a.runs.n_rows, (a.n_heads + kWarps - 1) / kWarps), kThreads, 0, stream, a);
}

}  // namespace honeycrisp::backend::cuda
