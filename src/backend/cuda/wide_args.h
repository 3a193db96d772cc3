// What crosses from the host to the kernels of wide steps: more generated rows than the persistent kernel serves at
// once, a kernel an op (two a product), with the persistent kernel's ops, vectors and order of sums: a row's bits are
// the same in both. Plain data, made by wide_step.cpp, read by kernels/wide_*.cu.
//
// Vectors lie in planes as there, but a place is used again once nobody reads it any more, and the kernels' order takes
// the place of polling: nothing is poisoned.
#pragma once

#include "backend/cuda/persistent_args.h"

namespace honeycrisp::backend::cuda {

inline constexpr uint32_t kWideRows = 64;  // rows of the batch that a launch serves
inline constexpr uint32_t kWideGroups = kWideRows / kStepRows;
inline constexpr uint32_t kWideUnit = 32;             // outputs that a warp ends together: of two row tiles
inline constexpr uint32_t kWideKTiles = kRoundTiles;  // of a block: what is summed up before it is added to a sum
inline constexpr uint32_t kWideThreads = 256;

/// Products of a range of an op's units, and their ending. A unit is two row tiles of one part, of a gate those of both
/// parts. Block (group of k tiles, slice): multiplies the slice's units by the group.
struct WideProductArgs {
  StepOp op;
  const uint8_t* tiles[program::kMaxMatrices] = {};
  quant::Format formats[program::kMaxMatrices] = {};
  uint32_t tile_bytes[program::kMaxMatrices] = {};
  uint32_t k_tiles = 0, n_groups = 0, n_slices = 0;
  const uint32_t* slice_units = nullptr;                  // [n_slices + 1]
  uint32_t first_unit = 0, n_units = 0, n_row_tiles = 0;  // of all slices

  float* planes = nullptr;  // [n_rows][plane]
  uint32_t plane = 0, n_rows = 0;
  int32_t dest[kWideRows] = {};  // row of the logits or kNoLogits
  float* logits = nullptr;
  float* partials = nullptr;  // [n_groups][n_row_tiles][rows, padded][kTileRows]
  float* squares = nullptr;   // of inputs: [n_rows][k_tiles]
};
constexpr uint32_t wide_padded_rows(uint32_t n_rows) { return (n_rows + 15) / 16 * 16; }
/// Units of a part.
constexpr uint32_t wide_units(const StepOp& op, uint32_t part) { return (op.rows[part] + kWideUnit - 1) / kWideUnit; }
/// Row tiles of a unit.
constexpr uint32_t wide_unit_tiles(const StepOp& op) { return op.ending == EndingKind::kGate ? 4 : 2; }

/// Rows of a step in groups of up to kStepRows, each as the persistent kernel takes them.
struct WideRowsArgs {
  StepArgs groups[kWideGroups];
};

// Prepare: once per device.
int prepare_wide_rows();
template <FormatSet kSet>
int prepare_wide_product();
template <FormatSet kSet>
int launch_wide_product(const WideProductArgs&, Stream);
int launch_wide_finish(const WideProductArgs&, Stream);
/// Items of groups [first, first + n), then what joins their chunks; `items`: of the largest group.
int launch_wide_attend(const WideRowsArgs&, const StepOp&, uint32_t first, uint32_t n, uint32_t items, Stream);
int launch_wide_merge(const WideRowsArgs&, const StepOp&, uint32_t first, uint32_t n, Stream);
int launch_wide_end(const WideRowsArgs&, const StepOp&, uint32_t n_rows, Stream);
int launch_wide_fragments(const WideRowsArgs&, const StepOp&, uint32_t n_rows, Stream);

}  // namespace honeycrisp::backend::cuda
