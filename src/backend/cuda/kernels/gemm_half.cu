// The matrix product of prompt rows on Hopper, ending included: weights and activations as one f16 each, or as two with
// three products, f32 sums.
//
// Block: 64 weight rows for each of its warpgroups by 64, 128 or 256 rows of the batch ("tokens"). A, the weights, is
// unpacked in registers from packed tiles (halves.cuh), one load unit ahead; B, the activations, was arranged by
// arrange_input() and comes by bulk copies into a ring of stages of 64 columns, which a thread of the first warpgroup
// keeps full (a warp of its own for that would cost the others registers). While a stage is multiplied, the next
// one's weights are unpacked.
//
// A row's bits depend on its own values and the weight's depth: sums run over the columns in steps of 16, in order, and
// tokens are columns of the product, which do not mix. Hence the host may choose any block size for any number of rows.
#include "backend/cuda/kernels/ending.cuh"
#include "backend/cuda/kernels/halves.cuh"
#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/launch.cuh"

#include <algorithm>
#include <span>

namespace honeycrisp::backend::cuda {
namespace {

constexpr int kStageCols = 64;
constexpr int kRingBytes = 160 << 10;
constexpr int kLongestRing = 10;

template <int kTokens>
constexpr int kStageBytes = kTokens * kStageCols * 2;
template <int kTokens>
constexpr int kStages =
    kRingBytes / kStageBytes<kTokens> < kLongestRing ? kRingBytes / kStageBytes<kTokens> : kLongestRing;
template <int kGroups>
constexpr int kSumStride = 64 * kGroups + 4;  // floats of a token's sums in shared memory: no bank conflicts
template <int kGroups, int kTokens>
constexpr int kShared = 1024 + (kStages<kTokens> * kStageBytes<kTokens> > kSumStride<kGroups> * kTokens * 4
                                    ? kStages<kTokens> * kStageBytes<kTokens>
                                    : kSumStride<kGroups> * kTokens * 4);

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int kStepsPerTile = int(kTileCols) / kStageCols;

// Where a warpgroup is in the ring.
struct Place {
  int step = 0, stage = 0;
  uint32_t phase = 0;
};

// The stages of activations: a barrier each for "has come" and, with an arrival of every warpgroup, "has been left".
//
// kTwoHalves: weights and activations are each the sum of two f16. Then the columns are walked three times: high times
// high, low weights times high activations, high weights times low activations, which were arranged behind the high.
template <int kGroups, int kTokens, bool kTwoHalves>
struct Stages {
  static constexpr int kRing = kStages<kTokens>;
  uint32_t memory, come, left;  // shared
  const uint16_t* from;         // of the block's tokens
  size_t step_stride;           // from one stage to the next
  int n_steps;                  // in all
  int n_of_walk;                // of one walk over the columns

