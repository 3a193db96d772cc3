// The functions that are compiled once per instruction set, and the plain structs that cross to them. One definition
// of every result: all instruction sets give the same bits (isa/*.inl say in which order things are added).
// Included by files with special compile flags: nothing here may bring in inline functions or templates of others,
// because the linker could keep their AVX version for everybody.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace honeycrisp::backend::cpu {

/// Outputs of a matrix that are computed together, and lanes of every vector loop.
inline constexpr uint32_t kLanes = 16;
/// Inputs that share one activation scale.
inline constexpr uint32_t kGroup = 32;
/// Positions of an attention chunk and of a page, as program.h and backend.h have them (checked in attend.cpp).
inline constexpr uint32_t kChunkPositions = 256;
inline constexpr uint32_t kPositionsPerPage = 64;
/// Of clamped SwiGLU, as program.h has them (checked in isa.cpp).
inline constexpr float kSwigluAlpha = 1.702f;
inline constexpr float kSwigluLimit = 7.0f;

/// 32 activations as integers q, x ≈ d · q. One plane: |q| ≤ 127. Two planes: q = 128 · planes[0] + planes[1], |q| ≤
/// 8127, the planes within [−64, 63]. A group with an infinity or a NaN has d = NaN.
template <int kPlanes>
struct ActivationGroup {
  int8_t planes[kPlanes][kGroup];
  float d;
  float d_sum;  // d · Σ q
  /// −128 times the sum of a plane, over the group and over its halves: what the products of the plane start from where
  /// codes are 128 too large.
  int32_t raised[kPlanes][3];
};
static_assert(sizeof(ActivationGroup<1>) == 52 && sizeof(ActivationGroup<2>) == 96);
inline constexpr int kMostPlanes = 2;

/// Most rows whose groups are interleaved, so that one pointer reaches them all. An input of n rows lies in tiles of
/// T = min(n, 8) rows (or T = 1, where rows are taken singly): [tiles][cols / 32][T], the last tile not filled.
inline constexpr uint32_t kTileRows = 8;
/// Index of a row's first group; its next ones are T apart.
inline constexpr size_t first_group(size_t row, uint32_t n_groups, uint32_t tile_rows) {
  return (row - row % tile_rows) * n_groups + row % tile_rows;
}

/// How the codes of a group of 32 inputs × 16 outputs lie in a packed panel; the value is their size in bytes. Planes
/// are vectors of 64 bytes, a dword per output. Byte c of a dword holds, of inputs 4 g + c,
///   nibbles, vector j: the low four bits of g = j (low) and of g = j + 4 (high)       4 vectors
///   a bit, one vector: the next bit of g = 0 … 7, from bit 0 on                       1 vector
///   crumbs, vector j:  the next two bits of g = 4 j … 4 j + 3, from bit 0 on          2 vectors
///   bytes, vector j:   all bits of g = j                                              8 vectors
enum CodePlanes : uint32_t {
  kCrumbs = 128,
  kCrumbsBit = 192,
  kNibbles = 256,
  kNibblesBit = 320,
  kNibblesCrumbs = 384,
  kBytes = 512,
};

// Formats that are multiplied by integer arithmetic, from packed panels of 16 outputs. A block of a panel is the scales
// of its 16 blocks, field by field, then the codes group by group: exactly the bits of the file, rearranged. X(format,
// groups of 32 per block, planes of codes, bytes of scales per block)
#define HC_CPU_INTEGER_FORMATS(X) \
  X(Q4_0, 1, kNibbles, 32)        \
  X(Q4_1, 1, kNibbles, 64)        \
  X(Q5_0, 1, kNibblesBit, 32)     \
  X(Q5_1, 1, kNibblesBit, 64)     \
  X(Q8_0, 1, kBytes, 32)          \
  X(Q2_K, 8, kCrumbs, 320)        \
  X(Q3_K, 8, kCrumbsBit, 224)     \
  X(Q4_K, 8, kNibbles, 256)       \
  X(Q5_K, 8, kNibblesBit, 256)    \
  X(Q6_K, 8, kNibblesCrumbs, 288) \
  X(IQ4_NL, 1, kNibbles, 32)      \
  X(IQ4_XS, 8, kNibbles, 128)     \
  X(MXFP4, 1, kNibbles, 16)
