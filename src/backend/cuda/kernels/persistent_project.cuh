// Products inside the persistent kernel: y = W · norm(x), and its ending, for up to eight rows at once.
//
// The block's row tiles are cut into passes; in a pass, the tiles of kStageTiles columns of tiles at a time are split
// in 16 equal contiguous runs, one a warp. A warp leaves one partial sum per row tile, and the partial sums of a row
// are added in the warps' order, chunk of K after chunk. The order of every sum depends on the weights' shape and the
// number of blocks, never on the rows: those are columns of the mma, which do not mix. Activations are rounded to f16
// after scaling each row by a power of two that brings its largest to 2^9, so none overflows and what underflows is
// 2^-34 of the largest. x is scaled by the norm's weight before the product and by 1 / rms after it.
#pragma once

#include "backend/cuda/kernels/ending.cuh"
#include "backend/cuda/kernels/packed.cuh"
#include "backend/cuda/kernels/persistent_block.cuh"

namespace honeycrisp::backend::cuda {

constexpr int kLargestExponent = 9;
constexpr uint32_t kBlockSums = 4 * 4, kHalfBlockSums = 4 * 8;  // halves per tile and row (packed.cuh)
constexpr int kPiecesPerTile = int(kTileCols) / 8;

/// How a block's working memory is used by a product of kRows rows.
template <int kRows>
struct ProjectMemory {
  float* partials;    // [slots][16][kRows]
  float* totals;      // [kPassTiles][16][kRows]: of the chunks of K before
  __half* x;          // [blocks of 32][kRows][t][8]
  __half* sums;       // [tiles][kRows][16]
  __half* half_sums;  // [tiles][kRows][32]

  __device__ __forceinline__ ProjectMemory(uint8_t* work, const StepShared& shared) {
    partials = reinterpret_cast<float*>(work);
    totals = partials + shared.slots * kTileRows * kRows;
    x = reinterpret_cast<__half*>(totals + kPassTiles * kTileRows * kRows);
    sums = x + shared.stage_tiles * kTileCols * kRows;
    half_sums = sums + shared.stage_tiles * kBlockSums * kRows;
  }
};

// ---- staging

// A piece: eight columns that lie together in a fragment, 4t .. 4t + 3 and 16 + 4t .. 16 + 4t + 3 of a block of 32.
// Piece p is lane t = p % 4 of block p / 4.
struct Piece {
  float4 low, high;
};
__device__ __forceinline__ uint32_t column_of(int piece) { return uint32_t(piece >> 2) * 32 + (piece & 3) * 4; }
__device__ __forceinline__ float4 times(const float4& a, const float4& b) {
  return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w};
}
__device__ __forceinline__ float largest_of(const float4& v, float most) {
  return fmaxf(fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))), most);
}
__device__ __forceinline__ float largest_of(const Piece& v, float most) {
  return largest_of(v.high, largest_of(v.low, most));
}
__device__ __forceinline__ float add_squares(const float4& v, float sum) {
  return fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, sum))));
}
__device__ __forceinline__ float add_squares(const Piece& v, float sum) {
  return add_squares(v.high, add_squares(v.low, sum));
}
__device__ __forceinline__ float warp_most(float v) {  // of numbers that are not negative
  return __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(v)));
}
__device__ __forceinline__ void leave_measure(BlockMemory& s, int row, float squares, float most, int warp, int lane) {
  squares = warp_sum(squares);
  most = warp_most(most);
  if (lane == 0) s.measures[row * kWarps + warp] = {squares, most};
}
// Of a row, from the measures of all warps; the same in every lane of a warp. The order of the sum of squares: a thread
// adds the units that are 512 apart, then lanes, then warps.
__device__ __forceinline__ RowScale scale_of(const BlockMemory& s, int row, const StepOp& op, int lane) {
  float2 measure = s.measures[row * kWarps + lane % kWarps];
#pragma unroll
  for (int d = kWarps / 2; d != 0; d /= 2) measure.x += __shfl_xor_sync(~0u, measure.x, d);
  const uint32_t bits = __float_as_uint(warp_most(measure.y));
  const int biased = bits >= 0x7f800000 ? 127 + kLargestExponent : max(int(bits >> 23), 40);
  const int exponent = 127 + kLargestExponent - biased;  // -118 .. 96
  const float rms = op.norm.present ? rsqrtf(fmaf(measure.x, op.per_column, op.norm.eps)) : 1.0f;
  return {__uint_as_float(uint32_t(127 + exponent) << 23), rms * __uint_as_float(uint32_t(127 - exponent) << 23)};
}