  __device__ __forceinline__ void fetch(int step, int stage) const {
    const int source = kTwoHalves && step >= n_of_walk ? step - n_of_walk : step;
    copy_bulk(memory + stage * kStageBytes<kTokens>, from + source * step_stride, kStageBytes<kTokens>,
              come + stage * 8);
  }
  __device__ __forceinline__ void fetch_first() const {
    if (threadIdx.x == 0)
      for (int step = 0; step < min(kRing, n_steps); ++step) fetch(step, step);
  }
  /// Steps on. The products of the step before are complete: its stage is left, and the first warpgroup's first thread
  /// fills the one before that, which the others have left by then or will soon.
  __device__ __forceinline__ void leave_previous(Place& p) const {
    if (threadIdx.x % 128 == 0 && p.step > 0) {
      arrive(left + (p.stage == 0 ? kRing - 1 : p.stage - 1) * 8);
      const int done = p.step - 2, next = done + kRing;
      if (threadIdx.x == 0 && done >= 0 && next < n_steps) {
        const bool wraps = p.stage < 2;
        const int stage = p.stage - 2 + (wraps ? kRing : 0);
        await_barrier(left + stage * 8, wraps ? p.phase ^ 1 : p.phase);
        fetch(next, stage);
      }
    }
    ++p.step;
    if (++p.stage == kRing) {
      p.stage = 0;
      p.phase ^= 1;
    }
  }
};

// Products read their A from registers after they were issued, which the compiler does not know: it must not use these
// registers again before the products are complete.
__device__ __forceinline__ void hold_until_here(const uint32_t (&a)[4][4]) {
  asm volatile("" ::"r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]), "r"(a[1][2]),
               "r"(a[1][3]), "r"(a[2][0]), "r"(a[2][1]), "r"(a[2][2]), "r"(a[2][3]), "r"(a[3][0]), "r"(a[3][1]),
               "r"(a[3][2]), "r"(a[3][3]));
}

// One stage's products, issued; afterwards at most these are not complete.
template <int kGroups, int kTokens, bool kTwoHalves>
__device__ __forceinline__ void issue_step(float (&sums)[kTokens / 2], const uint32_t (&a)[4][4],
                                           const Stages<kGroups, kTokens, kTwoHalves>& stages, const Place& place) {
  await_barrier(stages.come + place.stage * 8, place.phase);
  const uint64_t b = swizzled_rows(stages.memory + place.stage * kStageBytes<kTokens>);
  products_begin();
#pragma unroll
  for (int i = 0; i < 4; ++i) wgmma(sums, a[i], b + 2 * i);
  products_commit();
  products_wait<1>();
}

// A from packed tiles. `meanwhile` is called once, while the first operands are on their way.
template <Format F, int kGroups, int kTokens, bool kTwoHalves, class Meanwhile>
__device__ __forceinline__ void multiply(float (&sums)[kTokens / 2], const uint8_t* tiles, uint32_t row_tile,
                                         const RowFactors& factors, const Stages<kGroups, kTokens, kTwoHalves>& stages,
                                         int lane, const Meanwhile& meanwhile) {
  constexpr int kSteps = Halves<F>::kSteps, kUnits = kStepsPerTile / kSteps, kAhead = 3;
  const int n_units = stages.n_steps / kSteps, n_of_walk = stages.n_of_walk / kSteps;
  tiles += size_t(row_tile) * size_t(n_of_walk / kUnits) * tile_bytes(F);
  Halves<F> next;
  next.load(tiles, 0, lane);
  wait_for_previous();
  stages.fetch_first();
  meanwhile();
  Place place;
  uint32_t a[2][4][4] = {};
  int unit = 0, next_unit = 0;  // next_unit: in its walk
  const auto walk = [&]<bool kLow>(int end) {
#pragma unroll 1
    for (; unit < end; ++unit) {
      Halves<F> now = next;
      if (++next_unit == n_of_walk) next_unit = 0;
      if (unit + 1 < n_units) next.load(tiles + size_t(next_unit / kUnits) * tile_bytes(F), next_unit % kUnits, lane);
      if (unit % kUnits == 0 && unit / kUnits + kAhead < n_of_walk / kUnits)
        for (uint32_t line = lane * 128; line < tile_bytes(F); line += 32 * 128)
          asm volatile("prefetch.global.L2 [%0];" ::"l"(tiles + size_t(unit / kUnits + kAhead) * tile_bytes(F) + line));
      now.template prepare<kLow>(factors);
#pragma unroll
      for (int q = 0; q < kSteps; ++q) {
        now.template fragments<kLow>(a[q % 2], q, factors, lane);
        issue_step(sums, a[q % 2], stages, place);
        hold_until_here(a[(q + 1) % 2]);
        stages.leave_previous(place);
      }
    }
  };
  walk.template operator()<false>(n_of_walk);
  if constexpr (kTwoHalves) {
    walk.template operator()<true>(2 * n_of_walk);
    walk.template operator()<false>(n_units);
  }
  products_wait<0>();
  hold_until_here(a[1]);
}

// A from half tiles: the fragments themselves, on their way three steps ahead. (kTwoHalves: tiles of low parts follow
// those of high ones in every row of tiles.)
template <int kGroups, int kTokens, bool kTwoHalves, class Meanwhile>
__device__ __forceinline__ void multiply_half_tiles(float (&sums)[kTokens / 2], const uint8_t* tiles, uint32_t row_tile,
                                                    const Stages<kGroups, kTokens, kTwoHalves>& stages, int lane,
                                                    const Meanwhile& meanwhile) {
  constexpr int kParts = kTwoHalves ? 2 : 1;
  tiles += size_t(row_tile) * size_t(kParts * stages.n_of_walk / kStepsPerTile) * tile_bytes(kHalfTiles);
  const auto source = [&](int step) {
    return step >= kParts * stages.n_of_walk ? step - kParts * stages.n_of_walk : step;
  };
  stages.fetch_first();
  Place place;
  uint32_t a[4][4][4];
#pragma unroll
  for (int q = 0; q < 3; ++q) load_half_step(a[q], tiles, q, lane);
  meanwhile();
#pragma unroll 1
  for (int first = 0; first < stages.n_steps; first += 4) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      issue_step(sums, a[q], stages, place);
      hold_until_here(a[(q + 3) % 4]);
      if (first + q + 3 < stages.n_steps) load_half_step(a[(q + 3) % 4], tiles, source(first + q + 3), lane);
      stages.leave_previous(place);
    }
  }
  products_wait<0>();
  hold_until_here(a[3]);
}