// Formats that are multiplied as f32, from panels that hold the values of 16 outputs side by side, input after input:
// exactly the bits of the file. All others are unpacked to such a panel of F32 in every step.
#define HC_CPU_FLOAT_FORMATS(X) X(F32) X(F16) X(BF16)

/// Most panels that are multiplied together: what is read of many rows of input then serves all of them.
inline constexpr uint32_t kMostPanels = 4;

/// y[row][output] = Σ_k w[output][k] · x[row][k] for panels of 16 outputs. An output's bits are those of its panel
/// alone.
struct PanelArgs {
  const uint8_t* panels;
  uint32_t n_panels;  // 1..kMostPanels, panel_bytes apart
  size_t panel_bytes;
  uint32_t n_groups;     // inputs / 32
  const void* groups;    // ActivationGroup, in tiles
  uint32_t tile_rows;    // rows of a tile
  uint32_t first;        // row of the input
  const uint32_t* rows;  // [n_rows] which rows of the input; null: those from `first` on
  uint32_t n_rows;
  float* y;  // [n_rows][n_panels][16]
};
using PanelFn = void (*)(const PanelArgs&);
/// The same for panels of a floating-point format. They may be multiplied piece by piece, each but the last a multiple
/// of 32 inputs, with the bits of one call.
struct FloatPanelArgs {
  const uint8_t* panels;  // [cols][16] each
  uint32_t n_panels;      // as in PanelArgs
  size_t panel_bytes;
  uint32_t cols;
  const float* inputs;  // [rows] of cols floats, input_stride apart
  size_t input_stride;
  const uint32_t* rows;  // as in PanelArgs
  uint32_t n_rows;
  bool adds;  // to what y holds: this is not the first piece
  float* y;   // [n_rows][n_panels][16]
};
using FloatPanelFn = void (*)(const FloatPanelArgs&);

/// out [cols] = one output's weights.
using UnpackFn = void (*)(const uint8_t* panel, uint32_t cols, uint32_t output, float* out);

enum class KvElement : uint8_t { kF16, kF32, kQ8_0 };

/// Floats of a partial softmax of one query head: [0] maximum, [1] sum of exponentials, [16...] weighted sum of V.
constexpr size_t softmax_floats(uint32_t value_dim) { return kLanes + (value_dim + kLanes - 1) / kLanes * kLanes; }

/// Most rows that attend to a chunk together.
inline constexpr uint32_t kAttendRows = 8;
struct AttendRow {
  uint32_t first, last;  // positions [first, last) of the chunk that the row sees; empty: nothing is written for it
  float scale;
  float* out;  // [n_heads][softmax_floats(value_dim)]
};

/// Keys and values of one KV head in a chunk. Layout of a page: see kv_cache.h.
struct ChunkPages {
  KvElement element;
  const uint8_t* keys[kChunkPositions / kPositionsPerPage];  // null where no position is asked for
  const uint8_t* values[kChunkPositions / kPositionsPerPage];
  size_t key_tile_bytes;        // of 16 positions
  size_t value_position_bytes;  // of one position
};

/// Attention of the query heads that share a KV head, of one or several rows of a sequence, over one chunk. Rows share
/// what is read of the cache; each has the bits that it has alone.
struct AttendChunkArgs {
  const float* queries;  // [n_rows · n_heads][key_dim] as attend_pack() leaves them
  AttendRow rows[kAttendRows];
  uint32_t n_rows;
  uint32_t n_heads;  // of a row
  uint32_t key_dim;
  uint32_t value_dim;
  ChunkPages pages;
  const uint8_t* next;  // keys that are probably read after this chunk; null: not known
  float softcap;        // 0: none
  float* scores;        // [n_rows · n_heads][256] scratch
};

/// out = silu(Σ_j taps[j] · inputs[j]) per channel, oldest input first.
struct ConvolveArgs {
  const float* taps;  // [n_taps][n]
  size_t tap_stride;
  const float* const* inputs;  // [n_taps] of [n]
  uint32_t n_taps;
  uint32_t n;
  float* out;  // [n]
};

/// Most blocks of 16 value columns that advance together.
inline constexpr uint32_t kDeltaBlocks = 4;
/// One position of the gated delta rule (program.h: DeltaNet) in some value columns of a head.
struct DeltaStepArgs {
  float* state;  // [blocks][key_dim][16]
  uint32_t key_dim;
  uint32_t n_values;  // 1..64
  const float* q;     // [key_dim]
  const float* k;     // [key_dim]
  const float* v;     // [n_values]
  float decay, beta;
  float* out;  // [n_values]
};

