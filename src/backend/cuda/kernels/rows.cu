// Whole rows of the batch: the normed input of a product, and the endings that need a whole row of products.
#include "backend/cuda/kernels/ending.cuh"
#include "backend/cuda/kernels/launch.cuh"

#include <cuda_bf16.h>

namespace honeycrisp::backend::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr uint32_t kWarpRun = 1024;  // longest run of outputs that one warp norms alone

__device__ __forceinline__ float rms_scale(float squares, uint32_t n, float eps) {
  return 1 / sqrtf(squares / float(n) + eps);
}

struct PrepareArgs {
  Rows in;
  uint32_t cols, depth;
  NormArgs norm;
  RowList rows;
  float* x;
  uint16_t *high, *low;
};

// A block per row.
__global__ void __launch_bounds__(kThreads) prepare_input(PrepareArgs a) {
  let_next_begin();
  wait_for_previous();
  __shared__ float shared[kWarps];
  const uint32_t i = blockIdx.x;
  const float* in = a.in.data + size_t(a.rows.index[i]) * a.in.stride;
  float scale = 1;
  if (a.norm.present) {
    float squares = 0;
    for (uint32_t k = threadIdx.x; k < a.cols; k += kThreads) squares = fmaf(in[k], in[k], squares);
    scale = rms_scale(block_sum<kThreads>(squares, shared), a.cols, a.norm.eps);
  }
  for (uint32_t k = threadIdx.x; k < max(a.cols, a.depth); k += kThreads) {
    float v = k < a.cols ? in[k] : 0;
    if (a.norm.present) v *= scale;
    if (a.norm.weight != nullptr && k < a.cols) v *= a.norm.weight[k];
    if (a.x != nullptr && k < a.cols) a.x[size_t(i) * a.cols + k] = v;
    if (a.high == nullptr || k >= a.depth) continue;
    const __nv_bfloat16 h = __float2bfloat16_rn(v);
    a.high[size_t(i) * a.depth + k] = __bfloat16_as_ushort(h);
    a.low[size_t(i) * a.depth + k] = __bfloat16_as_ushort(__float2bfloat16_rn(v - __bfloat162float(h)));
  }
}

__device__ __forceinline__ void norm_in_place(float* y, uint32_t n, const NormArgs& norm, float squares, uint32_t from,
                                              uint32_t step) {
  const float scale = rms_scale(squares, n, norm.eps);
  for (uint32_t r = from; r < n; r += step)
    y[r] = norm.weight != nullptr ? y[r] * scale * norm.weight[r] : y[r] * scale;
}

// Norms of runs of `width` of y, in place: short runs by a warp each, long ones by the block.
__device__ void norm_runs(float* y, uint32_t n, uint32_t width, const NormArgs& norm, float* shared) {
  const uint32_t lane = threadIdx.x % 32;
  if (width <= kWarpRun) {
    for (uint32_t run = threadIdx.x / 32 * width; run < n; run += kWarps * width) {
      float squares = 0;
      for (uint32_t r = lane; r < width; r += 32) squares = fmaf(y[run + r], y[run + r], squares);
      norm_in_place(y + run, width, norm, warp_sum(squares), lane, 32);
    }
  } else {
    for (uint32_t run = 0; run < n; run += width) {
      float squares = 0;
      for (uint32_t r = threadIdx.x; r < width; r += kThreads) squares = fmaf(y[run + r], y[run + r], squares);
      norm_in_place(y + run, width, norm, block_sum<kThreads>(squares, shared), threadIdx.x, kThreads);
    }
  }
  __syncthreads();
}

// A block per row and, of endings without a norm, per slice of its outputs.
__global__ void __launch_bounds__(kThreads) end_row(const __grid_constant__ EndingArgs e, Rows products, RowList rows) {
  let_next_begin();
  wait_for_previous();
  __shared__ float shared[kWarps];
  const uint32_t i = blockIdx.x, row = rows.index[i], dest = rows.dest != nullptr ? rows.dest[i] : i;
  float* y = products.data + size_t(i) * products.stride;
  if (e.kind == EndingKind::kGate) {
    for (uint32_t r = blockIdx.y * kThreads + threadIdx.x; r < e.rows[0]; r += gridDim.y * kThreads) {
      float y0 = y[r], y1 = y[e.rows[0] + r];
      if (e.bias[0] != nullptr) y0 += e.bias[0][r];
      if (e.bias[1] != nullptr) y1 += e.bias[1][r];
      finish(e, 0, r, row, dest, y0, y1);
    }
    return;
  }
  for (uint32_t part = 0; part < e.n_parts; y += e.rows[part], ++part) {
    const uint32_t n = e.rows[part];
    const float* bias = e.bias[part];
    if (!e.norm.present) {
      for (uint32_t r = blockIdx.y * kThreads + threadIdx.x; r < n; r += gridDim.y * kThreads)
        finish(e, part, r, row, dest, bias != nullptr ? y[r] + bias[r] : y[r], 0);
      continue;
    }
    // Store scales before its norm; what finish() would scale then is done here.
    const float before = e.kind == EndingKind::kStore ? e.scale : 1.0f;
    for (uint32_t r = threadIdx.x; r < n; r += kThreads) y[r] = (bias != nullptr ? y[r] + bias[r] : y[r]) * before;
    __syncthreads();
    norm_runs(y, n, e.norm_width != 0 ? e.norm_width : n, e.norm, shared);
    EndingArgs after = e;
    if (e.kind == EndingKind::kStore) after.scale = 1;
    for (uint32_t r = threadIdx.x; r < n; r += kThreads) finish(after, part, r, row, dest, y[r], 0);
    __syncthreads();
  }
}

}  // namespace

int launch_prepare_input(Rows in, uint32_t cols, const NormArgs& norm, RowList rows, float* x, uint16_t* high,
                         uint16_t* low, uint32_t depth, Stream stream) {
  return launch(prepare_input, rows.n, kThreads, 0, stream, PrepareArgs{in, cols, depth, norm, rows, x, high, low});
}

int launch_ending(const EndingArgs& e, Rows products, RowList rows, Stream stream) {
  constexpr uint32_t kOutputsPerBlock = 4096;
  uint32_t outputs = 0;
  for (uint32_t part = 0; part < e.n_parts; ++part) outputs += e.rows[part];
  const uint32_t slices = e.norm.present ? 1 : (outputs + kOutputsPerBlock - 1) / kOutputsPerBlock;
  return launch(end_row, dim3(rows.n, slices), kThreads, 0, stream, e, products, rows);
}

}  // namespace honeycrisp::backend::cuda