#endif

// Which rows of which matrix a warp, or an output, belongs to. A gate's block has the same rows of both matrices, one
// half of its warps each; else every warpgroup has 64 rows of one matrix.
struct RowPlace {
  uint32_t part, row;  // row: the first of the warp's row tile; part = n_parts: none
};
__host__ __device__ __forceinline__ uint32_t units_of(uint32_t rows) { return (rows + 63) / 64; }
template <int kGroups>
__device__ __forceinline__ RowPlace rows_of_warp(const HalfGemmArgs& a, uint32_t block, uint32_t warp) {
  if (a.ending.kind == EndingKind::kGate)
    return {warp / (2 * kGroups), (block * 2 * kGroups + warp % (2 * kGroups)) * kTileRows};
  uint32_t part = 0, unit = block * kGroups + warp / 4;
  for (; part < a.ending.n_parts; ++part) {
    const uint32_t units = units_of(a.ending.rows[part]);
    if (unit < units) break;
    unit -= units;
  }
  return {part, unit * 64 + warp % 4 * kTileRows};
}

// What the ending needs to know of a token.
struct Token {
  uint32_t row, dest;
  float scale;
};
template <int kGroups, int kTokens, bool kMixture>
__device__ __forceinline__ void note_tokens(const HalfGemmArgs& a, uint32_t n, Token* tokens) {
  for (uint32_t i = threadIdx.x; i < kTokens; i += 128 * kGroups) {
    const uint32_t token = blockIdx.x * kTokens + i;
    if (i >= n) continue;
    if constexpr (kMixture)
      tokens[i] = {a.pairs.slots[token], a.pairs.slots[token], a.x_scales[token]};
    else
      tokens[i] = {a.rows.index[token], a.rows.dest != nullptr ? a.rows.dest[token] : token, a.x_scales[token]};
  }
}

