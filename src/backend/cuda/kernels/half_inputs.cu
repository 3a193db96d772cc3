// Activations for the product in halves (gemm_half.cu): normed, scaled by a power of two per row, rounded to f16 (or
// split in two), arranged.
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
  SortedPairs pairs;  // present: of slots, not of the list
  uint32_t per_row;   // as in Pairs
  bool two_halves;    // what rounding left follows, as so many steps again
  uint16_t* x;
  float* scales;
};

// Columns 16 group .. 16 group + 15 of a row or of a norm's weight; zero beyond cols.
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
};

// A row's sum of squares and the largest product with the norm's weight, over some of its columns.
struct Measure {
  float squares = 0, largest = 0;

  __device__ __forceinline__ void add(const Group& x, const Group& weight) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      squares = fmaf(x.v[i], x.v[i], squares);
      largest = fmaxf(largest, fabsf(x.v[i] * weight.v[i]));
    }
  }
};

// A block per row: [steps of 64 columns][rows][64], columns in the order of fragments (packed.cuh), 16-byte pieces of a
// row swizzled as hopper.cuh's swizzled_rows() wants them. Rows past the list are zero. A thread keeps one group of 16
// columns in registers (kHeld) or, of long rows, reads its groups twice: more warps at once are worth more there.
template <bool kHeld, bool kPairs>
__global__ void __launch_bounds__(kThreads) arrange(const __grid_constant__ ArrangeArgs a) {
  let_next_begin();
  __shared__ float2 shared[kWarps];
  const uint32_t i = blockIdx.x, n_groups = a.k_tiles * (kTileCols / 16);
  bool present = i < a.rows.n;
  uint32_t row = !kPairs && present ? a.rows.index[i] : 0;
  if constexpr (kPairs) {
    wait_for_previous();
    const uint32_t n = a.pairs.tiles[i / a.pairs.tile_slots].n;
    if (n == 0) return;  // no block reads it
    present = i % a.pairs.tile_slots < n;
    const uint32_t pair = present ? a.pairs.slots[i] : 0;
    row = a.per_row != 0 ? a.rows.index[pair / a.per_row] : pair;
  }
  const float* in = present ? a.in.data + size_t(row) * a.in.stride : nullptr;
  const bool aligned = reinterpret_cast<uintptr_t>(in) % 16 == 0;
  const auto load_weight = [&](Group& weight, uint32_t group) {
    if (a.norm.weight != nullptr) {
      weight.load(a.norm.weight, true, group, a.cols);
    } else {
#pragma unroll
      for (float& w : weight.v) w = 1;
    }
  };
  Group x, weight;
  if (kHeld) load_weight(weight, threadIdx.x);  // constant: before the row has come
  wait_for_previous();
  float scale = 0;  // what values are multiplied with besides the norm's weight
  if (present) {
    Measure measure;
#pragma unroll 2
    for (uint32_t group = threadIdx.x; group < n_groups; group += kThreads) {
      if (!kHeld) load_weight(weight, group);
      x.load(in, aligned, group, a.cols);
      measure.add(x, weight);
    }
    const float2 both = {warp_sum(measure.squares), warp_max(measure.largest)};
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = both;
    __syncthreads();
    Measure whole;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      whole.squares += shared[w].x;
      whole.largest = fmaxf(whole.largest, shared[w].y);
    }
    const float rms = a.norm.present ? 1 / sqrtf(whole.squares / float(a.cols) + a.norm.eps) : 1.0f;
    const int exponent = exponent_for(whole.largest * rms, -114, 100);
    scale = rms * power_of_two(exponent);
    if (threadIdx.x == 0) a.scales[i] = power_of_two(-exponent);
  } else if (threadIdx.x == 0) {
    a.scales[i] = 0;
  }
#pragma unroll 2
  for (uint32_t group = threadIdx.x; group < n_groups; group += kThreads) {
    uint32_t words[2][4] = {}, low[2][4] = {};  // elements 0, 1 and 2, 3 of each lane of four
    if (present) {
      if (!kHeld) {
        load_weight(weight, group);
        x.load(in, aligned, group, a.cols);
      }
#pragma unroll
      for (int t = 0; t < 4; ++t)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int at = 4 * t + 2 * e;
          const float v0 = x.v[at] * weight.v[at] * scale, v1 = x.v[at + 1] * weight.v[at + 1] * scale;
          words[e][t] = pack_halves(v0, v1);
          const float2 rounded = halves(words[e][t]);
          low[e][t] = pack_halves(v0 - rounded.x, v1 - rounded.y);
        }
    }
    const auto store = [&](uint32_t step, const uint32_t(&w)[2][4]) {
      uint16_t* row = a.x + (size_t(step) * a.n_arranged + i) * kStageCols;
#pragma unroll
      for (uint32_t e = 0; e < 2; ++e)
        *reinterpret_cast<uint4*>(row + ((group % 4 * 2 + e) ^ (i & 7)) * 8) = {w[e][0], w[e][1], w[e][2], w[e][3]};
    };
    store(group / 4, words);
    if (a.two_halves) store(n_groups / 4 + group / 4, low);
  }
}

}  // namespace

int launch_arrange_input(Rows in, uint32_t cols, const NormArgs& norm, RowList rows, uint32_t n_arranged,
                         bool two_halves, uint16_t* x, float* scales, Stream stream) {
  const ArrangeArgs a{in, cols,  (cols + kTileCols - 1) / kTileCols, n_arranged, norm, rows, {}, 0, two_halves,
                      x,  scales};
  return launch(cols <= kThreads * 16 ? arrange<true, false> : arrange<false, false>, n_arranged, kThreads, 0, stream,
                a);
}

int launch_arrange_pairs(Rows in, uint32_t cols, const NormArgs& norm, RowList rows, const SortedPairs& pairs,
                         uint32_t per_row, uint16_t* x, float* scales, Stream stream) {
  const uint32_t n = pairs.n_tiles * pairs.tile_slots;
  const ArrangeArgs a{in, cols, (cols + kTileCols - 1) / kTileCols, n, norm, rows, pairs, per_row, true, x, scales};
  return launch(cols <= kThreads * 16 ? arrange<true, true> : arrange<false, true>, n, kThreads, 0, stream, a);
}

}  // namespace honeycrisp::backend::cuda
