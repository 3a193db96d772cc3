// Products inside the persistent kernel: y = W · norm(x), and its ending, for up to eight rows at once.
//
// A warp multiplies a tile at a time and leaves its partial sums; those of an output are added in the order of k, four
// k tiles together. So the order of every sum depends on the number of columns alone, not on which warp or block takes
// a tile, how K is cut into chunks, or the rows: those are columns of the mma, which do not mix. Activations are
// rounded to eleven bits after scaling, and multiplied as limbs or as f16 (fragments.cuh). x is scaled by the norm's
// weight before the product and by 1 / rms after it.
#pragma once

#include "backend/cuda/kernels/ending.cuh"
#include "backend/cuda/kernels/persistent_stage.cuh"

#include <type_traits>

namespace honeycrisp::backend::cuda {

// ---- products

template <Format F, int kRows, bool kHalves>
__device__ __forceinline__ void multiply(const ProjectMemory<kRows>& m, const uint8_t* tile, float* partial, uint32_t k,
                                         Diagonal& diagonal, bool fresh, int lane) {
  const uint32_t* x = m.x + k * (kTileWords * kRows);
  const KnownOfTile* known = m.known + k * kRows;
  Tile<F> r;
  load_tile<F, PlainLoad>(r, tile, lane);
  if constexpr (kHalves) {
    multiply_halves<F, kRows>(partial, r, x, known, lane);
  } else if constexpr (kRows == 1) {
    if (fresh) diagonal.load(x, *known, lane);
    multiply_diagonal<F>(partial, r, diagonal, lane);
  } else {
    multiply_limbs<F, kRows>(partial, r, x, known, lane);
  }
}

// The tiles of a pass in a chunk of k_tiles, stage after stage. per_k_tile: 2^32 / k_tiles, rounded up.
template <FormatSet kSet, int kRows, bool kHalves>
__device__ __forceinline__ void multiply_chunk(Ring& ring, const StepPass& pass, int k_tiles, uint32_t per_k_tile,
                                               const ProjectMemory<kRows>& m, int warp, int lane) {
  Diagonal diagonal;
  if constexpr (kRows == 1 && !kHalves) diagonal.clear();  // else its registers would be taken during all passes
  uint32_t first = 0, end = 0, held = ~0u;                 // tiles of the pass; the k tile of the diagonal
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
#define HC_X(e)                                                                                                    \
  case Format::e:                                                                                                  \
    if constexpr (has_format(kSet, Format::e) && (kHalves || !is_packed_float(Format::e)))                         \
      multiply<Format::e, kRows, kHalves>(m, from + warp * tile_bytes(Format::e), partial, k, diagonal, k != held, \
                                          lane);                                                                   \
    break;
          HC_CUDA_PACKED(HC_X)
#undef HC_X
          default: break;
        }
        held = k;
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
    sum[0] += part[0] + part[1] + part[2] + part[3];
    sum[1] += other[0] + other[1] + other[2] + other[3];
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
  bool floats_out, halves_out;
  uint32_t add, fragments_out, rows0;
  float scale, out_scale, softcap;

  __device__ __forceinline__ explicit Ending(const StepOp& op)
      : kind(op.ending),
        activation(op.activation),
        floats_out(op.floats_out),
        halves_out(op.halves_out),
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

// use(whether the op's activations are f16), known to the compiler.
template <FormatSet kSet, class Use>
__device__ __forceinline__ void in_form(const StepOp& op, const Use& use) {
  if (kSet == FormatSet::kAll && op.halves_in)
    use(std::bool_constant<kSet == FormatSet::kAll>());
  else
    use(std::false_type());
}

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
      const bool measures = pass.opens && op.norm.present;
      in_form<kSet>(op, [&](auto halves) {
        if (op.fragments_in != kNoPlace)
          stage_fragments<kRows, halves()>(a, op, s, m, tile0, n_k, measures);
        else
          stage_floats<kRows, halves()>(a, op, s, m, tile0, n_k, measures);
      });
    }
    sync_warps();  // also: all have left the partial sums of the pass or chunk before
    const int warp = this_thread() / 32, lane = this_thread() % 32;
    if (pass.opens && tile0 == 0 && this_thread() == kThreads - 1) ring.open();
    if (pass.opens && tile0 + n_k == k_tiles && kWarps - 1 - warp < kRows)
      leave_scale(s, op, kWarps - 1 - warp, k_tiles, lane);
    in_form<kSet>(op, [&](auto halves) {
      multiply_chunk<kSet, kRows, halves()>(
          ring, pass, n_k, n_k == k_tiles ? op.per_k_tile : uint32_t(~0u / uint32_t(n_k) + 1), m, warp, lane);
    });
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
    publish_block(plane + ending.fragments_out, ending.halves_out, ending.rows0, out.column(pass), value, weight,
                  out.exists);
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
    if (lane == 0) s.scales[warp] = scale_of_row(op, squares);
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
      publish_block(plane + op.fragments_out, op.halves_out, op.rows[0], column, y,
                    op.fragments_norm != nullptr ? __ldg(op.fragments_norm + r) : 1.0f, exists);
  }
  sync_warps();
}

}  // namespace honeycrisp::backend::cuda
