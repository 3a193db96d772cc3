// Products inside the persistent kernel: y = W · norm(x), and its ending, for up to eight rows at once.
//
// A warp multiplies a tile at a time and leaves its partial sums; those of an output are added in the order of k, four
// k tiles together. So the order of every sum depends on the number of columns alone, not on which warp or block takes
// a tile, how K is cut into chunks, or the rows: those are columns of the mma, which do not mix. Activations are
// rounded to integers of 15 bits after scaling (fragments.cuh). x is scaled by the norm's weight before the product and
// by 1 / rms after it.
#pragma once

#include "backend/cuda/kernels/ending.cuh"
#include "backend/cuda/kernels/fragments.cuh"

namespace honeycrisp::backend::cuda {

constexpr int kPiecesPerTile = int(kTileCols) / 8, kPiecesPerPair = 8, kBlocks = int(kTileCols) / 32;

/// How a block's working memory is used by a product of kRows rows.
template <int kRows>
struct ProjectMemory {
  float* partials;     // [tiles][kRows][16]: partial_at()
  uint32_t* x;         // [k tiles][kRows][kLimbWords]
  KnownOfTile* known;  // [k tiles][kRows]

  __device__ __forceinline__ ProjectMemory(uint32_t* staged, KnownOfTile* known_of)
      : partials(nullptr), x(staged), known(known_of) {}
  __device__ __forceinline__ ProjectMemory(uint8_t* work, const StepShared& shared) {
    partials = reinterpret_cast<float*>(work);
    x = reinterpret_cast<uint32_t*>(work + shared.slots * partial_bytes(kRows));
    known = reinterpret_cast<KnownOfTile*>(x + shared.stage_tiles * kLimbWords * kRows);
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
__device__ __forceinline__ uint32_t largest_bits(const float4& v) {
  return max(max(magnitude_bits(v.x), magnitude_bits(v.y)), max(magnitude_bits(v.z), magnitude_bits(v.w)));
}
__device__ __forceinline__ float add_squares(const float4& v, float sum) {
  return fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, sum))));
}
__device__ __forceinline__ float add_squares(const Piece& v, float sum) {
  return add_squares(v.high, add_squares(v.low, sum));
}
// The squares of a block whose pieces four lanes have, in the order in which publish_block() adds them.
__device__ __forceinline__ float squares_of_block(const Piece& v) {
  float low = (v.low.x * v.low.x + v.low.y * v.low.y) + (v.low.z * v.low.z + v.low.w * v.low.w);
  float high = (v.high.x * v.high.x + v.high.y * v.high.y) + (v.high.z * v.high.z + v.high.w * v.high.w);
#pragma unroll
  for (int d = 1; d < 4; d *= 2) {
    low += __shfl_xor_sync(~0u, low, d);
    high += __shfl_xor_sync(~0u, high, d);
  }
  return low + high;
}

// Makes integers of a piece (fragments.cuh) and leaves them where products read them, with what those need to know of
// its block. `piece`: from the first staged tile on. A warp's lanes hold the pieces of one tile of one row.
template <int kRows>
__device__ __forceinline__ void stage_piece(const ProjectMemory<kRows>& m, const Piece& v, int row, int piece) {
  uint32_t largest = max(largest_bits(v.low), largest_bits(v.high));
#pragma unroll
  for (int d = 1; d < 4; d *= 2) largest = max(largest, __shfl_xor_sync(~0u, largest, d));
  const BlockScale scale(largest);
  const int blk = piece >> 2, t = piece & 3, of_tile = blk % kBlocks;
  uint32_t words[2][2];  // [limb][low, high columns]
  int sum[2];
#pragma unroll
  for (int high = 0; high < 2; ++high) {
    const float4& f = high == 0 ? v.low : v.high;
    const int x[4] = {__float2int_rn(f.x * scale.before), __float2int_rn(f.y * scale.before),
                      __float2int_rn(f.z * scale.before), __float2int_rn(f.w * scale.before)};
    sum[high] = (x[0] + x[1]) + (x[2] + x[3]);
    words[0][high] = words[1][high] = 0;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      words[0][high] |= (uint32_t(x[e] >> 7) & 255) << (8 * byte_of_element(e));
      words[1][high] |= (uint32_t(x[e]) & 127) << (8 * byte_of_element(e));
    }
  }
