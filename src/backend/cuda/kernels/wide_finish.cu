// What ends the products of wide steps: a warp adds up the sums of all groups of k tiles, in their order, of a unit of
// outputs in some rows, and does with them what the persistent kernel does (persistent_project.cuh).
#include "backend/cuda/kernels/persistent_project.cuh"
#include "backend/cuda/kernels/wide_sums.cuh"

namespace honeycrisp::backend::cuda {
namespace {

constexpr uint32_t kFinishThreads = 256;
constexpr uint32_t kFinishRows = 4;  // that a warp ends together, so that their sums come in one round trip

__global__ void __launch_bounds__(kFinishThreads) wide_finish(const __grid_constant__ WideProductArgs a) {
  const StepOp& op = a.op;
  const Ending ending(op);
  const uint32_t lane = threadIdx.x % 32, item = (blockIdx.x * kFinishThreads + threadIdx.x) / 32;
  const uint32_t rows = wide_padded_rows(a.n_rows), n_folds = (a.n_rows + kFinishRows - 1) / kFinishRows;
  const uint32_t unit = item / n_folds, row0 = item % n_folds * kFinishRows;
  const bool gate = ending.kind == EndingKind::kGate;
  const WideTile place = tile_of_unit(op, a.first_unit + min(unit, a.n_units - 1), lane / kTileRows);
  const uint32_t r16 = lane % kTileRows, r = place.row + r16, first = place.row - lane / kTileRows * kTileRows;
  const bool exists = unit < a.n_units && r < op.rows[place.part];
  const float weight = op.fragments_norm != nullptr && exists ? __ldg(op.fragments_norm + r) : 1.0f;
  const float bias = op.bias[place.part] != nullptr && exists ? __ldg(op.bias[place.part] + r) : 0.0f;
  const float other_bias = gate && op.bias[1] != nullptr && exists ? __ldg(op.bias[1] + r) : 0.0f;
  let_next_begin();
  wait_for_previous();
  if (unit >= a.n_units) return;
  float y[kFinishRows][2] = {}, add[kFinishRows] = {}, squares[kFinishRows] = {};
#pragma unroll
  for (uint32_t i = 0; i < kFinishRows; ++i) {
    if (row0 + i >= a.n_rows) break;
    if (ending.add != kNoPlace && exists) add[i] = __ldcg(a.planes + size_t(row0 + i) * a.plane + ending.add + r);
    if (op.norm.present)
      for (uint32_t tile = lane; tile < a.k_tiles; tile += 32)
        squares[i] += __ldcg(a.squares + (row0 + i) * a.k_tiles + tile);
  }
  const float* sums = sums_of_tile(a, rows, 0, unit * wide_unit_tiles(op) + lane / kTileRows) + row0 * kTileRows + r16;
  const size_t stride = size_t(a.n_row_tiles) * rows * kTileRows;
  if (exists)  // else nobody has left sums
#pragma unroll 4
    for (uint32_t group = 0; group < a.n_groups; ++group, sums += stride)
#pragma unroll
      for (uint32_t i = 0; i < kFinishRows; ++i) {
        y[i][0] += __ldcg(sums + i * kTileRows);
        if (gate) y[i][1] += __ldcg(sums + 2 * rows * kTileRows + i * kTileRows);
      }
#pragma unroll
  for (uint32_t i = 0; i < kFinishRows; ++i) {
    const uint32_t row = row0 + i;
    if (row >= a.n_rows) break;
    const float scale = scale_of_row(op, warp_sum(squares[i]));
    float* plane = a.planes + size_t(row) * a.plane;
    float value = 0;
    if (exists) {
      float y0 = y[i][0] * scale, y1 = y[i][1] * scale;
      if (op.bias[place.part] != nullptr) y0 += bias;
      if (gate && op.bias[1] != nullptr) y1 += other_bias;
      value = ending.of(y0, y1, add[i]);
      if (ending.kind == EndingKind::kLogits) {
        if (a.dest[row] != kNoLogits) a.logits[size_t(a.dest[row]) * ending.rows0 + r] = value;
      } else if (ending.floats_out) {
        publish(plane + op.out[place.part] + r, value);
      }
    }
    if (ending.fragments_out != kNoPlace)
      publish_block(plane + ending.fragments_out, true, ending.rows0, first + lane, value, weight, exists);
  }
}

}  // namespace

int launch_wide_finish(const WideProductArgs& a, Stream stream) {
  const uint32_t warps = a.n_units * ((a.n_rows + kFinishRows - 1) / kFinishRows);
  return launch(wide_finish, (warps * 32 + kFinishThreads - 1) / kFinishThreads, kFinishThreads, 0, stream, a);
}

}  // namespace honeycrisp::backend::cuda
