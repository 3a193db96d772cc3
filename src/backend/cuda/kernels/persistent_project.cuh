// Products inside the persistent kernel: y = W · norm(x), and its ending, for up to eight rows at once.
//
// A warp multiplies a tile at a time and leaves its partial sums; those of an output are added in the order of k, four
// k tiles together. So the order of every sum depends on the number of columns alone, not on which warp or block takes
// a tile, how K is cut into chunks, or the rows: those are columns of the mma, which do not mix. Activations are
// rounded to f16 after scaling each block of 32 by a power of two that brings its largest to 2^14, so none overflows
// and what underflows is 2^-38 of the largest. x is scaled by the norm's weight before the product and by 1 / rms after
// it.
#pragma once

#include "backend/cuda/kernels/ending.cuh"
#include "backend/cuda/kernels/persistent_block.cuh"
#include "backend/cuda/kernels/step_tile.cuh"

namespace honeycrisp::backend::cuda {

constexpr int kLargestExponent = 14;
constexpr int kPiecesPerTile = int(kTileCols) / 8, kPairs = int(kTileCols) / 64;

/// How a block's working memory is used by a product of kRows rows.
template <int kRows>
struct ProjectMemory {
  float* partials;           // [tiles][16][kRows]
  __half* x;                 // [blocks of 32][kRows][t][8]
  BlockSums* sums;           // [pairs of blocks][kRows]
  HalfBlockSums* half_sums;  // the same

