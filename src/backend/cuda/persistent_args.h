// What crosses from the host to the persistent kernel: a step of the whole program as a list of ops, what each block
// does of every op (passes), and which bytes of weights each warp streams (spans). Plain data, made by
// persistent_plan.cpp, read by kernels/persistent*.
//
// Exchange. Every op writes its outputs into places of its own: float `place` of a row's plane. A plane is filled with
// kPoison before the step, so a reader polls the floats that it needs until none is poison: no flags, no barriers.
// Two sets of planes alternate from launch to launch; a launch poisons the other set again, and the kernel boundary
// orders that before its use.
#pragma once

#include "backend/cuda/args.h"

namespace honeycrisp::backend::cuda {

inline constexpr uint32_t kStepRows = 8;  // rows of the batch that a launch serves: the columns of an mma
inline constexpr uint32_t kStepWarps = 16, kStepThreads = kStepWarps * 32;
inline constexpr uint32_t kStageTiles = 16;  // k tiles between two orderings of sums, whatever the rows
inline constexpr uint32_t kPassTiles = 16;   // most row tiles of a pass
inline constexpr uint32_t kPassSegments = 2, kPassPieces = 4;
inline constexpr uint32_t kRingSlots = 6;     // most tiles of a warp that are on their way together
inline constexpr uint32_t kMostKTiles = 128;  // of a product
inline constexpr uint32_t kMostStepRopes = 8;
inline constexpr uint32_t kMostStepHeadDim = 256, kMostStepHeadsPerKv = 8;
inline constexpr uint32_t kPoison = 0xffffffff;
inline constexpr uint32_t kNoPlace = UINT32_MAX;
inline constexpr int32_t kNoLogits = -1;

enum class StepOpKind : uint8_t {
  kProject,  // products and an ending of single outputs
  kEnd,      // an ending that norms the whole row of products
  kAttend,
};

struct alignas(16) StepOp {
  StepOpKind kind = StepOpKind::kProject;
  EndingKind ending = EndingKind::kStore;  // kProduct: Store without scales
  program::Activation activation = program::Activation::kSilu;
  uint8_t n_parts = 0;
  uint32_t in = 0;  // place of the input (kEnd: of the products)
  uint32_t cols = 0;
  float per_column = 0;                              // 1 / cols
  bool block_sums = false, half_block_sums = false;  // which sums its formats need
  bool high_scaled = false;  // the upper halves of activation blocks are staged divided by 16 (packed.cuh)
  NormArgs norm;             // of the input; kEnd: of the products
  uint32_t rows[program::kMaxMatrices] = {};
  const float* bias[program::kMaxMatrices] = {};
  uint32_t out[program::kMaxMatrices] = {};
  uint32_t add = kNoPlace;  // Store's addend, the gate's operand, the residual's x
  float scale = 1, out_scale = 1, softcap = 0;

  // What the next op needs soon, brought into L2 by all blocks together: its norm's weights, and the places it writes.
  const float* ahead_norm = nullptr;
  uint32_t ahead_norm_floats = 0, ahead_place = 0, ahead_floats = 0;

