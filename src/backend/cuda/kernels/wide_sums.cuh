// Where the products of wide steps (wide_product.cuh) leave their sums for the endings (wide_finish.cu).
#pragma once

#include "backend/cuda/wide_args.h"

#include <cuda_runtime.h>

namespace honeycrisp::backend::cuda {

struct WideTile {
  uint32_t part, row;
  bool exists;
};
/// Row tile i of a unit.
__device__ __forceinline__ WideTile tile_of_unit(const StepOp& op, uint32_t unit, uint32_t i) {
  uint32_t part = 0;
  if (op.ending == EndingKind::kGate) {
    part = i / 2;
  } else {
    while (unit >= wide_units(op, part)) unit -= wide_units(op, part++);
  }
  const uint32_t row = unit * kWideUnit + i % 2 * kTileRows;
  return {part, row, row < op.rows[part]};
}

/// A group's sums of a row tile of the launch: [rows][kTileRows].
__device__ __forceinline__ float* sums_of_tile(const WideProductArgs& a, uint32_t rows, uint32_t group, uint32_t tile) {
  return a.partials + (size_t(group) * a.n_row_tiles + tile) * rows * kTileRows;
}

}  // namespace honeycrisp::backend::cuda