#pragma unroll
  for (int e = 1; e < 4; e *= 2)
#pragma unroll
    for (int i = 0; i < 2; ++i) sum[i] += __shfl_xor_sync(~0u, sum[i], e);
  uint32_t* to = m.x + (blk / kBlocks * kRows + row) * kLimbWords + of_tile / 2 * 32 + t * 4 + of_tile % 2 * 2;
#pragma unroll
  for (int limb = 0; limb < 2; ++limb)
    *reinterpret_cast<uint2*>(to + limb * 16) = make_uint2(words[limb][0], words[limb][1]);
  auto* known = reinterpret_cast<float*>(&m.known[blk / kBlocks * kRows + row]);
  if (t < 3)
    known[t * kBlocks + of_tile] = t == 0 ? scale.after : scale.after * float(t == 1 ? sum[0] + sum[1] : sum[0]);
}

__device__ __forceinline__ uint32_t most_bits(const float4& v) {
  return max(max(__float_as_uint(v.x), __float_as_uint(v.y)), max(__float_as_uint(v.z), __float_as_uint(v.w)));
}
__device__ __forceinline__ bool has_poison(const Piece& v) {
  return max(most_bits(v.low), most_bits(v.high)) == kPoison;
}

// Waits for a piece of the floats `in` of a row.
__device__ __forceinline__ Piece await_piece(const float* in, uint32_t cols, int piece, Watchdog& dog) {
  const uint32_t k = column_of(piece);
  Piece v{};
  for (uint32_t polls = 1;; ++polls) {
    if (k < cols) v.low = look4(in + k);
    if (k + 16 < cols) v.high = look4(in + k + 16);
    if (!has_poison(v) || (polls % kPollsBetweenLooks == 0 && dog.gives_up())) break;
  }
  __syncwarp();
  return v;
}
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