__device__ __forceinline__ void leave_sum(__half* to, int low_part, float sum) {
  const __half rounded = __float2half_rn(sum);
  to[0] = rounded;
  to[low_part] = __float2half_rn(sum - __half2float(rounded));
}

// Rounds a piece to f16 and leaves it where fragments are read, with minus the sums of its blocks. `piece`: from the
// first staged tile on. A warp's lanes hold consecutive pieces of one row.
template <int kRows>
__device__ __forceinline__ void stage_piece(const ProjectMemory<kRows>& m, const StepOp& op, const Piece& v,
                                            float before, int row, int piece) {
  uint4 f = {pack_halves(v.low.x * before, v.low.y * before), pack_halves(v.low.z * before, v.low.w * before),
             pack_halves(v.high.x * before, v.high.y * before), pack_halves(v.high.z * before, v.high.w * before)};
  const float2 a = halves(f.x), b = halves(f.y), c = halves(f.z), d = halves(f.w);
  float low = (a.x + a.y) + (b.x + b.y), high = (c.x + c.y) + (d.x + d.y);
  if (op.high_scaled) {
    const __half2 sixteenth = __float2half2_rn(1.0f / 16);
    const __half2 z = __hmul2(*reinterpret_cast<const __half2*>(&f.z), sixteenth);
    const __half2 w = __hmul2(*reinterpret_cast<const __half2*>(&f.w), sixteenth);
    f.z = *reinterpret_cast<const uint32_t*>(&z);
    f.w = *reinterpret_cast<const uint32_t*>(&w);
  }
  const int blk = piece >> 2, t = piece & 3, at = (blk >> 3) * kRows + row;
  reinterpret_cast<uint4*>(m.x)[(blk * kRows + row) * 4 + t] = f;
  low += __shfl_xor_sync(~0u, low, 1);
  high += __shfl_xor_sync(~0u, high, 1);
  low += __shfl_xor_sync(~0u, low, 2);
  high += __shfl_xor_sync(~0u, high, 2);
  if (t != 0) return;
  if (op.block_sums) leave_sum(m.sums + at * kBlockSums + blk % 8 / 2 * 4 + blk % 2, 2, -(low + high));
  if (op.half_block_sums) {
    __half* sums = m.half_sums + at * kHalfBlockSums + blk % 8 / 2 * 8 + blk % 2 * 2;
    leave_sum(sums, 4, -low);
    leave_sum(sums + 1, 4, -high);
  }
}

// Pieces that a thread reads together, of kGroup rows: kCount of each, `first` and every 512th after it.
template <int kGroup, int kCount>
struct Pieces {
  Piece v[kGroup][kCount];

  /// Waits for all of them together: one round trip, not one a piece. `in`: of the first row. `meanwhile` is called
  /// while the first round is on its way.
  template <class Meanwhile>
  __device__ __forceinline__ void await(const StepArgs& a, const float* in, uint32_t rows, uint32_t cols, int first,
                                        int n_pieces, Watchdog& dog, const Meanwhile& meanwhile) {
    const float* from = in + column_of(first);
#pragma unroll
    for (int g = 0; g < kGroup; ++g)
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const uint32_t k = column_of(first) + i * kThreads * 8;
        const float* at = from + size_t(g) * a.plane + i * kThreads * 8;
        v[g][i] = {};
        if (first + i * kThreads >= n_pieces || uint32_t(g) >= rows) continue;
        if (k < cols) v[g][i].low = look4(at);
        if (k + 16 < cols) v[g][i].high = look4(at + 16);
      }
    meanwhile();
    for (uint32_t polls = 1;; ++polls) {
      bool waits = false;
#pragma unroll
      for (int g = 0; g < kGroup; ++g)
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          const float* at = from + size_t(g) * a.plane + i * kThreads * 8;
          if (is_poison(v[g][i].low)) {
            v[g][i].low = look4(at);
            waits = true;
          }
          if (is_poison(v[g][i].high)) {
            v[g][i].high = look4(at + 16);
            waits = true;
          }
        }
      if (!waits || (polls % kPollsBetweenLooks == 0 && dog.gives_up())) break;
    }
    __syncwarp();
  }
};
// The norm's weights of a piece; ones past the last column or without a norm.
__device__ __forceinline__ Piece weights_of(const StepOp& op, int piece) {
  const uint32_t k = column_of(piece);
  Piece w = {{1, 1, 1, 1}, {1, 1, 1, 1}};
  if (op.norm.weight == nullptr) return w;
  const auto* from = reinterpret_cast<const float4*>(op.norm.weight + k);
  if (k < op.cols) w.low = __ldg(from);
  if (k + 16 < op.cols) w.high = __ldg(from + 4);
  return w;
}
__device__ __forceinline__ Piece times(const Piece& a, const Piece& b) {
  return {times(a.low, b.low), times(a.high, b.high)};
}