  __device__ __forceinline__ ProjectMemory(uint8_t* work, const StepShared& shared) {
    partials = reinterpret_cast<float*>(work);
    x = reinterpret_cast<__half*>(work + shared.slots * partial_bytes(kRows));
    sums = reinterpret_cast<BlockSums*>(x + shared.stage_tiles * kTileCols * kRows);
    half_sums = reinterpret_cast<HalfBlockSums*>(sums + shared.stage_tiles * kPairs * kRows);
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

// Rounds a piece to f16 and leaves it where fragments are read, with what products need to know of its block. `piece`:
// from the first staged tile on. A warp's lanes hold the pieces of one tile of one row.
template <int kRows>
__device__ __forceinline__ void stage_piece(const ProjectMemory<kRows>& m, const StepOp& op, const Piece& v, int row,
                                            int piece) {
  const int blk = piece >> 2, t = piece & 3;
  float most = largest_of(v, 0);
  most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
  most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
  const uint32_t exponent = max(__float_as_uint(most) >> 23, 20u);  // biased
  const float before = __uint_as_float((254 + kLargestExponent - exponent) << 23);
  const float after = __uint_as_float((exponent - kLargestExponent) << 23);
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
  reinterpret_cast<uint4*>(m.x)[(blk * kRows + row) * 4 + t] = f;
  low += __shfl_xor_sync(~0u, low, 1);
  high += __shfl_xor_sync(~0u, high, 1);
  low += __shfl_xor_sync(~0u, low, 2);
  high += __shfl_xor_sync(~0u, high, 2);
  // Of four lanes that know the same, each leaves one number.
  const int at = (blk >> 1) * kRows + row;
  float* to =
      t < 2 ? (t == 0 ? m.sums[at].sum : m.sums[at].scale) : (t == 2 ? m.half_sums[at].low : m.half_sums[at].high);
  const float whole = -(low + high) * sum_factor(op.high_scaled);
  const float half = (t == 2 ? -low : -high) * kHalfSumFactor;
  if (t < 2 || op.half_block_sums) to[blk & 1] = t == 0 ? whole : t == 1 ? after : half;
}

__device__ __forceinline__ uint32_t most_bits(const float4& v) {
  return max(max(__float_as_uint(v.x), __float_as_uint(v.y)), max(__float_as_uint(v.z), __float_as_uint(v.w)));
}
__device__ __forceinline__ bool has_poison(const Piece& v) {
  return max(most_bits(v.low), most_bits(v.high)) == kPoison;
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
          if (!has_poison(v[g][i])) continue;
          const float* at = from + size_t(g) * a.plane + i * kThreads * 8;
          const uint32_t k = column_of(first) + i * kThreads * 8;
          if (k < cols) v[g][i].low = look4(at);
          if (k + 16 < cols) v[g][i].high = look4(at + 16);
          waits = true;
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

__device__ __forceinline__ void leave_squares(BlockMemory& s, const Piece& v, int row, int tile, int lane) {
  const float squares = warp_sum(add_squares(v, 0));
  if (lane == 0) s.squares[row * kMostKTiles + tile] = squares;
}
// By one warp, after all of the row's squares are left.
__device__ __forceinline__ void leave_scale(BlockMemory& s, const StepOp& op, int row, int k_tiles, int lane) {
  float squares = 0;
  if (op.norm.present)
#pragma unroll 1
    for (int tile = lane; tile < k_tiles; tile += 32) squares += s.squares[row * kMostKTiles + tile];
  squares = warp_sum(squares);
  if (lane == 0) s.scales[row] = op.norm.present ? rsqrtf(fmaf(squares, op.per_column, op.norm.eps)) : 1.0f;
}

// Waits for a thread's pieces `p` and every 512th after it, kHeld together, of kGroup rows, and stages them.
template <int kRows, int kGroup, int kHeld, class Meanwhile>
__device__ __forceinline__ void stage_pieces(const StepArgs& a, const StepOp& op, BlockMemory& s,
                                             const ProjectMemory<kRows>& m, int row, int p, int tile0, int n_pieces,
                                             bool measures, int lane, const Meanwhile& meanwhile) {
  const Piece weights = weights_of(op, p);  // on its way while the input is awaited
  Pieces<kGroup, kHeld> held;
  held.await(a, a.planes + size_t(row) * a.plane + op.in, a.n_rows - min(a.n_rows, uint32_t(row)), op.cols, p, n_pieces,
             s.dog, meanwhile);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int piece = p + i * kThreads;
    if (piece >= n_pieces) break;  // a whole warp
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      Piece v = held.v[g][i];
      if (measures) leave_squares(s, v, row + g, piece / kPiecesPerTile, lane);
      if (op.norm.weight != nullptr) v = times(v, i == 0 ? weights : weights_of(op, piece));
      stage_piece<kRows>(m, op, v, row + g, piece - tile0 * kPiecesPerTile);
    }
  }
}

// Waits for k tiles [tile0, tile0 + n) of the input and stages them. Input columns are a multiple of four.
template <int kRows, class Meanwhile>
__device__ __forceinline__ void stage_tiles(const StepArgs& a, const StepOp& op, BlockMemory& s,
                                            const ProjectMemory<kRows>& m, int tile0, int n, bool measures,
                                            const Meanwhile& meanwhile) {
  const int thread = int(this_thread()), lane = thread % 32, n_pieces = (tile0 + n) * kPiecesPerTile;
  int p = tile0 * kPiecesPerTile + thread;
  measures = measures && op.norm.present;
  if constexpr (kRows == 1) {
    constexpr int kHeld = 4;
    if (p >= n_pieces) return meanwhile();
    if (n_pieces <= kThreads)
      return stage_pieces<1, 1, 1>(a, op, s, m, 0, p, tile0, n_pieces, measures, lane, meanwhile);
    stage_pieces<1, 1, kHeld>(a, op, s, m, 0, p, tile0, n_pieces, measures, lane, meanwhile);
#pragma unroll 1
    for (p += kHeld * kThreads; p < n_pieces; p += kThreads)
      stage_pieces<1, 1, 1>(a, op, s, m, 0, p, tile0, n_pieces, measures, lane, [] {});
  } else {
    constexpr int kGroup = 4;
    meanwhile();
#pragma unroll 1
    for (int row = 0; row < kRows; row += kGroup)
#pragma unroll 1
      for (int piece = p; piece < n_pieces; piece += kThreads)
        stage_pieces<kRows, kGroup, 1>(a, op, s, m, row, piece, tile0, n_pieces, measures, lane, [] {});
  }
}

// ---- products

template <Format F, int kRows>
__device__ __forceinline__ void multiply(const ProjectMemory<kRows>& m, const uint8_t* tile, float* partial, uint32_t k,
                                         Diagonal& diagonal, int lane) {
  const __half* x = m.x + k * (kTileCols * kRows);
  const BlockSums* sums = m.sums + k * (kPairs * kRows);
  const HalfBlockSums* half_sums = m.half_sums + k * (kPairs * kRows);
  Tile<F> r;
  load_tile<F, PlainLoad>(r, tile, lane);
  if constexpr (kRows == 1) {
    diagonal.load(x, lane);
    multiply_diagonal<F>(partial, r, diagonal, sums, half_sums, lane);
  } else {
    multiply_rows<F, kRows>(partial, r, x, sums, half_sums, lane);
  }
}

// The tiles of a pass in a chunk of k_tiles, stage after stage. per_k_tile: 2^32 / k_tiles, rounded up.
template <int kRows>
__device__ __forceinline__ void multiply_chunk(Ring& ring, const StepPass& pass, int k_tiles, uint32_t per_k_tile,
                                               const ProjectMemory<kRows>& m, int warp, int lane) {
  Diagonal diagonal;
  if constexpr (kRows == 1) diagonal.clear();
  uint32_t first = 0, end = 0;  // tiles of the pass
#pragma unroll 1
  for (int i = 0; i < pass.n_segments; ++i) {
    const Format format = pass.segments[i].format;
    end += uint32_t(pass.segments[i].n_tiles) * k_tiles;
#pragma unroll 1
    while (first != end) {
      const uint2 stage = ring.wait();
      if (warp < int(stage.y)) {
        const uint32_t tile = first + warp, row_tile = k_tiles == 1 ? tile : __umulhi(tile, per_k_tile);
        const uint32_t k = tile - row_tile * k_tiles;
        float* partial = m.partials + tile * (kTileRows * kRows);
        const uint8_t* from = ring.memory + stage.x;
        switch (format) {
#define HC_X(e) \
  case Format::e: multiply<Format::e, kRows>(m, from + warp * tile_bytes(Format::e), partial, k, diagonal, lane); break;
          HC_CUDA_PACKED(HC_X)
#undef HC_X
          default: break;
        }
      }
      first += stage.y;
      ring.release(warp, lane);
    }
  }
}

// Adds the partial sums of an output of k_tiles tiles to `sum`.
template <int kRows>
__device__ __forceinline__ float add_partials(float sum, const float* partials, int k_tiles) {
  constexpr int kTogether = 16, kStride = int(kTileRows) * kRows;
#pragma unroll 1
  for (; k_tiles >= kTogether; k_tiles -= kTogether, partials += kTogether * kStride) {
    float part[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) part[i] = partials[i * kStride];
#pragma unroll
    for (int i = 0; i < kTogether; i += 4) sum += (part[i] + part[i + 1]) + (part[i + 2] + part[i + 3]);
  }
#pragma unroll 1
  for (; k_tiles > 0; k_tiles -= 4, partials += 4 * kStride) {
    float part[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) part[i] = i < k_tiles ? partials[i * kStride] : 0.0f;
    sum += (part[0] + part[1]) + (part[2] + part[3]);
  }
  return sum;
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

// The output of a thread: element r16 of row `row` of the batch, of row tile `tile` and, of a gate, of its partner.
template <int kRows>
struct Output {
  static constexpr int kOfTile = int(kTileRows) * kRows;
  int tile, within, partner;
  bool exists;

  __device__ __forceinline__ Output(const StepArgs& a, const StepOp& op, const StepPass& pass, int thread)
      : tile(thread / kOfTile), within(thread % kOfTile), partner(tile + pass.n_tiles / 2) {
    const int n = op.ending == EndingKind::kGate ? pass.n_tiles / 2 : pass.n_tiles;
    exists = tile < n && r16() < pass.tiles[tile].n_rows && row() < int(a.n_rows);
  }
  __device__ __forceinline__ int r16() const { return within / kRows; }
  __device__ __forceinline__ int row() const { return within % kRows; }
  __device__ __forceinline__ const float* added(const StepArgs& a, const StepOp& op, const StepPass& pass) const {
    return a.planes + size_t(row()) * a.plane + op.add + pass.tiles[tile].row + r16();
  }
};
// One pass: products of all its tiles, and their ending.
template <int kRows, class Meanwhile, class Fetched>
__device__ __forceinline__ void project_pass(const StepArgs& a, const StepOp& op, const StepPass& pass, BlockMemory& s,
                                             Ring& ring, uint8_t* work, const Meanwhile& meanwhile,
                                             const Fetched& fetched) {
  const ProjectMemory<kRows> m(work, a.shared);
  const int k_tiles = int((op.cols + kTileCols - 1) / kTileCols);
  // One row is staged whole, several rows chunk after chunk.
  const int chunk = kRows == 1 ? k_tiles : int(chunk_tiles(k_tiles, a.shared.stage_tiles));
  float add = 0;  // on its way during the product
  if (op.add != kNoPlace)
    if (const Output<kRows> out(a, op, pass, this_thread()); out.exists) add = look(out.added(a, op, pass));

  float y = 0, other = 0;
  int tile0 = 0;
#pragma unroll 1
  do {
    const int n_k = kRows == 1 ? k_tiles : min(k_tiles - tile0, chunk);
    const auto at_first = [&] {
      if (kRows == 1 || tile0 == 0) meanwhile();
    };
    if (pass.opens || chunk < k_tiles) {
      stage_tiles<kRows>(a, op, s, m, tile0, n_k, pass.opens, at_first);
    } else {
      at_first();
    }
    __syncthreads();  // also: all have left the partial sums of the pass or chunk before
    const int warp = this_thread() / 32, lane = this_thread() % 32;
    if (pass.opens && tile0 == 0 && ring.its_turn(warp) && lane == 0) ring.give_back(ring.at);
    if (pass.opens && tile0 + n_k == k_tiles && kWarps - 1 - warp < kRows)
      leave_scale(s, op, kWarps - 1 - warp, k_tiles, lane);
    multiply_chunk<kRows>(ring, pass, n_k, n_k == k_tiles ? op.per_k_tile : uint32_t(~0u / uint32_t(n_k) + 1), m, warp,
                          lane);
    fetched();
    __syncthreads();
    if (const Output<kRows> out(a, op, pass, this_thread()); out.exists) {
      y = add_partials<kRows>(y, m.partials + out.tile * n_k * out.kOfTile + out.within, n_k);
      if (op.ending == EndingKind::kGate)
        other = add_partials<kRows>(other, m.partials + out.partner * n_k * out.kOfTile + out.within, n_k);
    }
    tile0 += n_k;
  } while (kRows != 1 && tile0 < k_tiles);

  const Output<kRows> out(a, op, pass, this_thread());
  if (!out.exists) return;
  const StepTile& place = pass.tiles[out.tile];
  const uint32_t r = place.row + out.r16();
  const float scale = s.scales[out.row()];
  y *= scale;
  if (op.bias[place.part] != nullptr) y += __ldg(op.bias[place.part] + r);
  if (op.ending == EndingKind::kGate) {
    other *= scale;
    if (op.bias[1] != nullptr) other += __ldg(op.bias[1] + r);
  }
  if (op.add != kNoPlace) add = await(add, out.added(a, op, pass), s.dog);
  end_output(a, op, place.part, r, out.row(), y, other, add);
}

// ---- endings that norm whole rows of products

// The block waits for the whole row of products, and ends outputs [pass.begin, pass.end).
template <int kRows, class Fetched>
__device__ __forceinline__ void end_pass(const StepArgs& a, const StepOp& op, const StepPass& pass, BlockMemory& s,
                                         uint8_t* work, const Fetched& fetched) {
  const int warp = this_thread() / 32, lane = this_thread() % 32;
  const int n_pieces = int((op.cols + kTileCols - 1) / kTileCols) * kPiecesPerTile;
  const bool stores = op.ending == EndingKind::kStore;
  const float scale = stores ? op.scale : 1.0f;
#pragma unroll 1
  for (int row = 0; row < int(a.n_rows); ++row) {
    float squares = 0;
#pragma unroll 1
    for (int p = this_thread(); p < n_pieces; p += kThreads) {
      Pieces<1, 1> piece;
      piece.await(a, a.planes + size_t(row) * a.plane + op.in, 1, op.cols, p, n_pieces, s.dog, [] {});
      const float4 times_scale = {scale, scale, scale, scale};
      squares = add_squares(times(piece.v[0][0], {times_scale, times_scale}), squares);
    }
    __syncwarp();
    squares = warp_sum(squares);
    if (lane == 0) s.squares[row * kWarps + warp] = squares;
  }
  __syncthreads();
  fetched();
  if (warp < int(a.n_rows)) {
    float squares = s.squares[warp * kWarps + lane % kWarps];
#pragma unroll
    for (int d = kWarps / 2; d != 0; d /= 2) squares += __shfl_xor_sync(~0u, squares, d);
    if (lane == 0) s.scales[warp] = rsqrtf(fmaf(squares, op.per_column, op.norm.eps));
  }
  __syncthreads();
  const uint32_t n = pass.end - pass.begin;
  for (uint32_t o = this_thread(); o < n * a.n_rows; o += kThreads) {
    const uint32_t row = o / n, r = pass.begin + o % n;
    float y = look(a.planes + size_t(row) * a.plane + op.in + r) * scale * s.scales[row];
    if (op.norm.weight != nullptr) y *= __ldg(op.norm.weight + r);
    if (!stores) y *= op.scale;
    if (op.add != kNoPlace) y += await(a.planes + size_t(row) * a.plane + op.add + r, s.dog);
    publish(a.planes + size_t(row) * a.plane + op.out[0] + r, op.out_scale * y);
  }
  __syncthreads();
}

}  // namespace honeycrisp::backend::cuda