// Sums in shared memory, [tokens][kSumStride], become outputs. A thread has the same four rows of every token it takes.
// kKind, kActivation: of the ending, known here so that the code that runs is short.
template <EndingKind kKind, program::Activation kActivation, int kGroups>
__device__ __forceinline__ void end_block(const HalfGemmArgs& a, const float* sums, const Token* tokens,
                                          const ExpertTile& group) {
  constexpr bool kPairs = kKind == EndingKind::kGate, kLong = kKind == EndingKind::kLogits;
  constexpr uint32_t kRows = 64 * kGroups, kQuads = (kPairs ? kRows / 2 : kRows) / 4, kStep = 128 * kGroups / kQuads;
  constexpr uint32_t kTogether = kLong ? 1 : 4;  // tokens whose operands are on their way together
  const EndingArgs& e = a.ending;
  const uint32_t n_tokens = group.n, quad = threadIdx.x % kQuads;
  const RowPlace place = rows_of_warp<kGroups>(a, blockIdx.y, quad / 4);
  const uint32_t r = place.row + quad % 4 * 4;
  if (place.part == e.n_parts || r >= e.rows[place.part]) return;
  const uint32_t n_rows = min(e.rows[place.part] - r, 4u);
  float factor[2][4] = {}, bias[2][4] = {};
#pragma unroll
  for (uint32_t p = 0; p < (kPairs ? 2 : 1); ++p) {
    const uint32_t part = place.part + p;
    const int8_t* exponents =
        a.parts[part].exponents + size_t(group.expert - a.first_expert) * a.parts[part].slice_rows;
    const float* biases = e.bias[part] != nullptr ? e.bias[part] + size_t(group.expert) * e.rows[part] : nullptr;
#pragma unroll
    for (uint32_t c = 0; c < 4; ++c) {
      factor[p][c] = power_of_two(-exponents[r + c]);  // whole row tiles
      if (biases != nullptr && c < n_rows) bias[p][c] = biases[r + c];
    }
  }
  const float* corner = sums + quad * 4;
  const bool reads = reads_operand(kKind, e), whole = n_rows == 4 && is_aligned(kKind, e, place.part);
#pragma unroll 1
  for (uint32_t first = threadIdx.x / kQuads; first < n_tokens; first += kStep * kTogether) {
    float operand[kTogether][4] = {};
    if (reads) {
#pragma unroll
      for (uint32_t u = 0; u < kTogether; ++u) {
        const uint32_t token = first + u * kStep;
        if (token >= n_tokens) break;
        const float* from = place_of_row(kKind, e, place.part, tokens[token].row, tokens[token].dest).operand + r;
        if (whole) {
          const float4 four = *reinterpret_cast<const float4*>(from);
          operand[u][0] = four.x, operand[u][1] = four.y, operand[u][2] = four.z, operand[u][3] = four.w;
        } else {
#pragma unroll
          for (uint32_t c = 0; c < 4; ++c)
            if (c < n_rows) operand[u][c] = from[c];
        }
      }
    }
#pragma unroll
    for (uint32_t u = 0; u < kTogether; ++u) {
      const uint32_t token = first + u * kStep;
      if (token >= n_tokens) break;
      const Token& t = tokens[token];
      float out[4];
#pragma unroll
      for (uint32_t c = 0; c < 4; ++c) {
        const float* at = corner + token * kSumStride<kGroups> + c;
        // Both factors are powers of two; the row's first, as the token's may be near the largest float.
        const float y = fmaf(*at * factor[0][c], t.scale, bias[0][c]);
        const float other = kPairs ? fmaf(at[kRows / 2] * factor[1][c], t.scale, bias[1][c]) : 0.0f;
        out[c] = ended(kKind, kActivation, e, y, other, operand[u][c]);
      }
      float* to = place_of_row(kKind, e, place.part, t.row, t.dest).out + r;
      if (whole) {
        *reinterpret_cast<float4*>(to) = {out[0], out[1], out[2], out[3]};
      } else {
#pragma unroll
        for (uint32_t c = 0; c < 4; ++c)
          if (c < n_rows) to[c] = out[c];
      }
    }
  }
}

template <int kGroups, int kTokens>
__device__ __forceinline__ void end_block_of_kind(const HalfGemmArgs& a, const float* sums, const Token* tokens,
                                                  const ExpertTile& n) {
  using enum program::Activation;
  const auto of_activation = [&]<EndingKind kKind>() {
    switch (a.ending.activation) {
      case kSilu: return end_block<kKind, kSilu, kGroups>(a, sums, tokens, n);
      case kGeluTanh: return end_block<kKind, kGeluTanh, kGroups>(a, sums, tokens, n);
      case kClampedSwiglu: return end_block<kKind, kClampedSwiglu, kGroups>(a, sums, tokens, n);
    }
  };
  switch (a.ending.kind) {
    case EndingKind::kProduct: return end_block<EndingKind::kProduct, kSilu, kGroups>(a, sums, tokens, n);
    case EndingKind::kStore: return end_block<EndingKind::kStore, kSilu, kGroups>(a, sums, tokens, n);
    case EndingKind::kGate: return of_activation.template operator()<EndingKind::kGate>();
    case EndingKind::kGateOperand: return of_activation.template operator()<EndingKind::kGateOperand>();
    case EndingKind::kResidual: return end_block<EndingKind::kResidual, kSilu, kGroups>(a, sums, tokens, n);
    case EndingKind::kLogits: return end_block<EndingKind::kLogits, kSilu, kGroups>(a, sums, tokens, n);
  }
}