// Stages k tiles [tile0, tile0 + n) whose values have arrived.
template <int kRows>
__device__ __forceinline__ void stage_tiles(const StepArgs& a, const StepOp& op, BlockMemory& s,
                                            const ProjectMemory<kRows>& m, int tile0, int n) {
  constexpr int kGroup = kRows == 1 ? 1 : 4;
#pragma unroll 1
  for (int row = 0; row < kRows; row += kGroup) {
    const float* in = a.planes + size_t(row) * a.plane + op.in;
#pragma unroll 1
    for (int p = threadIdx.x; p < n * kPiecesPerTile; p += kThreads) {
      const int piece = tile0 * kPiecesPerTile + p;
      const Piece weights = weights_of(op, piece);
      Pieces<kGroup, 1> pieces;
      pieces.await(a, in, a.n_rows - min(a.n_rows, uint32_t(row)), op.cols, piece, piece + 1, s.dog, [] {});
#pragma unroll
      for (int g = 0; g < kGroup; ++g)
        stage_piece<kRows>(m, op, times(pieces.v[g][0], weights), s.scales[row + g].before, row + g, p);
    }
  }
}

// Waits for the input, measures it, and stages what fits. Ends with the block in step. Input columns are a multiple of
// four.
template <int kRows, class Meanwhile>
__device__ __forceinline__ void take_input(const StepArgs& a, const StepOp& op, BlockMemory& s,
                                           const ProjectMemory<kRows>& m, int k_tiles, int fit,
                                           const Meanwhile& meanwhile) {
  constexpr int kHeld = 4;  // pieces of a thread that stay in registers
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_pieces = k_tiles * kPiecesPerTile;
  const float* in = a.planes + op.in;
  if constexpr (kRows == 1) {
    const Piece weights = weights_of(op, threadIdx.x);  // on its way while the input is awaited
    float squares = 0, most = 0;
    Pieces<1, kHeld> held;
    held.await(a, in, 1, op.cols, threadIdx.x, n_pieces, s.dog, meanwhile);
    Piece* v = held.v[0];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (i * kThreads >= n_pieces) break;
      squares = add_squares(v[i], squares);
      if (op.norm.weight != nullptr) v[i] = times(v[i], i == 0 ? weights : weights_of(op, threadIdx.x + i * kThreads));
      most = largest_of(v[i], most);
    }
#pragma unroll 1
    for (int p = threadIdx.x + kHeld * kThreads; p < n_pieces; p += kThreads) {
      Pieces<1, 1> more;
      more.await(a, in, 1, op.cols, p, n_pieces, s.dog, [] {});
      squares = add_squares(more.v[0][0], squares);
      most = largest_of(times(more.v[0][0], weights_of(op, p)), most);
    }
    leave_measure(s, 0, squares, most, warp, lane);
    __syncthreads();
    const RowScale scale = scale_of(s, 0, op, lane);  // every warp for itself
    if (threadIdx.x == 0) s.scales[0] = scale;
    if (n_pieces <= kHeld * kThreads && k_tiles <= fit) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        const int p = threadIdx.x + i * kThreads;
        if (p >= n_pieces) break;  // a whole warp
        stage_piece<kRows>(m, op, v[i], scale.before, 0, p);
      }
    } else {
      __syncthreads();
      stage_tiles<kRows>(a, op, s, m, 0, min(fit, k_tiles));
    }
    __syncthreads();
  } else {
    constexpr int kGroup = 4;
    meanwhile();
#pragma unroll 1
    for (int row = 0; row < kRows; row += kGroup) {
      float squares[kGroup] = {}, most[kGroup] = {};
#pragma unroll 1
      for (int p = threadIdx.x; p < n_pieces; p += kThreads) {
        const Piece weights = weights_of(op, p);
        Pieces<kGroup, 1> pieces;
        pieces.await(a, in + size_t(row) * a.plane, a.n_rows - min(a.n_rows, uint32_t(row)), op.cols, p, n_pieces,
                     s.dog, [] {});
#pragma unroll
        for (int g = 0; g < kGroup; ++g) {
          squares[g] = add_squares(pieces.v[g][0], squares[g]);
          most[g] = largest_of(times(pieces.v[g][0], weights), most[g]);
        }
      }
      __syncwarp();
#pragma unroll
      for (int g = 0; g < kGroup; ++g) leave_measure(s, row + g, squares[g], most[g], warp, lane);
    }
    __syncthreads();
    if (warp < kRows) {
      const RowScale scale = scale_of(s, warp, op, lane);
      if (lane == 0) s.scales[warp] = scale;
    }
    __syncthreads();
    stage_tiles<kRows>(a, op, s, m, 0, min(fit, k_tiles));
    __syncthreads();
  }
}