// `squares`: a lane's part of the tile's.
__device__ __forceinline__ void leave_squares(BlockMemory& s, float squares, int row, int tile, int lane) {
  squares = warp_sum(squares);
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

// Waits for k tiles [tile0, tile0 + n) of an input of floats and stages them: what no product or attention of this step
// has made. Input columns are a multiple of four.
template <int kRows>
__device__ __forceinline__ void stage_floats(const StepArgs& a, const StepOp& op, BlockMemory& s,
                                             const ProjectMemory<kRows>& m, int tile0, int n, bool measures) {
  const int lane = this_thread() % 32, n_pieces = (tile0 + n) * kPiecesPerTile;
#pragma unroll 1
  for (int row = 0; row < int(a.n_rows); ++row)
#pragma unroll 1
    for (int piece = tile0 * kPiecesPerTile + this_thread(); piece < n_pieces; piece += kThreads) {
      const Piece weights = weights_of(op, piece);  // on its way while the input is awaited
      Piece v = await_piece(a.planes + size_t(row) * a.plane + op.in, op.cols, piece, s.dog);
      if (measures) {
        const float squares = squares_of_block(v);
        leave_squares(s, lane % 4 == 3 ? squares : 0, row, piece / kPiecesPerTile, lane);
      }
      if (op.norm.weight != nullptr) v = times(v, weights);
      stage_piece<kRows>(m, v, row, piece - tile0 * kPiecesPerTile);
    }
}

// The same of an input of fragments: kHeld pieces of kGroup rows together, so that they cost one round trip.
template <int kRows>
__device__ __forceinline__ void stage_fragments(const StepArgs& a, const StepOp& op, BlockMemory& s,
                                                const ProjectMemory<kRows>& m, int tile0, int n, bool measures) {
  constexpr int kGroup = kRows, kHeld = kRows == 1 ? 4 : 1;
  const int lane = this_thread() % 32, n_pieces = (tile0 + n) * kPiecesPerTile;
  const int n_blocks = int((op.cols + kFragmentBlock - 1) / kFragmentBlock);
  const uint32_t known = limb_words(op.cols);  // where it begins
#pragma unroll 1
  for (int row = 0; row < int(a.n_rows); row += kGroup) {
    const float* from = a.planes + size_t(row) * a.plane + op.fragments_in;
#pragma unroll 1
    for (int first = tile0 * kPiecesPerTile + turn_of(this_thread() / 32) * 32 + lane; first < n_pieces;
         first += kThreads * kHeld) {
      FragmentPiece v[kGroup][kHeld];
      const auto look = [&](int g, int i) {
        const int piece = first + i * kThreads, block = piece / kPiecesPerPair * 2;
        const float* row_from = from + size_t(g) * a.plane;
        v[g][i].look(row_from + piece * 4, row_from + known + piece, block < n_blocks, block + 1 < n_blocks,
                     piece / 4 < n_blocks);
      };
#pragma unroll
      for (int g = 0; g < kGroup; ++g)
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
          v[g][i].clear();
          if (first + i * kThreads < n_pieces && row + g < int(a.n_rows)) look(g, i);
        }
      for (uint32_t polls = 1;; ++polls) {
        bool waits = false;
#pragma unroll
        for (int g = 0; g < kGroup; ++g)
#pragma unroll
          for (int i = 0; i < kHeld; ++i)
            if (v[g][i].waits()) {
              look(g, i);
              waits = true;
            }
        if (!waits || (polls % kPollsBetweenLooks == 0 && s.dog.gives_up())) break;
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        const int piece = first + i * kThreads, tile = piece / kPiecesPerTile;
        if (piece >= n_pieces) break;  // a whole warp
        const uint32_t bias = piece / 4 % 2 == 0 && piece / kPiecesPerPair * 2 < n_blocks ? kHighBias : 0;
        const uint32_t second_bias = piece / kPiecesPerPair * 2 + 1 < n_blocks ? bias : 0;
#pragma unroll
        for (int g = 0; g < kGroup; ++g) {
          const FragmentPiece& p = v[g][i];
          const int at = (tile - tile0) * kRows + row + g;
          reinterpret_cast<uint4*>(m.x + at * kLimbWords)[lane] = {p.limbs.x ^ bias, p.limbs.y ^ bias,
                                                                   p.limbs.z ^ second_bias, p.limbs.w ^ second_bias};
          auto* of_blocks = reinterpret_cast<float*>(&m.known[at]);
          if (lane % 4 != 3) of_blocks[lane % 4 * kBlocks + lane / 4] = p.known;
          if (measures) leave_squares(s, lane % 4 == 3 ? p.known : 0, row + g, tile, lane);
        }
      }
    }
  }
}

// ---- products

template <Format F, int kRows>
__device__ __forceinline__ void multiply(const ProjectMemory<kRows>& m, const uint8_t* tile, float* partial, uint32_t k,
                                         Diagonal& diagonal, bool fresh, int lane) {
  const uint32_t* x = m.x + k * (kLimbWords * kRows);
  const KnownOfTile* known = m.known + k * kRows;
  Tile<F> r;
  load_tile<F, PlainLoad>(r, tile, lane);
  if constexpr (kRows == 1 && is_packed_float(F)) {
    multiply_row<F>(partial, r, x, *known, lane);
  } else if constexpr (kRows == 1) {
    if (fresh) diagonal.load(x, *known, lane);
    multiply_diagonal<F>(partial, r, diagonal, lane);
  } else {
    multiply_rows<F, kRows>(partial, r, x, known, lane);
  }
}