// Block (tile of tokens, rows of the weights). Of a mixture, tokens are pairs of one expert.
template <int kGroups, int kTokens, bool kTwoHalves, bool kMixture>
__global__ void __launch_bounds__(128 * kGroups, 1) gemm_half(const __grid_constant__ HalfGemmArgs a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char unaligned[];
  __shared__ uint64_t come[kStages<kTokens>], left[kStages<kTokens>];
  unsigned char* shared = unaligned + (1024 - address_in_shared(unaligned) % 1024) % 1024;
  __shared__ Token tokens[kTokens];
  __shared__ ExpertTile group;  // what the ending needs, kept out of registers
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x < kStages<kTokens>) {
    init_barrier(address_in_shared(&come[threadIdx.x]), 1);
    init_barrier(address_in_shared(&left[threadIdx.x]), kGroups);
    publish_barriers();
  }
  if (threadIdx.x == 0) group = {0, min(a.rows.n - blockIdx.x * kTokens, uint32_t(kTokens))};
  uint32_t expert = 0;  // of those whose weights are here
  if constexpr (kMixture) {
    wait_for_previous();
    const ExpertTile tile = a.pairs.tiles[blockIdx.x];
    expert = tile.expert - a.first_expert;
    if (tile.n == 0 || expert >= a.n_experts) return;
    if (threadIdx.x == 0) group = tile;
  }
  __syncthreads();
  let_next_begin();
  RowPlace mine = rows_of_warp<kGroups>(a, blockIdx.y, warp);
  mine.part = min(mine.part, a.ending.n_parts - 1);
  const HalfGemmPart& part = a.parts[mine.part];
  if (part.format == kHalfTiles) wait_for_previous();  // they were made in this step
  // Row tiles past the end repeat the last one, unused.
  const uint32_t row_tile = min(mine.row, a.ending.rows[mine.part] - 1) / kTileRows;
  const RowFactors factors =
      row_factors(part.exponents + size_t(expert) * part.slice_rows + row_tile * kTileRows, lane);
  const uint8_t* tiles = part.tiles + expert * part.slice_bytes;
  const int n_of_walk = int(a.k_tiles) * kStepsPerTile;
  const Stages<kGroups, kTokens, kTwoHalves> stages{address_in_shared(shared),
                                                    address_in_shared(come),
                                                    address_in_shared(left),
                                                    a.x + size_t(blockIdx.x) * kTokens * kStageCols,
                                                    size_t(a.n_arranged) * kStageCols,
                                                    (kTwoHalves ? 3 : 1) * n_of_walk,
                                                    n_of_walk};
  float sums[kTokens / 2];
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) sums[i] = 0;
  const auto meanwhile = [&] { note_tokens<kGroups, kTokens, kMixture>(a, group.n, tokens); };
  switch (part.format) {
#define HC_X(e) \
  case Format::e: multiply<Format::e>(sums, tiles, row_tile, factors, stages, lane, meanwhile); break;
    HC_CUDA_UNPACKED_IN_REGISTERS(HC_X)
#undef HC_X
    default: multiply_half_tiles(sums, tiles, row_tile, stages, lane, meanwhile); break;
  }
  __syncthreads();  // the stages are free
  auto* totals = reinterpret_cast<float*>(shared);
  float* corner = totals + lane % 4 * 2 * kSumStride<kGroups> + warp * kTileRows + lane / 4;
#pragma unroll
  for (int j = 0; j < kTokens / 8; ++j) {
    float* to = corner + j * 8 * kSumStride<kGroups>;
    to[0] = sums[4 * j];
    to[kSumStride<kGroups>] = sums[4 * j + 1];
    to[8] = sums[4 * j + 2];
    to[kSumStride<kGroups> + 8] = sums[4 * j + 3];
  }
  __syncthreads();
  end_block_of_kind<kGroups, kTokens>(a, totals, tokens, group);