/// y = activation(y) · other, in the manner of one program::Activation. n is a multiple of 16.
using GateFn = void (*)(const float* other, float* y, size_t n);

/// One instruction set.
struct Isa {
  const char* name;

  struct Floats {
#define HC_X(format) FloatPanelFn format;
    HC_CPU_FLOAT_FORMATS(HC_X)
#undef HC_X
  } floats;
  /// With activations of so many planes.
  struct Integers {
#define HC_X(format, ...) PanelFn format;
    HC_CPU_INTEGER_FORMATS(HC_X)
#undef HC_X
    /// ActivationGroups of x [cols], cols a multiple of 32: out[0], out[stride], ….
    void (*quantize)(const float* x, uint32_t cols, uint32_t stride, void* out);
  } integers[kMostPlanes];  // [planes − 1]
  struct Unpack {
#define HC_X(format, ...) UnpackFn format;
    HC_CPU_INTEGER_FORMATS(HC_X)
    HC_CPU_FLOAT_FORMATS(HC_X)
#undef HC_X
  } unpack;

  /// x [n] to IEEE half precision.
  void (*to_half)(const float* x, uint32_t n, uint8_t* out);
  /// a, b = a · cos − b · sin, a · sin + b · cos. All [n].
  void (*rotate_halves)(float* a, float* b, const float* cosines, const float* sines, uint32_t n);
  /// The same with a and b side by side: x [n], n even. Tables [n] with each value twice, the first sine negated.
  void (*rotate_neighbours)(float* x, const float* cosines, const float* sines, uint32_t n);
  /// out = x / sqrt(mean(x²) + eps) · weight; weight may be null, out may be x.
  void (*rms_norm)(const float* x, uint32_t n, const float* weight, float eps, float* out);
  GateFn gate_silu, gate_gelu_tanh, gate_clamped_swiglu;
  /// y = y · σ(gate), any n.
  void (*sigmoid_gate)(const float* gate, float* y, uint32_t n);
  /// y = scale · softcap(y); softcap 0: none. n is a multiple of 16.
  void (*cap_and_scale)(float* y, size_t n, float softcap, float scale);
  /// x = e^(x − maximum), any n; returns their sum.
  float (*exponentials)(float* x, uint32_t n, float maximum);
  /// out [16] = Σ_i weights[i] · panel[indices[i]], in order.
  void (*weighted_sum)(const float* panel, const uint32_t* indices, const float* weights, uint32_t n, float* out);

  void (*convolve)(const ConvolveArgs&);
  /// decay = e^(a · softplus(decay + dt_bias)), beta = σ(beta), any n.
  void (*delta_gates)(const float* a, const float* dt_bias, uint32_t n, float* decay, float* beta);
  void (*delta_step)(const DeltaStepArgs&);

  /// Queries [n][key_dim] in the order in which attend_chunk() reads them.
  void (*attend_pack)(const float* queries, uint32_t n, uint32_t key_dim, float* out);
  void (*attend_chunk)(const AttendChunkArgs&);
  /// Positions [first, last) of pages of f16 or q8_0, and what else lies in their tiles, as pages of f32: what
  /// attend_chunk() takes from these has the same bits. keys [256 / 16][key_dim][16], values [256][value_dim rounded up
  /// to 16].
  void (*attend_widen)(const ChunkPages& pages, uint32_t first, uint32_t last, uint32_t key_dim, uint32_t value_dim,
                       float* keys, float* values);
  /// Adds a later chunk to `state`. Both [softmax_floats(value_dim)].
  void (*attend_merge)(float* state, const float* chunk, uint32_t value_dim);
  /// out [value_dim] = weighted sum / sum, after `sink` (may be null) has joined the softmax.
  void (*attend_finish)(float* state, const float* sink, uint32_t value_dim, float* out);

  // Ceilings, see ceilings.h.
  /// Reads n bytes (64-aligned, n a multiple of 256) and gives a sum of them.
  uint64_t (*read_stream)(const uint8_t* p, size_t n);
  /// Multiply-adds of small integers on registers; how many. Adds something to `kept`, so that they are not optimised
  /// away.
  uint64_t (*multiply_peak)(uint64_t rounds, uint64_t* kept);
};

}  // namespace honeycrisp::backend::cpu