// ---- products

template <Format F, int kRows>
__device__ __forceinline__ void leave_partial(float* slot, float (&acc)[4], float (&correction)[4], int lane) {
  const int g = lane >> 2, column = (lane & 3) * 2;
  if (column < kRows) {
    slot[g * kRows + column] = finished<F>(acc[0], correction[0]);
    slot[(g + 8) * kRows + column] = finished<F>(acc[2], correction[2]);
  }
  if (column + 1 < kRows) {
    slot[g * kRows + column + 1] = finished<F>(acc[1], correction[1]);
    slot[(g + 8) * kRows + column + 1] = finished<F>(acc[3], correction[3]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) acc[i] = correction[i] = 0;
}

// This warp's run of n_rows x k_tiles tiles; x, sums: of the first k tile. `holds_back`: the room of the last tile
// stays empty until the next input has arrived, so that memory is quiet while vectors are exchanged.
template <Format F, int kRows>
__device__ __forceinline__ void multiply_run(Ring& ring, int n_rows, int k_tiles, const __half* x, const __half* sums,
                                             float* partials, bool holds_back, int warp, int lane) {
  constexpr uint32_t kSums = F == Format::kQ6_K ? kHalfBlockSums : kBlockSums;
  const int n = n_rows * k_tiles, end = n * (warp + 1) / kWarps;
  int i = n * warp / kWarps, row = i / k_tiles, k = i - row * k_tiles;
  float acc[4] = {}, correction[4] = {};
#pragma unroll 1
  for (; i < end; ++i) {
    Tile<F> tile;
    load_tile<F, PlainLoad>(tile, ring.wait(tile_bytes(F)), lane);
    multiply_tile<F, kRows>(acc, correction, tile, x + size_t(k) * kTileCols * kRows, sums + size_t(k) * kRows * kSums,
                            lane);
    __syncwarp();
    const bool last = i + 1 == end;
    ring.release(tile_bytes(F), last && holds_back, lane);
    if (++k == k_tiles || last) {
      leave_partial<F, kRows>(partials + (row + warp) * int(kTileRows) * kRows, acc, correction, lane);
      k = 0;
      ++row;
    }
  }
}

// The partial sums of output `o` of [16][kRows] of a tile, of n tiles in the segment's chunk, in the order of the warps
// that left some, added to `sum`. Tall shares have two or three of them per tile.
template <int kRows>
__device__ __forceinline__ float add_partials(float sum, const float* partials, const StepTile& tile, int o, bool last,
                                              int n) {
  constexpr int kSlot = int(kTileRows) * kRows, kTogether = 4;
  const int w1 = tile.last[last];
  const float* p = partials + tile.slot * kSlot + o;
#pragma unroll 1
  for (int w = tile.first[last]; w <= w1; w += kTogether) {
    float part[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const bool left = w + i <= w1 && (!tile.sparse || n * (w + i) / kWarps < n * (w + i + 1) / kWarps);
      part[i] = left ? p[(w + i) * kSlot] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) sum += part[i];
  }
  return sum;
}

// Tiles of the segment that row tile `tile` of a pass belongs to.
__device__ __forceinline__ int segment_tiles(const StepPass& pass, int tile) {
  return tile < pass.segments[0].n_tiles ? pass.segments[0].n_tiles : pass.segments[1].n_tiles;
}

__device__ __forceinline__ void end_output(const StepArgs& a, const StepOp& op, uint32_t part, uint32_t r, uint32_t row,
                                           float y, float other, float add) {
  float out = y;  // kProduct
  switch (op.ending) {
    case EndingKind::kProduct: break;
    case EndingKind::kStore: out = op.out_scale * (op.add == kNoPlace ? op.scale * y : add + op.scale * y); break;
    case EndingKind::kGate: out = activate(op.activation, y) * other; break;
    case EndingKind::kGateOperand: out = activate(op.activation, y) * add; break;
    case EndingKind::kResidual: out = op.out_scale * (add + op.scale * y); break;
    case EndingKind::kLogits:
      if (a.dest[row] != kNoLogits) a.logits[size_t(a.dest[row]) * op.rows[0] + r] = op.scale * softcap(op.softcap, y);
      return;
  }
  publish(a.planes + size_t(row) * a.plane + op.out[part] + r, out);
}

// One pass: products of all its tiles, and their ending.
template <int kRows, class Meanwhile, class Fetched>
__device__ __forceinline__ void project_pass(const StepArgs& a, const StepOp& op, const StepPass& pass, BlockMemory& s,
                                             Ring& ring, uint8_t* work, const Meanwhile& meanwhile,
                                             const Fetched& fetched) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const ProjectMemory<kRows> m(work, a.shared);
  const int k_tiles = int((op.cols + kTileCols - 1) / kTileCols);
  // Whole chunks of K are staged together, as many as fit.
  const int fit =
      k_tiles <= int(a.shared.stage_tiles) ? k_tiles : int(a.shared.stage_tiles / kStageTiles * kStageTiles);
  if (pass.opens) {
    take_input<kRows>(a, op, s, m, k_tiles, fit, meanwhile);
  } else {
    meanwhile();
    if (k_tiles > fit) {
      stage_tiles<kRows>(a, op, s, m, 0, fit);
      __syncthreads();
    }
  }

  constexpr int kOutputs = int(kTileRows) * kRows;  // of a tile
  const bool gate = op.ending == EndingKind::kGate;
  const int n_ends = (gate ? pass.n_tiles / 2 : pass.n_tiles) * kOutputs;
  // What the ending of this thread's first output adds is on its way during the product.
  float add = 0;
  if (op.add != kNoPlace && int(threadIdx.x) < n_ends) {
    const StepTile& tile = pass.tiles[threadIdx.x / kOutputs];
    const uint32_t within = threadIdx.x % kOutputs;
    if (within / kRows < tile.n_rows && within % kRows < a.n_rows)
      add = look(a.planes + size_t(within % kRows) * a.plane + op.add + tile.row + within / kRows);
  }

  ring.refill(lane);
  // Partial sums of every chunk of K have slots of their own where there is room (one row), else are added up between.
  int chunk_slots = 0;
  for (int i = 0; i < pass.n_segments; ++i) chunk_slots += (pass.segments[i].n_tiles + kWarps) * kOutputs;
  float* partials = m.partials;
#pragma unroll 1
  for (int tile0 = 0; tile0 < k_tiles; tile0 += int(kStageTiles)) {
    const int n_k = min(k_tiles - tile0, int(kStageTiles));
    const bool last = tile0 + n_k == k_tiles;
    if (kRows != 1 && tile0 != 0 && tile0 % fit == 0) {  // all have left the chunk before: the barrier after its sums
      stage_tiles<kRows>(a, op, s, m, tile0, min(fit, k_tiles - tile0));
      __syncthreads();
    }
    const int staged = kRows == 1 ? tile0 : tile0 % fit;
    float* to = partials;
#pragma unroll 1
    for (int i = 0; i < pass.n_segments; ++i) {
      const int n_tiles = pass.segments[i].n_tiles;
      const bool holds_back = last && pass.closes && i + 1 == pass.n_segments;
      const __half* x = m.x + staged * int(kTileCols) * kRows;
      switch (pass.segments[i].format) {
#define HC_X(e)                                                                                                    \
  case Format::e:                                                                                                  \
    multiply_run<Format::e, kRows>(ring, n_tiles, n_k, x,                                                          \
                                   Format::e == Format::kQ6_K ? m.half_sums + staged * kRows * int(kHalfBlockSums) \
                                                              : m.sums + staged * kRows * int(kBlockSums),         \
                                   to, holds_back, warp, lane);                                                    \
    break;
        HC_CUDA_PACKED(HC_X)
#undef HC_X
        default: break;
      }
      to += (n_tiles + kWarps) * kOutputs;
    }
    if (kRows == 1) {
      partials += chunk_slots;
    } else if (!last) {
      __syncthreads();
      for (int o = threadIdx.x; o < pass.n_tiles * kOutputs; o += kThreads) {
        const int tile = o / kOutputs;
        const float before = tile0 == 0 ? 0.0f : m.totals[o];
        m.totals[o] = add_partials<kRows>(before, partials, pass.tiles[tile], o % kOutputs, false,
                                          segment_tiles(pass, tile) * n_k);
      }
      __syncthreads();
    }
  }
  fetched();
  __syncthreads();

  const int last_k = k_tiles - (k_tiles - 1) / int(kStageTiles) * int(kStageTiles);
  const int n_chunks = (k_tiles + int(kStageTiles) - 1) / int(kStageTiles);
#pragma unroll 1
  for (int o = threadIdx.x; o < n_ends; o += kThreads) {
    const StepTile& place = pass.tiles[o / kOutputs];
    const uint32_t within = o % kOutputs, r16 = within / kRows, row = within % kRows, r = place.row + r16;
    if (r16 >= place.n_rows || row >= a.n_rows) continue;
    const float after = s.scales[row].after;
    float y[2] = {0, 0};
#pragma unroll 1
    for (int i = 0; i <= int(gate); ++i) {
      const int tile = o / kOutputs + (i == 0 ? 0 : pass.n_tiles / 2);
      const StepTile& t = pass.tiles[tile];
      const int n = segment_tiles(pass, tile);
      float sum = 0;
      if constexpr (kRows == 1) {
#pragma unroll 1
        for (int chunk = 0; chunk < n_chunks; ++chunk)
          sum = add_partials<kRows>(sum, m.partials + chunk * chunk_slots, t, int(within), chunk + 1 == n_chunks,
                                    n * (chunk + 1 == n_chunks ? last_k : int(kStageTiles)));
      } else {
        if (n_chunks > 1) sum = m.totals[tile * kOutputs + within];
        sum = add_partials<kRows>(sum, m.partials, t, int(within), true, n * last_k);
      }
      sum *= after;
      if (op.bias[t.part] != nullptr) sum += __ldg(op.bias[t.part] + t.row + r16);
      if (i == 0)
        y[0] = sum;
      else
        y[1] = sum;
    }
    if (op.add != kNoPlace) {
      const float* from = a.planes + size_t(row) * a.plane + op.add + r;
      add = await(o == int(threadIdx.x) ? add : look(from), from, s.dog);
    }
    end_output(a, op, place.part, r, row, y[0], y[1], add);
  }
}

