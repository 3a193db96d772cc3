// y = W · x for generated rows over F16, BF16 and F32 weights in the file's layout, in f32, with the ending fused in.
// Weights are nearly all that a step reads then: each is read once for up to eight rows, and many are on their way at a
// time, across the rows of the weight that a warp takes one after another.
//
// A lane takes octets 32 apart of a row of the weight, and adds their products in order; lanes are added up in the end.
// So no bit depends on how many rows of either kind a warp takes together.
#include "backend/cuda/kernels/ending.cuh"
#include "backend/cuda/kernels/launch.cuh"

#include <algorithm>
#include <cuda_fp16.h>

namespace honeycrisp::backend::cuda {
namespace {

using quant::Format;

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kOctets = 8;  // that a lane has on their way

// Eight weights as they are stored.
template <Format F>
struct Octet {
  static constexpr int kWords = F == Format::kF32 ? 2 : 1;
  uint4 w[kWords];

  __device__ __forceinline__ void load(const uint8_t* row, uint32_t o) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) w[i] = __ldcs(reinterpret_cast<const uint4*>(row) + o * kWords + i);
  }
  __device__ __forceinline__ void values(float (&v)[8]) const {
    const uint32_t words[8] = {w[0].x,          w[0].y,          w[0].z,          w[0].w,
                               w[kWords - 1].x, w[kWords - 1].y, w[kWords - 1].z, w[kWords - 1].w};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if constexpr (F == Format::kF32)
        v[i] = __uint_as_float(words[i]);
      else if constexpr (F == Format::kBF16)
        v[i] = __uint_as_float(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000);
      else
        v[i] = __half2float(__ushort_as_half(uint16_t(words[i / 2] >> (16 * (i % 2)))));
    }
  }
};

// Outputs that a warp takes together: kOutputs of one part, of a gate of both.
template <bool kGate, int kOutputs>
struct Unit {
  static constexpr int kRows = kGate ? 2 * kOutputs : kOutputs;  // of weights
  uint32_t part, row;

  static __host__ __device__ __forceinline__ uint32_t count(const EndingArgs& e) {
    uint32_t n = 0;
    for (uint32_t part = 0; part < (kGate ? 1 : e.n_parts); ++part) n += (e.rows[part] + kOutputs - 1) / kOutputs;
    return n;
  }
  __device__ __forceinline__ Unit(const EndingArgs& e, uint32_t unit) : part(0) {
    if (!kGate)
      for (uint32_t n; unit >= (n = (e.rows[part] + kOutputs - 1) / kOutputs); ++part) unit -= n;
    row = unit * kOutputs;
  }
  /// Row of weights i: of a gate, those of the second part follow those of the first. The last one stands in for rows
  /// that do not exist.
  __device__ __forceinline__ const uint8_t* weights(const FloatMatVecArgs& a, int i) const {
    const DeviceMatrix& m = a.parts[kGate ? i / kOutputs : part];
    return m.data + size_t(m.first_row + min(row + i % kOutputs, m.rows - 1)) * m.row_bytes;
  }
};

// blockIdx.y: which kN rows of x.
template <Format F, bool kGate, int kOutputs, int kN>
__global__ void __launch_bounds__(kThreads) float_mat_vec(const __grid_constant__ FloatMatVecArgs a) {
  using Units = Unit<kGate, kOutputs>;
  constexpr int kRows = Units::kRows,
                kAhead = kOctets / kRows / Octet<F>::kWords > 0 ? kOctets / kRows / Octet<F>::kWords : 1;
  let_next_begin();
  const uint32_t lane = threadIdx.x % 32, stride = gridDim.x * kWarps, n_units = Units::count(a.ending);
  const uint32_t first = blockIdx.y * kN, n_octets = a.parts[0].cols / 8;
  uint32_t unit = blockIdx.x * kWarps + threadIdx.x / 32;
  if (unit >= n_units) return wait_for_previous();
  Octet<F> next[kAhead][kRows];
  const auto load = [&](uint32_t of_unit, uint32_t o0) {
    const Units u(a.ending, of_unit);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const uint8_t* row = u.weights(a, r);
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
        if (o0 + i * 32 < n_octets) next[i][r].load(row, o0 + i * 32);
    }
  };
  load(unit, lane);  // weights do not depend on the kernel before
  wait_for_previous();