// The tiles of a pass in a chunk of k_tiles, stage after stage. per_k_tile: 2^32 / k_tiles, rounded up.
template <FormatSet kSet, int kRows>
__device__ __forceinline__ void multiply_chunk(Ring& ring, const StepPass& pass, int k_tiles, uint32_t per_k_tile,
                                               const ProjectMemory<kRows>& m, int warp, int lane) {
  Diagonal diagonal;
  if constexpr (kRows == 1) diagonal.clear();  // else its registers would be taken during all passes
  uint32_t first = 0, end = 0, held = ~0u;     // tiles of the pass; the k tile of the diagonal
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
#define HC_X(e)                                                                                                  \
  case Format::e:                                                                                                \
    if constexpr (has_format(kSet, Format::e))                                                                   \
      multiply<Format::e, kRows>(m, from + warp * tile_bytes(Format::e), partial, k, diagonal, k != held, lane); \
    break;
          HC_CUDA_PACKED(HC_X)
#undef HC_X
          default: break;
        }
        held = kSet == FormatSet::kAll && is_packed_float(format) ? ~0u : k;  // floats take no diagonal
      }
      first += stage.y;
      ring.release(lane);
    }
  }
}

// Adds the partial sums of n outputs, one or two, of k_tiles tiles to `sum`. Little code: it runs once a pass.
template <int kRows>
__device__ __forceinline__ void add_partials(float (&sum)[2], const float* partials, const float* others, int n,
                                             int k_tiles) {
  constexpr int kTogether = int(kRoundTiles), kStride = int(kTileRows) * kRows;
#pragma unroll 1
  for (; k_tiles > 0; k_tiles -= kTogether, partials += kTogether * kStride, others += kTogether * kStride) {
    float part[kTogether], other[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      part[i] = i < k_tiles ? partials[i * kStride] : 0.0f;
      other[i] = n == 2 && i < k_tiles ? others[i * kStride] : 0.0f;
    }
    sum[0] += (part[0] + part[1]) + (part[2] + part[3]);
    sum[1] += (other[0] + other[1]) + (other[2] + other[3]);
  }
}

// silu without the exact division: of the same value for any row.
__device__ __forceinline__ float activated(program::Activation activation, float x) {
  if (activation == program::Activation::kSilu) return x * __fdividef(1, 1 + __expf(-x));
  return activate(activation, x);
}

// What an ending needs of its op, read together: each word alone would wait for the one before.
struct Ending {
  EndingKind kind;
  program::Activation activation;
  bool floats_out;
  uint32_t add, fragments_out, rows0;
  float scale, out_scale, softcap;

  __device__ __forceinline__ explicit Ending(const StepOp& op)
      : kind(op.ending),
        activation(op.activation),
        floats_out(op.floats_out),
        add(op.add),
        fragments_out(op.fragments_out),
        rows0(op.rows[0]),
        scale(op.scale),
        out_scale(op.out_scale),
        softcap(op.softcap) {}

  __device__ __forceinline__ float of(float y, float other, float operand) const {
    if (kind == EndingKind::kGate || kind == EndingKind::kGateOperand)
      return activated(activation, y) * (kind == EndingKind::kGate ? other : operand);
    if (kind == EndingKind::kProduct) return y;
    if (kind == EndingKind::kLogits) return scale * honeycrisp::backend::cuda::softcap(softcap, y);
    y *= scale;
    return out_scale * (add == kNoPlace ? y : operand + y);
  }
};

// The output of a thread: element r16 of row `row` of the batch, of row tile `tile` and, of a gate, of its partner. A
// warp has those of two row tiles of one row of the batch.
template <int kRows>
struct Output {
  int tile, warp, lane;
  bool exists;