// ---- endings that norm whole rows of products

// The block waits for the whole row of products, and ends outputs [pass.begin, pass.end).
template <int kRows, class Fetched>
__device__ __forceinline__ void end_pass(const StepArgs& a, const StepOp& op, const StepPass& pass, BlockMemory& s,
                                         uint8_t* work, const Fetched& fetched) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int n_pieces = int((op.cols + kTileCols - 1) / kTileCols) * kPiecesPerTile;
  const bool stores = op.ending == EndingKind::kStore;
  const float scale = stores ? op.scale : 1.0f;
#pragma unroll 1
  for (int row = 0; row < int(a.n_rows); ++row) {
    float squares = 0;
#pragma unroll 1
    for (int p = threadIdx.x; p < n_pieces; p += kThreads) {
      Pieces<1, 1> piece;
      piece.await(a, a.planes + size_t(row) * a.plane + op.in, 1, op.cols, p, n_pieces, s.dog, [] {});
      const float4 times_scale = {scale, scale, scale, scale};
      squares = add_squares(times(piece.v[0][0], {times_scale, times_scale}), squares);
    }
    __syncwarp();
    leave_measure(s, row, squares, 0, warp, lane);
  }
  __syncthreads();
  fetched();
  if (warp < int(a.n_rows)) {
    float squares = s.measures[warp * kWarps + lane % kWarps].x;
#pragma unroll
    for (int d = kWarps / 2; d != 0; d /= 2) squares += __shfl_xor_sync(~0u, squares, d);
    if (lane == 0) s.scales[warp].after = rsqrtf(fmaf(squares, op.per_column, op.norm.eps));
  }
  __syncthreads();
  const uint32_t n = pass.end - pass.begin;
  for (uint32_t o = threadIdx.x; o < n * a.n_rows; o += kThreads) {
    const uint32_t row = o / n, r = pass.begin + o % n;
    float y = look(a.planes + size_t(row) * a.plane + op.in + r) * scale * s.scales[row].after;
    if (op.norm.weight != nullptr) y *= __ldg(op.norm.weight + r);
    if (!stores) y *= op.scale;
    if (op.add != kNoPlace) y += await(a.planes + size_t(row) * a.plane + op.add + r, s.dog);
    publish(a.planes + size_t(row) * a.plane + op.out[0] + r, op.out_scale * y);
  }
}

}  // namespace honeycrisp::backend::cuda
