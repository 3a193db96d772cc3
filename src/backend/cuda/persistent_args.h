// What crosses from the host to the persistent kernel: a step of the whole program as a list of ops, what each block
// does of every op (passes), and which bytes of weights it streams (stages). Plain data, made by persistent_plan.cpp,
// read by kernels/persistent*.
//
// Exchange. Every op writes its outputs into places of its own: float `place` of a row's plane. A plane is filled with
// kPoison before the step, so a reader polls the words that it needs until none is poison: no flags, no barriers.
// Outputs are published as floats, as fragments for the one product that reads them (fragments.cuh), or as both.
// Two sets of planes alternate from launch to launch; a launch poisons the other set again, and the kernel boundary
// orders that before its use.
#pragma once

#include "backend/cuda/args.h"

namespace honeycrisp::backend::cuda {

inline constexpr uint32_t kStepRows = 8;  // rows of the batch that a launch serves
inline constexpr uint32_t kStepWarps = 16, kStepThreads = kStepWarps * 32;
inline constexpr uint32_t kStageTiles = kStepWarps;  // most tiles of a stage: one a warp
/// Tiles of so many bytes that a stage has at most.
constexpr uint32_t stage_tiles(uint32_t tile_bytes) { return tile_bytes > 4608 ? 4 : kStageTiles; }
inline constexpr uint32_t kStageCopies = 2;  // most runs of consecutive bytes of a stage
inline constexpr uint32_t kRingSlots = 8;    // most stages that are on their way or in use together
inline constexpr uint32_t kRoundTiles = 4;   // k tiles whose partial sums are added up before the next
inline constexpr uint32_t kPassTiles = 24;   // most row tiles of a pass
inline constexpr uint32_t kPassSegments = 2;
inline constexpr uint32_t kMostKTiles = 128;  // of a product
inline constexpr uint32_t kKnownBytes = 112;  // of a k tile and a row: what products need to know of activations
inline constexpr uint32_t kMostStepRopes = 8;
inline constexpr uint32_t kMostStepHeadDim = 256, kMostStepHeadsPerKv = 8;
inline constexpr uint32_t kPoison = 0xffffffff;
inline constexpr uint32_t kNoPlace = UINT32_MAX;
inline constexpr int32_t kNoLogits = -1;

enum class StepOpKind : uint8_t {
  kProject,  // products and an ending of single outputs
  kEnd,      // an ending that norms the whole row of products
  kAttend,
  kFragments,  // fragments of an input that nobody made any of (wide steps only)
};

struct alignas(16) StepOp {
  StepOpKind kind = StepOpKind::kProject;
  EndingKind ending = EndingKind::kStore;  // kProduct: Store without scales
  program::Activation activation = program::Activation::kSilu;
  uint8_t n_parts = 0;
  uint32_t in = 0;  // place of the input (kEnd: of the products)
  uint32_t cols = 0;
  float per_column = 0;     // 1 / cols
  uint32_t per_k_tile = 0;  // 2^32 / k tiles, rounded up; 0 of one tile
  NormArgs norm;            // of the input; kEnd: of the products
  uint32_t rows[program::kMaxMatrices] = {};
  const float* bias[program::kMaxMatrices] = {};
  uint32_t out[program::kMaxMatrices] = {};
  uint32_t add = kNoPlace;  // Store's addend, the gate's operand, the residual's x
  bool floats_out = true;   // whether the outputs are published as floats
  // Places of fragments, and of what belongs to them: of the input, of the outputs, which are multiplied by the norm's
  // weights of the op that reads them.
  uint32_t fragments_in = kNoPlace, fragments_out = kNoPlace;
  // Whether a product's activations are f16, or limbs of a byte; and the fragments that the op makes.
  bool halves_in = false, halves_out = false;
  const float* fragments_norm = nullptr;
  float scale = 1, out_scale = 1, softcap = 0;