  // Attend
  uint32_t q = 0, k = 0, v = 0;  // places
  bool v_is_k = false, output_gate = false, interleaved = false;
  int32_t rope = -1;  // index into StepArgs::ropes
  uint32_t n_pairs = 0, pair_distance = 0;
  uint32_t n_heads = 0, heads_per_kv = 0, window = 0, pool = 0;
  uint32_t index = 0;  // among the attentions of the step
  NormArgs q_norm, k_norm, v_norm;
  const float* sinks = nullptr;
  CacheView cache;
};
static_assert(sizeof(StepOp) % 16 == 0 && sizeof(StepOp) <= 512, "a warp copies it, 16 bytes a lane");

/// Row tiles [first, first + n) of a part.
struct StepPiece {
  uint16_t part = 0, n = 0;
  uint32_t first = 0;
};
/// Row tiles of one format, one after another among the tiles of a pass.
struct StepSegment {
  quant::Format format = quant::Format::kQ4_0;
  uint16_t n_tiles = 0;
};

/// A row tile of a pass: where its outputs go, and which warps leave partial sums of it (persistent_project.cuh), in
/// chunks of K of kStageTiles and in the last one.
struct StepTile {
  uint32_t row = 0;  // first, of the part
  uint8_t part = 0, n_rows = 0;
  uint8_t slot = 0;                     // partial sums of warp w lie in slot + w
  uint8_t sparse = 0;                   // fewer tiles than warps: some leave nothing
  uint8_t first[2] = {}, last[2] = {};  // warps, in a whole chunk and in the last
};

/// What one block does next. Of a gate, tile i < n_tiles / 2 is the partner of tile i + n_tiles / 2.
struct alignas(16) StepPass {
  uint32_t op = 0;
  uint16_t n_tiles = 0;
  uint8_t n_segments = 0, n_pieces = 0;
  bool opens = false, closes = false;  // the block's first, last pass of the op
  StepSegment segments[kPassSegments];
  StepPiece pieces[kPassPieces];
  uint32_t begin = 0, end = 0;  // kEnd: outputs of the block
  StepTile tiles[kPassTiles];
};
static_assert(sizeof(StepPass) % 16 == 0 && sizeof(StepPass) <= 512, "a warp copies it, 16 bytes a lane");

/// Consecutive tiles in device memory; n = 0 ends a warp's list.
struct alignas(16) StepSpan {
  const uint8_t* tiles = nullptr;
  uint32_t n = 0, tile_bytes = 0;
};

/// Dynamic shared memory of the kernel.
struct StepShared {
  uint32_t ring = 0;         // bytes of each warp; 0: the kernel cannot run
  uint32_t work = 0;         // bytes: a product's, or attention's
  uint32_t stage_tiles = 0;  // k tiles of activations that fit
  uint32_t slots = 0;        // partial sums of row tiles
};
/// Bytes of a product's memory for so many rows: partial sums, totals.
constexpr uint32_t project_fixed_bytes(uint32_t rows, const StepShared& s) {
  return rows * (s.slots + kPassTiles) * kTileRows * 4;
}
/// Bytes of staged activations per k tile: f16, and the sums of blocks and of half blocks.
constexpr uint32_t project_stage_bytes(uint32_t rows) { return rows * (kTileCols * 2 + 32 + 64); }
/// Queries, and a sum per warp and four heads of 128; queries, scores, and sums of two elements a thread.
inline constexpr uint32_t kTensorAttendBytes = (kMostStepHeadsPerKv + kStepWarps * 4) * 128 * 4;
inline constexpr uint32_t kPlainAttendBytes =
    kMostStepHeadsPerKv * (kMostStepHeadDim + program::kAttentionChunk + kStepThreads * 2) * 4;

/// One launch: up to kStepRows rows of the batch.
struct StepArgs {
  const StepOp* ops = nullptr;
  const StepPass* passes = nullptr;
  const uint32_t* pass_start = nullptr;  // [blocks + 1]
  const StepSpan* spans = nullptr;
  const uint32_t* span_start = nullptr;  // [blocks][kStepWarps]
  StepShared shared;
  uint32_t head_dim = 0;  // 64 or 128: of all heads, in f16; 0: heads of any size and type

  float* planes = nullptr;                      // of this launch, [kStepRows][plane]
  float* other = nullptr;                       // to be poisoned for the next
  uint32_t plane = 0;                           // floats
  uint32_t poison_words = 0, poison_share = 0;  // of 16 bytes: all, and those of a block
  uint32_t* arrivals = nullptr;  // of this launch, [attentions][kStepRows][arrival_heads]: chunks that are done
  uint32_t* other_arrivals = nullptr;
  uint32_t arrival_heads = 0, n_arrivals = 0;
  float* partials = nullptr;    // [2][kStepRows][heads][n_chunks][dim + 2]: values, largest score, sum
  uint64_t partial_floats = 0;  // of each half
  uint32_t n_chunks = 0;

  const float* ropes[kMostStepRopes] = {};  // [positions][pairs]{cos, sin}
  const uint32_t* table_start = nullptr;    // [batch rows][n_pools]
  const uint32_t* tables = nullptr;
  uint32_t n_pools = 0;
  uint32_t n_rows = 0;
  uint32_t row[kStepRows] = {};  // of the batch
  uint32_t position[kStepRows] = {};
  uint32_t earlier[kStepRows] = {};  // bit i: row i of the launch is of the same sequence and not later
  int32_t dest[kStepRows] = {};      // row of the logits or kNoLogits
  float* logits = nullptr;
  uint32_t* failed = nullptr;  // host memory: set when an exchange hung
  uint64_t patience_ns = 0;
};

// Of one row, of up to four, and of up to kStepRows. Prepare: once per device of compute capability 9.0; lowers
// `shared_bytes` to what a launch may take.
int prepare_persistent_one(uint32_t* shared_bytes);
int prepare_persistent_four(uint32_t* shared_bytes);
int prepare_persistent_eight(uint32_t* shared_bytes);
int launch_persistent_one(const StepArgs&, uint32_t n_blocks, Stream);
int launch_persistent_four(const StepArgs&, uint32_t n_blocks, Stream);
int launch_persistent_eight(const StepArgs&, uint32_t n_blocks, Stream);

}  // namespace honeycrisp::backend::cuda