  __device__ __forceinline__ Output(const StepArgs& a, const StepOp& op, const StepPass& pass, int thread)
      : tile(thread / (32 * kRows) * 2 + thread % 32 / 16), warp(thread / 32), lane(thread % 32) {
    exists = tile < n_outputs(op, pass) && row() < int(a.n_rows) && r16() < pass.tiles[tile].n_rows;
  }
  /// Whether a lane of the warp may have one.
  __device__ __forceinline__ bool warp_has(const StepOp& op, const StepPass& pass) const {
    return warp / kRows * 2 < n_outputs(op, pass);
  }
  /// The lane's column of the outputs, whether or not it exists.
  __device__ __forceinline__ uint32_t column(const StepPass& pass) const {
    return pass.tiles[warp / kRows * 2].row + lane;
  }
  /// Row tiles of outputs.
  static __device__ __forceinline__ int n_outputs(const StepOp& op, const StepPass& pass) {
    return op.ending == EndingKind::kGate ? pass.n_tiles / 2 : pass.n_tiles;
  }
  __device__ __forceinline__ int r16() const { return lane % int(kTileRows); }
  __device__ __forceinline__ int row() const { return warp % kRows; }
  /// Of a tile `of` of the pass, in a chunk of n_k tiles.
  __device__ __forceinline__ const float* partials(const ProjectMemory<kRows>& m, int of, int n_k) const {
    return m.partials + of * n_k * int(kTileRows) * kRows + partial_at(row(), r16());
  }
  __device__ __forceinline__ const float* added(const StepArgs& a, const StepOp& op, const StepPass& pass) const {
    return a.planes + size_t(row()) * a.plane + op.add + pass.tiles[tile].row + r16();
  }
};

