// The inputs of products in the persistent kernel, brought into shared memory as products read them: from fragments
// that whoever made a vector has published (fragments.cuh), or from floats.
#pragma once

#include "backend/cuda/kernels/fragments.cuh"

namespace honeycrisp::backend::cuda {

constexpr int kPiecesPerTile = int(kTileCols) / 8, kPiecesPerPair = 8, kBlocks = int(kTileCols) / 32;
constexpr int kTileWords = kLimbWords;  // of a row's activations in a tile, in both forms
static_assert(kHalfWords == kTileWords);

/// How a block's working memory is used by a product of kRows rows.
template <int kRows>
struct ProjectMemory {
  float* partials;     // [tiles][kRows][16]: partial_at()
  uint32_t* x;         // [k tiles][kRows][kTileWords]
  KnownOfTile* known;  // [k tiles][kRows]

  __device__ __forceinline__ ProjectMemory(uint8_t* work, const StepShared& shared) {
    partials = reinterpret_cast<float*>(work);
    x = reinterpret_cast<uint32_t*>(work + shared.slots * partial_bytes(kRows));
    known = reinterpret_cast<KnownOfTile*>(x + shared.stage_tiles * kTileWords * kRows);
  }
};

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

// The integers of a piece, as words of either form, and what the lane tells of its block: the scale, the sum, the low
// sum by t. A warp's lanes hold the pieces of one tile of one row.
struct MadePiece {
  uint32_t words[2][2];  // f16: [low, high columns][two]; limbs: [limb][low, high columns]
  float known;

  __device__ __forceinline__ MadePiece(const Piece& v, bool halves, int lane) {
    uint32_t largest = max(largest_bits(v.low), largest_bits(v.high));
#pragma unroll
    for (int d = 1; d < 4; d *= 2) largest = max(largest, __shfl_xor_sync(~0u, largest, d));
    const BlockScale scale(largest);
    int sum[2];
#pragma unroll
    for (int high = 0; high < 2; ++high) {
      const float4& f = high == 0 ? v.low : v.high;
      const int x[4] = {scale.integer(f.x), scale.integer(f.y), scale.integer(f.z), scale.integer(f.w)};
      sum[high] = (x[0] + x[1]) + (x[2] + x[3]);
      if (halves) {
        words[high][0] = two_halves(x[0], x[1]);
        words[high][1] = two_halves(x[2], x[3]);
      } else {
        words[0][high] = words[1][high] = 0;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          words[0][high] |= (uint32_t(x[e] >> 7) & 255) << (8 * byte_of_element(e));
          words[1][high] |= (uint32_t(x[e]) & 127) << (8 * byte_of_element(e));
        }
      }
    }
#pragma unroll
    for (int e = 1; e < 4; e *= 2)
#pragma unroll
      for (int i = 0; i < 2; ++i) sum[i] += __shfl_xor_sync(~0u, sum[i], e);
    const int t = lane & 3;
    known = t == 0 ? scale.after : float(t == 1 ? sum[0] + sum[1] : sum[0]);
  }
  __device__ __forceinline__ uint4 all_words() const { return {words[0][0], words[0][1], words[1][0], words[1][1]}; }
};

// Leaves a piece where products read it. `tile`: of the staged ones.
template <int kRows, bool kHalves>
__device__ __forceinline__ void stage_piece(const ProjectMemory<kRows>& m, const Piece& v, int row, int tile,
                                            int lane) {
  const MadePiece made(v, kHalves, lane);
  const Relative relative(made.known, lane, kHalves);
  uint32_t* x = m.x + (tile * kRows + row) * kTileWords;
  if constexpr (kHalves) {
    leave_halves(x, row, made.all_words(), relative.factor, lane);
  } else {
    const int block = lane / 4, t = lane % 4;
    uint32_t* to = x + block / 2 * 32 + t * 4 + block % 2 * 2;
#pragma unroll
    for (int limb = 0; limb < 2; ++limb)
      *reinterpret_cast<uint2*>(to + limb * 16) = make_uint2(made.words[limb][0], made.words[limb][1]);
  }
  leave_known(m.known[tile * kRows + row], relative, lane);
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
// 1 / rms of an input, from the sum of its squares.
__device__ __forceinline__ float scale_of_row(const StepOp& op, float squares) {
  return op.norm.present ? rsqrtf(fmaf(squares, op.per_column, op.norm.eps)) : 1.0f;
}
// By one warp, after all of the row's squares are left.
__device__ __forceinline__ void leave_scale(BlockMemory& s, const StepOp& op, int row, int k_tiles, int lane) {
  float squares = 0;
  if (op.norm.present)
#pragma unroll 1
    for (int tile = lane; tile < k_tiles; tile += 32) squares += s.squares[row * kMostKTiles + tile];
  squares = warp_sum(squares);
  if (lane == 0) s.scales[row] = scale_of_row(op, squares);
}

// Waits for k tiles [tile0, tile0 + n) of an input of floats and stages them: what no product or attention of this step
// has made. Input columns are a multiple of four.
template <int kRows, bool kHalves>
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
      stage_piece<kRows, kHalves>(m, v, row, piece / kPiecesPerTile - tile0, lane);
    }
}

// The same of an input of fragments: kHeld pieces of kGroup rows together, so that they cost one round trip.
template <int kRows, bool kHalves>
__device__ __forceinline__ void stage_fragments(const StepArgs& a, const StepOp& op, BlockMemory& s,
                                                const ProjectMemory<kRows>& m, int tile0, int n, bool measures) {
  constexpr int kGroup = kRows, kHeld = kRows == 1 ? 4 : 1;
  const int lane = this_thread() % 32, n_pieces = (tile0 + n) * kPiecesPerTile;
  const int n_blocks = int((op.cols + kFragmentBlock - 1) / kFragmentBlock);
  const uint32_t known = value_words(op.cols);  // where it begins
#pragma unroll 1
  for (int row = 0; row < int(a.n_rows); row += kGroup) {
    const float* from = a.planes + size_t(row) * a.plane + op.fragments_in;
#pragma unroll 1
    for (int first = tile0 * kPiecesPerTile + turn_of(this_thread() / 32) * 32 + lane; first < n_pieces;
         first += kThreads * kHeld) {
      FragmentPiece v[kGroup][kHeld];
      const auto look = [&](int g, int i) {
        const int piece = first + i * kThreads, block = kHalves ? piece / 4 : piece / kPiecesPerPair * 2;
        const float* row_from = from + size_t(g) * a.plane;
        v[g][i].look(row_from + piece * 4, row_from + known + piece, block < n_blocks, kHalves || block + 1 < n_blocks,
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
          const Relative relative(p.known, lane, kHalves);
          if constexpr (kHalves)
            leave_halves(m.x + at * kTileWords, row + g, p.words, relative.factor, lane);
          else
            reinterpret_cast<uint4*>(m.x + at * kTileWords)[lane] = {p.words.x ^ bias, p.words.y ^ bias,
                                                                     p.words.z ^ second_bias, p.words.w ^ second_bias};
          leave_known(m.known[at], relative, lane);
          if (measures) leave_squares(s, lane % 4 == 3 ? p.known : 0, row + g, tile, lane);
        }
      }
    }
  }
}

}  // namespace honeycrisp::backend::cuda
