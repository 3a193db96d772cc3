// What wide steps do besides products (wide_args.h): attention, endings that norm whole rows, and fragments of vectors
// that nobody made any of. The first two are the persistent kernel's own code, in launches of their own.
#include "backend/cuda/kernels/persistent_attend.cuh"
#include "backend/cuda/kernels/persistent_project.cuh"
#include "backend/cuda/wide_args.h"

#include <algorithm>

namespace honeycrisp::backend::cuda {
namespace {

constexpr uint32_t kFragmentWarps = 8;
constexpr uint32_t kEndSlices = 4;  // blocks of a row, each of which measures all of it

// Shared memory of a block that runs the persistent kernel's code for a group of rows.
struct Borrowed {
  StepArgs& args;
  BlockMemory& memory;
};
__device__ __forceinline__ Borrowed borrow(const StepArgs& group) {
  __shared__ __align__(16) uint8_t args[sizeof(StepArgs)];
  __shared__ __align__(16) uint8_t memory[sizeof(BlockMemory)];
  static_assert(sizeof(StepArgs) % 8 == 0);
  for (uint32_t i = threadIdx.x; i < sizeof(StepArgs) / 8; i += blockDim.x)
    reinterpret_cast<uint64_t*>(args)[i] = reinterpret_cast<const uint64_t*>(&group)[i];
  Borrowed b{reinterpret_cast<StepArgs&>(args), reinterpret_cast<BlockMemory&>(memory)};
  if (threadIdx.x < kFoundItems * 2) b.memory.items[threadIdx.x].ordinal = UINT32_MAX;
  if (threadIdx.x == 0) b.memory.dog.begin(group.failed, group.patience_ns);
  return b;
}

// Blocks (any number, group).
template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, 1)
    wide_attend(const __grid_constant__ WideRowsArgs rows, const __grid_constant__ StepOp op, uint32_t first) {
  extern __shared__ __align__(128) uint8_t work[];
  let_next_begin();
  const Borrowed b = borrow(rows.groups[first + blockIdx.y]);
  wait_for_previous();
  __syncthreads();
  attend_items<kHeadDim>(b.args, op, b.memory, work);
}
__global__ void __launch_bounds__(kThreads, 1)
    wide_merge(const __grid_constant__ WideRowsArgs rows, const __grid_constant__ StepOp op, uint32_t first) {
  extern __shared__ __align__(128) uint8_t work[];
  let_next_begin();
  const Borrowed b = borrow(rows.groups[first + blockIdx.y]);
  wait_for_previous();
  __syncthreads();
  merge_heads(b.args, op, b.memory, work);
}

// Blocks (slice, row).
__global__ void __launch_bounds__(kThreads, 1)
    wide_end(const __grid_constant__ WideRowsArgs rows, const __grid_constant__ StepOp op) {
  __shared__ __align__(16) uint8_t pass_memory[sizeof(StepPass)];
  StepPass& pass = reinterpret_cast<StepPass&>(pass_memory);
  let_next_begin();
  const Borrowed b = borrow(rows.groups[blockIdx.y / kStepRows]);
  __syncthreads();
  if (threadIdx.x == 0) {
    const uint32_t units = (op.cols + kFragmentBlock - 1) / kFragmentBlock;
    b.args.planes += size_t(blockIdx.y % kStepRows) * b.args.plane;
    b.args.n_rows = 1;
    pass.begin = units * blockIdx.x / gridDim.x * kFragmentBlock;
    pass.end = min(units * (blockIdx.x + 1) / gridDim.x * kFragmentBlock, op.cols);
  }
  wait_for_previous();
  __syncthreads();
  end_pass<1>(b.args, op, pass, b.memory, nullptr, [] {});
}

// A warp makes the fragments of a k tile of a row, each lane a piece, as stage_piece() does.
__global__ void __launch_bounds__(kFragmentWarps * 32)
    wide_fragments(float* planes, uint32_t plane_floats, const __grid_constant__ StepOp op) {
  let_next_begin();
  const uint32_t lane = threadIdx.x % 32, tile = blockIdx.x * kFragmentWarps + threadIdx.x / 32;
  const uint32_t piece = tile * kPiecesPerTile + lane, k = column_of(int(piece));
  const Piece weights = weights_of(op, int(piece));
  wait_for_previous();
  if (tile * kTileCols >= op.cols) return;
  float* plane = planes + size_t(blockIdx.y) * plane_floats;
  Piece v{};
  if (k < op.cols) v.low = __ldcg(reinterpret_cast<const float4*>(plane + op.in + k));
  if (k + 16 < op.cols) v.high = __ldcg(reinterpret_cast<const float4*>(plane + op.in + k + 16));
  const float squares = squares_of_block(v);
  if (op.norm.weight != nullptr) v = times(v, weights);
  const MadePiece made(v, true, int(lane));
  if (piece / 4 * kFragmentBlock >= op.cols) return;
  float* to = plane + op.fragments_out;
  reinterpret_cast<uint4*>(to)[piece] = made.all_words();
  to[value_words(op.cols) + piece] = lane % 4 < 3 ? made.known : squares;
}

constexpr uint32_t attend_bytes(const StepArgs& a) { return a.head_dim != 0 ? kTensorAttendBytes : kPlainAttendBytes; }

template <int kHeadDim>
int launch_attend(const WideRowsArgs& rows, const StepOp& op, uint32_t first, uint32_t n, uint32_t items,
                  Stream stream) {
  return launch(wide_attend<kHeadDim>, dim3(items, n), kThreads, attend_bytes(rows.groups[0]), stream, rows, op, first);
}

}  // namespace

int launch_wide_attend(const WideRowsArgs& rows, const StepOp& op, uint32_t first, uint32_t n, uint32_t items,
                       Stream stream) {
  switch (rows.groups[0].head_dim) {
    case 64: return launch_attend<64>(rows, op, first, n, items, stream);
    case 128: return launch_attend<128>(rows, op, first, n, items, stream);
    default: return launch_attend<0>(rows, op, first, n, items, stream);
  }
}
int launch_wide_merge(const WideRowsArgs& rows, const StepOp& op, uint32_t first, uint32_t n, Stream stream) {
  return launch(wide_merge, dim3(op.n_heads * kStepRows / 4, n), kThreads, attend_bytes(rows.groups[0]), stream, rows,
                op, first);
}
int launch_wide_end(const WideRowsArgs& rows, const StepOp& op, uint32_t n_rows, Stream stream) {
  return launch(wide_end, dim3(kEndSlices, n_rows), kThreads, 0, stream, rows, op);
}
int launch_wide_fragments(const WideRowsArgs& rows, const StepOp& op, uint32_t n_rows, Stream stream) {
  const uint32_t tiles = (op.cols + kTileCols - 1) / kTileCols;
  return launch(wide_fragments, dim3((tiles + kFragmentWarps - 1) / kFragmentWarps, n_rows), kFragmentWarps * 32, 0,
                stream, rows.groups[0].planes, rows.groups[0].plane, op);
}
int prepare_wide_rows() {
  const auto allow = [](auto* kernel, uint32_t bytes) {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
  };
  int status = allow(wide_attend<0>, kPlainAttendBytes);
  if (status == cudaSuccess) status = allow(wide_attend<64>, kTensorAttendBytes);
  if (status == cudaSuccess) status = allow(wide_attend<128>, kTensorAttendBytes);
  return status != cudaSuccess ? status : allow(wide_merge, std::max(kPlainAttendBytes, kTensorAttendBytes));
}

}  // namespace honeycrisp::backend::cuda
