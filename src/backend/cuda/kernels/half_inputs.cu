// Activations for the product in halves (gemm_half.cu): normed, scaled by a power of two per row, rounded to f16,
// arranged.
#include "backend/cuda/kernels/halves.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace honeycrisp::backend::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kStageCols = 64;

struct ArrangeArgs {
  Rows in;
  uint32_t cols, k_tiles, n_arranged;
  NormArgs norm;
  RowList rows;
  uint16_t* x;
  float* scales;
};

// Columns 16 group .. 16 group + 15 of a row, and of the norm's weight (1 where there is none); zero beyond cols.
struct Group {
  float v[16];

  __device__ __forceinline__ void load(const float* from, bool aligned, uint32_t group, uint32_t cols) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t k = group * 16 + 4 * i;
      if (aligned && k + 4 <= cols) {
        const float4 four = *reinterpret_cast<const float4*>(from + k);
        v[4 * i] = four.x, v[4 * i + 1] = four.y, v[4 * i + 2] = four.z, v[4 * i + 3] = four.w;
      } else {
#pragma unroll
        for (uint32_t c = 0; c < 4; ++c) v[4 * i + c] = k + c < cols ? from[k + c] : 0.0f;
      }
    }
  }
  __device__ __forceinline__ float squares() const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) sum = fmaf(v[i], v[i], sum);
    return sum;
  }
  __device__ __forceinline__ float largest() const {
    float most = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) most = fmaxf(most, fabsf(v[i]));
    return most;
  }
  __device__ __forceinline__ void norm(const NormArgs& n, float rms, uint32_t group, uint32_t cols) {
    if (!n.present) return;
#pragma unroll
    for (int i = 0; i < 16; ++i) v[i] *= rms;
    if (n.weight == nullptr) return;
    Group weight;
    weight.load(n.weight, true, group, cols);
#pragma unroll
    for (int i = 0; i < 16; ++i) v[i] *= weight.v[i];
  }
};

// A block per row: [steps of 64 columns][rows][64], columns in the order of fragments (packed.cuh), 16-byte pieces of a
// row swizzled as hopper.cuh's swizzled_rows() wants them. Rows past the list are zero. A thread keeps kHeld groups of
// 16 columns in registers and reads others again in every pass: for long rows, more warps at once are worth more.
template <int kHeld>
__global__ void __launch_bounds__(kThreads) arrange(const __grid_constant__ ArrangeArgs a) {
  let_next_begin();
  __shared__ float shared[2][kWarps];
  const uint32_t i = blockIdx.x, n_groups = a.k_tiles * (kTileCols / 16);
  const bool present = i < a.rows.n;
  const float* in = present ? a.in.data + size_t(a.rows.index[i]) * a.in.stride : nullptr;
  const bool aligned = reinterpret_cast<uintptr_t>(in) % 16 == 0;
  if (a.norm.weight != nullptr && threadIdx.x * 32 < a.cols)  // its lines, ahead
    asm volatile("prefetch.global.L2 [%0];" ::"l"(a.norm.weight + threadIdx.x * 32));
  wait_for_previous();
  Group held[kHeld == 0 ? 1 : kHeld];
  if (present) {
#pragma unroll
    for (int h = 0; h < kHeld; ++h)
      held[h].load(in, aligned, threadIdx.x + h * kThreads, a.cols);  // past the row: zero
  }
  // What is done to every group, in every pass.
  const auto for_each_group = [&](const auto& visit) {
#pragma unroll
    for (int h = 0; h < kHeld; ++h) visit(held[h], threadIdx.x + h * kThreads);
#pragma unroll 2
    for (uint32_t group = threadIdx.x + kHeld * kThreads; group < n_groups; group += kThreads) {
      Group again;
      again.load(in, aligned, group, a.cols);
      visit(again, group);
    }
  };
  float rms = 1, factor = 1;
  if (present) {
    if (a.norm.present) {
      float squares = 0;
      for_each_group([&](const Group& g, uint32_t) { squares += g.squares(); });
      rms = 1 / sqrtf(block_sum<kThreads>(squares, shared[0]) / float(a.cols) + a.norm.eps);
    }
    float largest = 0;
    for_each_group([&](Group& g, uint32_t group) {
      g.norm(a.norm, rms, group, a.cols);
      largest = fmaxf(largest, g.largest());
    });
    largest = warp_max(largest);
    if (threadIdx.x % 32 == 0) shared[1][threadIdx.x / 32] = largest;
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, shared[1][w]);
    const int exponent = exponent_for(largest, 100);
    factor = power_of_two(exponent);
    if (threadIdx.x == 0) a.scales[i] = power_of_two(-exponent);
  } else if (threadIdx.x == 0) {
    a.scales[i] = 0;
  }
  const auto store = [&](const Group& g, uint32_t group) {
    if (group >= n_groups) return;
    uint32_t words[2][4] = {};  // elements 0, 1 and 2, 3 of each lane of four
    if (present) {
#pragma unroll
      for (int t = 0; t < 4; ++t)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          words[e][t] = pack_halves(g.v[4 * t + 2 * e] * factor, g.v[4 * t + 2 * e + 1] * factor);
    }
    uint16_t* row = a.x + (size_t(group / 4) * a.n_arranged + i) * kStageCols;
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e)
      *reinterpret_cast<uint4*>(row + ((group % 4 * 2 + e) ^ (i & 7)) * 8) = {words[e][0], words[e][1], words[e][2],
                                                                              words[e][3]};
  };
#pragma unroll
  for (int h = 0; h < kHeld; ++h) store(held[h], threadIdx.x + h * kThreads);  // normed above
#pragma unroll 2
  for (uint32_t group = threadIdx.x + kHeld * kThreads; group < n_groups; group += kThreads) {
    Group again{};
    if (present) {
      again.load(in, aligned, group, a.cols);
      again.norm(a.norm, rms, group, a.cols);
    }
    store(again, group);
  }
}

}  // namespace

int launch_arrange_input(Rows in, uint32_t cols, const NormArgs& norm, RowList rows, uint32_t n_arranged, uint16_t* x,
                         float* scales, Stream stream) {
  const ArrangeArgs a{in, cols, (cols + kTileCols - 1) / kTileCols, n_arranged, norm, rows, x, scales};
  return launch(cols <= kThreads * 16 ? arrange<1> : arrange<0>, n_arranged, kThreads, 0, stream, a);
}

}  // namespace honeycrisp::backend::cuda