#pragma unroll 1
  for (; unit < n_units; unit += stride) {
    float sums[kRows][kN] = {};
#pragma unroll 1
    for (uint32_t o0 = lane; o0 - lane < n_octets; o0 += 32 * kAhead) {
      Octet<F> octets[kAhead][kRows];
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
#pragma unroll
        for (int r = 0; r < kRows; ++r) octets[i][r] = next[i][r];
      if (o0 - lane + 32 * kAhead < n_octets)
        load(unit, o0 + 32 * kAhead);
      else if (unit + stride < n_units)
        load(unit + stride, lane);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const uint32_t o = o0 + i * 32;
        if (o >= n_octets) break;
        float v[kRows][8];
#pragma unroll
        for (int r = 0; r < kRows; ++r) octets[i][r].values(v[r]);
#pragma unroll
        for (int j = 0; j < kN; ++j) {
          if (first + j >= a.rows.n) break;
          const auto* xj = reinterpret_cast<const float4*>(a.x + size_t(first + j) * a.parts[0].cols + 8 * o);
          const float4 low = xj[0], high = xj[1];
          const float x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
          for (int r = 0; r < kRows; ++r)
#pragma unroll
            for (int k = 0; k < 8; ++k) sums[r][j] = fmaf(v[r][k], x[k], sums[r][j]);
        }
      }
    }
    const Units u(a.ending, unit);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int j = 0; j < kN; ++j) sums[r][j] = warp_sum(sums[r][j]);
#pragma unroll
    for (int i = 0; i < kOutputs; ++i)
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const uint32_t r = u.row + i, at = first + j;
        if (int(lane) != i * kN + j || r >= a.ending.rows[u.part] || at >= a.rows.n) continue;
        const float *bias = a.ending.bias[u.part], *other_bias = a.ending.bias[1];
        float y = sums[i][j], other = kGate ? sums[kRows - kOutputs + i][j] : 0;
        if (bias != nullptr) y += bias[r];
        if (kGate && other_bias != nullptr) other += other_bias[r];
        finish(a.ending, u.part, r, a.rows.index[at], a.rows.dest != nullptr ? a.rows.dest[at] : at, y, other);
      }
  }
}

template <Format F, bool kGate, int kOutputs, int kN>
int launch_units(const FloatMatVecArgs& a, Stream stream) {
  const auto kernel = float_mat_vec<F, kGate, kOutputs, kN>;
  int resident = 0;
  if (const int status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kThreads, 0);
      status != cudaSuccess)
    return status;
  const uint32_t blocks = (Unit<kGate, kOutputs>::count(a.ending) + kWarps - 1) / kWarps;
  const uint32_t most = uint32_t(std::max(1, resident)) * a.n_multiprocessors;
  return launch(kernel, dim3(std::min(blocks, most), (a.rows.n + kN - 1) / kN), kThreads, 0, stream, a);
}
template <Format F, bool kGate>
int launch_rows(const FloatMatVecArgs& a, Stream stream) {
  if (a.rows.n == 1) return launch_units<F, kGate, 1, 1>(a, stream);
  if (a.rows.n <= 4) return launch_units<F, kGate, kGate ? 1 : 2, 4>(a, stream);
  return launch_units<F, kGate, kGate ? 1 : 2, 8>(a, stream);
}
template <Format F>
int launch_format(const FloatMatVecArgs& a, Stream stream) {
  return a.ending.kind == EndingKind::kGate ? launch_rows<F, true>(a, stream) : launch_rows<F, false>(a, stream);
}

}  // namespace

int launch_float_mat_vec(const FloatMatVecArgs& a, Stream stream) {
  switch (a.parts[0].format) {
    case Format::kF16: return launch_format<Format::kF16>(a, stream);
    case Format::kBF16: return launch_format<Format::kBF16>(a, stream);
    case Format::kF32: return launch_format<Format::kF32>(a, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace honeycrisp::backend::cuda