#endif
}

struct Shape {
  uint32_t groups, tokens;
  int (*launch)(const HalfGemmArgs&, dim3, Stream);
  int (*prepare)();
};
template <int kGroups, int kTokens, bool kTwoHalves, bool kMixture = false>
constexpr Shape shape_of() {
  return {kGroups, kTokens,
          [](const HalfGemmArgs& a, dim3 grid, Stream stream) {
            return launch(gemm_half<kGroups, kTokens, kTwoHalves, kMixture>, grid, 128 * kGroups,
                          kShared<kGroups, kTokens>, stream, a);
          },
          []() -> int {
            return cudaFuncSetAttribute(gemm_half<kGroups, kTokens, kTwoHalves, kMixture>,
                                        cudaFuncAttributeMaxDynamicSharedMemorySize, kShared<kGroups, kTokens>);
          }};
}
constexpr Shape kShapes[] = {shape_of<2, 256, false>(), shape_of<2, 128, false>(), shape_of<2, 64, false>(),
                             shape_of<1, 64, false>()};
constexpr Shape kTwoHalvesShapes[] = {shape_of<2, 128, true>(), shape_of<2, 64, true>(), shape_of<1, 64, true>()};
constexpr Shape kMixtureShapes[] = {shape_of<2, 64, true, true>(), shape_of<2, 128, true, true>()};

uint32_t row_blocks(const EndingArgs& e, uint32_t groups) {
  if (e.kind == EndingKind::kGate) return (e.rows[0] + 32 * groups - 1) / (32 * groups);
  uint32_t units = 0;
  for (uint32_t part = 0; part < e.n_parts; ++part) units += units_of(e.rows[part]);
  return (units + groups - 1) / groups;
}

// The block size that should take the least time: rounds over the multiprocessors, and the clocks that a stage takes in
// one. A step of 16 columns with A in registers takes a warpgroup some 60 clocks more than its products alone.
const Shape& best_shape(const HalfGemmArgs& a) {
  constexpr uint64_t kOfRegisters = 60, kLeast = 700;  // kLeast: unpacking and issuing, one after the other
  const Shape* best = nullptr;
  uint64_t least = UINT64_MAX;
  const std::span<const Shape> shapes = a.two_halves ? std::span<const Shape>(kTwoHalvesShapes) : kShapes;
  for (const Shape& s : shapes) {
    const uint64_t blocks = uint64_t{row_blocks(a.ending, s.groups)} * ((a.rows.n + s.tokens - 1) / s.tokens);
    const uint64_t rounds = (blocks + a.n_multiprocessors - 1) / a.n_multiprocessors;
    const uint64_t cost = rounds * std::max(s.groups * 4 * (s.tokens / 2 + kOfRegisters), kLeast);
    if (cost < least) {
      least = cost;
      best = &s;
    }
  }
  return *best;
}

}  // namespace

int launch_half_gemm(const HalfGemmArgs& a, Stream stream) {
  if (a.pairs.slots != nullptr) {
    for (const Shape& s : kMixtureShapes)
      if (s.tokens == a.pairs.tile_slots)
        return s.launch(a, dim3(a.pairs.n_tiles, row_blocks(a.ending, s.groups)), stream);
    return cudaErrorInvalidValue;
  }
  const Shape& s = best_shape(a);
  return s.launch(a, dim3((a.rows.n + s.tokens - 1) / s.tokens, row_blocks(a.ending, s.groups)), stream);
}

bool has_half_gemm() {
#if defined(HC_CUDA_SM_90A)
  return true;
#else
  return false;
#endif
}

int prepare_half_gemm() {
  if (!has_half_gemm()) return cudaSuccess;
  for (const std::span<const Shape> shapes : {std::span<const Shape>(kShapes), {kTwoHalvesShapes}, {kMixtureShapes}})
    for (const Shape& s : shapes)
      if (const int status = s.prepare(); status != cudaSuccess) return status;
  return cudaSuccess;
}

}  // namespace honeycrisp::backend::cuda