// One pass: products of all its tiles, and their ending.
template <FormatSet kSet, int kRows, class Fetched>
__device__ __forceinline__ void project_pass(const StepArgs& a, const StepOp& op, const StepPass& pass, BlockMemory& s,
                                             Ring& ring, uint8_t* work, const Fetched& fetched) {
  const ProjectMemory<kRows> m(work, a.shared);
  const int k_tiles = int((op.cols + kTileCols - 1) / kTileCols);
  // One row is staged whole, several rows chunk after chunk.
  const int chunk = kRows == 1 ? k_tiles : int(chunk_tiles(k_tiles, a.shared.stage_tiles));
  float add = 0, weight = 1;  // on their way during the product
  if (const Output<kRows> out(a, op, pass, this_thread()); out.exists) {
    if (op.add != kNoPlace) add = look(out.added(a, op, pass));
    if (op.fragments_norm != nullptr) weight = __ldg(op.fragments_norm + pass.tiles[out.tile].row + out.r16());
  }

  float y[2] = {0, 0};  // of the tile and of its partner
  int tile0 = 0;
#pragma unroll 1
  do {
    const int n_k = kRows == 1 ? k_tiles : min(k_tiles - tile0, chunk);
    if (pass.opens || chunk < k_tiles) {
      if (op.fragments_in != kNoPlace)
        stage_fragments<kRows>(a, op, s, m, tile0, n_k, pass.opens && op.norm.present);
      else
        stage_floats<kRows>(a, op, s, m, tile0, n_k, pass.opens && op.norm.present);
    }
    sync_warps();  // also: all have left the partial sums of the pass or chunk before
    const int warp = this_thread() / 32, lane = this_thread() % 32;
    if (pass.opens && tile0 == 0 && this_thread() == kThreads - 1) ring.open();
    if (pass.opens && tile0 + n_k == k_tiles && kWarps - 1 - warp < kRows)
      leave_scale(s, op, kWarps - 1 - warp, k_tiles, lane);
    multiply_chunk<kSet, kRows>(ring, pass, n_k, n_k == k_tiles ? op.per_k_tile : uint32_t(~0u / uint32_t(n_k) + 1), m,
                                warp, lane);
    fetched();
    const Output<kRows> out(a, op, pass, this_thread());
    sync_warps();
    if (out.exists)
      add_partials<kRows>(y, out.partials(m, out.tile, n_k), out.partials(m, out.tile + pass.n_tiles / 2, n_k),
                          op.ending == EndingKind::kGate ? 2 : 1, n_k);
    tile0 += n_k;
  } while (kRows != 1 && tile0 < k_tiles);

  const Output<kRows> out(a, op, pass, this_thread());
  if (!out.warp_has(op, pass)) return;
  const Ending ending(op);
  const StepTile place = pass.tiles[out.tile < int(kPassTiles) ? out.tile : 0];
  const uint32_t r = place.row + out.r16(), to = op.out[place.part];
  const float *bias = op.bias[place.part], *other_bias = op.bias[1];
  const float scale = s.scales[out.row()];
  float* plane = a.planes + size_t(out.row()) * a.plane;
  float value = 0;
  if (out.exists) {
    y[0] *= scale;
    y[1] *= scale;
    if (bias != nullptr) y[0] += __ldg(bias + r);
    if (other_bias != nullptr && ending.kind == EndingKind::kGate) y[1] += __ldg(other_bias + r);
    if (ending.add != kNoPlace) add = await(add, out.added(a, op, pass), s.dog);
    value = ending.of(y[0], y[1], add);
    if (ending.kind == EndingKind::kLogits) {
      if (a.dest[out.row()] != kNoLogits) a.logits[size_t(a.dest[out.row()]) * ending.rows0 + r] = value;
    } else if (ending.floats_out) {
      publish(plane + to + r, value);
    }
  }
  if (ending.fragments_out != kNoPlace && out.row() < int(a.n_rows))
    publish_block(plane + ending.fragments_out, ending.rows0, out.column(pass), value, weight, out.exists);
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
      const Piece piece = await_piece(a.planes + size_t(row) * a.plane + op.in, op.cols, p, s.dog);
      const float4 times_scale = {scale, scale, scale, scale};
      squares = add_squares(times(piece, {times_scale, times_scale}), squares);
    }
    __syncwarp();
    squares = warp_sum(squares);
    if (lane == 0) s.squares[row * kWarps + warp] = squares;
  }
  sync_warps();
  fetched();
  if (warp < int(a.n_rows)) {
    float squares = s.squares[warp * kWarps + lane % kWarps];
#pragma unroll
    for (int d = kWarps / 2; d != 0; d /= 2) squares += __shfl_xor_sync(~0u, squares, d);
    if (lane == 0) s.scales[warp] = rsqrtf(fmaf(squares, op.per_column, op.norm.eps));
  }
  sync_warps();
  const uint32_t n = (pass.end - pass.begin + kFragmentBlock - 1) / kFragmentBlock * kFragmentBlock;
  const uint32_t n_outputs = n * a.n_rows;
  for (uint32_t o = this_thread(); o < n_outputs; o += kThreads) {
    const uint32_t row = o / n, column = pass.begin + o % n;  // a warp has a block of one row
    const bool exists = column < pass.end;
    const uint32_t r = exists ? column : pass.begin;
    float y = look(a.planes + size_t(row) * a.plane + op.in + r) * scale * s.scales[row];
    if (op.norm.weight != nullptr) y *= __ldg(op.norm.weight + r);
    if (!stores) y *= op.scale;
    if (op.add != kNoPlace) y += await(a.planes + size_t(row) * a.plane + op.add + r, s.dog);
    y *= op.out_scale;
    float* plane = a.planes + size_t(row) * a.plane;
    if (op.floats_out && exists) publish(plane + op.out[0] + r, y);
    if (op.fragments_out != kNoPlace)
      publish_block(plane + op.fragments_out, op.rows[0], column, y,
                    op.fragments_norm != nullptr ? __ldg(op.fragments_norm + r) : 1.0f, exists);
  }
  sync_warps();
}

}  // namespace honeycrisp::backend::cuda