  // What the next op needs soon, brought into L2 by all blocks together: its norm's weights, and the places it writes.
  const float* ahead_norm = nullptr;
  uint32_t ahead_norm_floats = 0, ahead_place = 0, ahead_floats = 0;
  bool ahead_attends = false;  // the next op attends: keys and values of its layer
  uint64_t ahead_layer_offset = 0;

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

/// Row tiles of one format, one after another among the row tiles of a pass.
struct StepSegment {
  quant::Format format = quant::Format::kQ4_0;
  uint16_t n_tiles = 0;
};

/// A row tile of a pass: where its outputs go.
struct StepTile {
  uint32_t row = 0;  // first, of the part
  uint8_t part = 0, n_rows = 0;
};

/// What one block does next: products of row tiles, chunk of K after chunk, and their ending; each thread has at most
/// one output. Of a gate, row tile i < n_tiles / 2 is the partner of row tile i + n_tiles / 2.
struct alignas(16) StepPass {
  uint32_t op = 0;
  uint16_t n_tiles = 0;
  uint8_t n_segments = 0;
  bool opens = false, closes = false;  // the block's first, last pass of the op
  StepSegment segments[kPassSegments];
  uint32_t begin = 0, end = 0;  // kEnd: outputs of the block
  StepTile tiles[kPassTiles];
};
static_assert(sizeof(StepPass) % 16 == 0 && sizeof(StepPass) <= 512, "a warp copies it, 16 bytes a lane");

/// Consecutive tiles of a chunk of a segment, row tile after row tile, in runs of consecutive bytes: tile i is warp
/// i's. n_tiles = 0: there are no more.
struct alignas(16) StepStage {
  const uint8_t* from[kStageCopies] = {};
  uint32_t bytes[kStageCopies] = {};
  uint32_t n_tiles = 0;
  uint32_t ends_op = 0;  // whether it is the block's last of an op
};
static_assert(sizeof(StepStage) == 32);
inline constexpr uint32_t kStagesAhead = 96;  // without tiles at the end of a list, which is read ahead of

/// Dynamic shared memory of the kernel.
struct StepShared {
  uint32_t ring = 0;         // bytes; 0: the kernel cannot run
  uint32_t work = 0;         // bytes: a product's, or attention's
  uint32_t stage_tiles = 0;  // k tiles of activations that fit
  uint32_t slots = 0;        // partial sums of tiles
};
/// Bytes of staged activations per k tile: two of each, and what products need to know of them.
constexpr uint32_t project_stage_bytes(uint32_t rows) { return rows * (kTileCols * 2 + kKnownBytes); }
/// Bytes of the partial sums of a tile.
constexpr uint32_t partial_bytes(uint32_t rows) { return rows * kTileRows * 4; }
/// Values that are published together, by one warp. Words of the fragments of so many values: of pairs of blocks, then
/// four words a block.
inline constexpr uint32_t kFragmentBlock = 32;
constexpr uint32_t value_words(uint32_t values) {
  return (values + 2 * kFragmentBlock - 1) / (2 * kFragmentBlock) * 32;
}
constexpr uint32_t fragment_words(uint32_t values) {
  return value_words(values) + (values + kFragmentBlock - 1) / kFragmentBlock * 4;
}
/// k tiles of a product that are staged, and whose partial sums wait, together.
constexpr uint32_t chunk_tiles(uint32_t k_tiles, uint32_t fit) {
  if (k_tiles <= fit) return k_tiles;
  const uint32_t n = (k_tiles + fit - 1) / fit, each = (k_tiles + n - 1) / n;
  return (each + kRoundTiles - 1) / kRoundTiles * kRoundTiles;
}
/// Queries in two forms, an own key and value, and a sum per warp and four heads, of 128; queries, scores, and sums of
/// two elements a thread.
inline constexpr uint32_t kTensorAttendBytes = (kMostStepHeadsPerKv * 2 + 2 + kStepWarps * 4) * 128 * 4;
inline constexpr uint32_t kPlainAttendBytes =
    kMostStepHeadsPerKv * (kMostStepHeadDim + program::kAttentionChunk + kStepThreads * 2) * 4;

/// Chunks of positions that a row at `position` attends to.
struct RowChunks {
  uint32_t first, n;
};
constexpr RowChunks chunks_of(uint32_t position, uint32_t window) {
  constexpr uint32_t kChunk = program::kAttentionChunk;
  const uint32_t first = window != 0 && position >= window ? (position - window + 1) / kChunk : 0;
  return {first, position / kChunk - first + 1};
}

/// One launch: up to kStepRows rows of the batch.
struct StepArgs {
  const StepOp* ops = nullptr;
  const StepPass* passes = nullptr;
  const uint32_t* pass_start = nullptr;  // [blocks + 1]
  const StepStage* stages = nullptr;
  const uint32_t* stage_start = nullptr;  // [blocks]
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
  uint64_t* ends = nullptr;    // [1 + ops][blocks], nanoseconds: when it began, and left each op; null: nobody asks
  uint64_t patience_ns = 0;
};

/// Whether they were compiled: for an architecture with the instructions that they need, 90a.
bool has_persistent_kernels();

// For up to kRows rows, 1, 4 or kStepRows (kernels/persistent_*.cu). Prepare: once per device of compute
// capability 9.0; lowers `shared_bytes` to what a launch may take.
template <FormatSet kSet, int kRows>
int prepare_step(uint32_t* shared_bytes);
template <FormatSet kSet, int kRows>
int launch_step(const StepArgs&, uint32_t n_blocks, Stream);

}  // namespace honeycrisp::backend::cuda
