// The persistent kernel: a whole step of up to eight generated rows in one launch, one block a multiprocessor. Blocks
// never meet at a barrier of the grid; they exchange vectors by polling them (exchange.cuh), and each block's weights
// stream through shared memory across the ops, fetched by a warp that does nothing else (ring.cuh). What a block does
// is a list of passes (persistent_args.h).
//
// Only for compute capability 9.0; other devices run the step as a graph of kernels.
#pragma once

#include "backend/cuda/kernels/persistent_attend.cuh"
#include "backend/cuda/kernels/persistent_project.cuh"

namespace honeycrisp::backend::cuda {

// Poisons the other set: a part of it is this block's, a piece of that each pass's. By one warp.
__device__ __forceinline__ void poison_piece(const StepArgs& a, const BlockMemory& s, uint32_t pass, int lane) {
  const uint32_t first = blockIdx.x * a.poison_share + pass * s.poison_piece;
  const uint32_t end = min(min(first + s.poison_piece, (blockIdx.x + 1) * a.poison_share), a.poison_words);
#pragma unroll 1
  for (uint32_t i = first + lane; i < end; i += 32)
    reinterpret_cast<uint4*>(a.other)[i] = make_uint4(kPoison, kPoison, kPoison, kPoison);
}

// Lines of `floats` from `from` on into L2, shared out over the blocks. By one warp.
__device__ __forceinline__ void bring_ahead(const float* from, uint32_t floats, int lane) {
  constexpr uint32_t kLine = 32;  // floats
  for (uint32_t at = (blockIdx.x + gridDim.x * lane) * kLine; at < floats; at += gridDim.x * 32 * kLine)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from + at));
}

// Keys and values of the block's first item in the layer that comes next, into L2. By one warp.
__device__ __forceinline__ void bring_cache_ahead(const StepArgs& a, const StepOp& op, const BlockMemory& s, int lane) {
  const FoundItem& found = s.items[op.pool % 2];
  const uint32_t page = lane / 2 % kPagesPerChunk, first = page * kPage, end = found.item.visible.end;
  const CacheView& c = op.cache;
  if (found.ordinal != 0 || found.pool != op.pool || found.kv_heads != c.n_kv_heads || found.item.n_chunks == 0) return;
  if (lane >= int(2 * kPagesPerChunk) || first >= end || first + kPage <= found.item.visible.begin) return;
  const uint32_t bytes = min(end - first, kPage) * c.key_dim * uint32_t(sizeof(__half));
  const uint8_t* from = found.pages[page] + op.ahead_layer_offset + found.item.kv_head * c.head_bytes;
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from + (lane % 2 == 0 ? 0 : c.value_offset)),
               "r"(bytes)
               : "memory");
}

// When the block has come so far; entry 0: to its beginning.
__device__ __forceinline__ void leave_time(const StepArgs& a, uint32_t entry) {
  if (a.ends == nullptr || this_thread() != 0) return;
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  a.ends[size_t(entry) * gridDim.x + blockIdx.x] = now;
}

/// kSet: formats of weights. kHeadDim: of all heads, in f16; 0: heads of any size and type.
template <FormatSet kSet, int kRows, int kHeadDim>
__global__ void __launch_bounds__(kThreads + kFetchThreads, 1) persistent_step(const __grid_constant__ StepArgs a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(128) uint8_t dynamic[];
  __shared__ __align__(16) uint8_t fixed[sizeof(BlockMemory)];
  BlockMemory& s = *reinterpret_cast<BlockMemory*>(fixed);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Itinerary way{a.passes + a.pass_start[blockIdx.x], a.pass_start[blockIdx.x + 1] - a.pass_start[blockIdx.x]};
  if (warp == kWarps - 1) {
    for (uint32_t i = 0; i < min(2u, way.n); ++i) copy_async(&s.passes[i], way.passes + i, sizeof(StepPass), lane);
    if (way.n != 0) copy_async(&s.ops[0], a.ops + way.passes[0].op, sizeof(StepOp), lane);
    asm volatile("cp.async.commit_group;" ::: "memory");
    way.finish_fetch(warp);
  }
  if (threadIdx.x < kFoundItems * 2) s.items[threadIdx.x].ordinal = UINT32_MAX;
  if (threadIdx.x == 0) {
    s.dog.begin(a.failed, a.patience_ns);
    s.poison_piece = (a.poison_share + max(way.n, 1u) - 1) / max(way.n, 1u);
  }
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < a.n_arrivals; i += gridDim.x * blockDim.x)
    a.other_arrivals[i] = 0;
  Ring ring{s.ring, dynamic, a.shared.ring};
  ring.begin();
  __syncthreads();
  if (warp >= kWarps) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kFetchRegisters));
    if (warp == kWarps) ring.fetch_all(a.stages + a.stage_start[blockIdx.x]);
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
  leave_time(a, 0);
  if (way.n == 0 && warp == 0) poison_piece(a, s, 0, lane);

  for (; way.at < way.n; ++way.at) {
    const int warp = this_thread() / 32, lane = this_thread() % 32;
    uint32_t work_at = a.shared.ring;
    asm volatile("" : "+r"(work_at));
    uint8_t* work = dynamic + work_at;
    const StepOp& op = way.op(s);
    const StepPass& pass = way.pass(s);
    // By warps that seldom have outputs of the pass before.
    if (warp == kWarps - 1) {
      way.fetch(s, a.ops, warp, lane);
    } else if (warp == kWarps - 2) {
      poison_piece(a, s, way.at, lane);
    } else if (warp == kWarps - 3 && pass.opens) {
      if (kHeadDim != 0 && op.ahead_attends) bring_cache_ahead(a, op, s, lane);
      bring_ahead(op.ahead_norm, op.ahead_norm_floats, lane);
#pragma unroll 1
      for (uint32_t row = 0; row < a.n_rows; ++row)
        bring_ahead(a.planes + size_t(row) * a.plane + op.ahead_place, op.ahead_floats, lane);
    }
    const auto fetched = [&] { way.finish_fetch(warp); };
    if (op.kind == StepOpKind::kProject) {
      project_pass<kSet, kRows>(a, op, pass, s, ring, work, fetched);
    } else if (op.kind == StepOpKind::kEnd) {
      sync_warps();
      end_pass<kRows>(a, op, pass, s, work, fetched);
    } else {
      if constexpr (kHeadDim == 0) sync_warps();  // all have left the partial sums of the pass before
      attend_op<kHeadDim>(a, op, s, work);
      fetched();
      sync_warps();
    }
    if (pass.closes) leave_time(a, 1 + pass.op);
  }
#endif
}

/// Allows the instance all shared memory that its fixed part leaves, and lowers `bytes` to that.
template <FormatSet kSet, int kRows, int kHeadDim>
int allow_shared(uint32_t* bytes) {
  cudaFuncAttributes attributes;
  int most = 0, status = cudaFuncGetAttributes(&attributes, persistent_step<kSet, kRows, kHeadDim>);
  if (status == cudaSuccess) status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
  if (status != cudaSuccess) return status;
  most -= int(attributes.sharedSizeBytes);
  *bytes = min(*bytes, uint32_t(most));
  return cudaFuncSetAttribute(persistent_step<kSet, kRows, kHeadDim>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              most);
}
template <FormatSet kSet, int kRows>
int prepare_step(uint32_t* bytes) {
  int status = allow_shared<kSet, kRows, 0>(bytes);
  if (status == cudaSuccess) status = allow_shared<kSet, kRows, 64>(bytes);
  return status != cudaSuccess ? status : allow_shared<kSet, kRows, 128>(bytes);
}

template <FormatSet kSet, int kRows>
int launch_step(const StepArgs& a, uint32_t n_blocks, Stream stream) {
  cudaLaunchAttribute together;  // all blocks run at once, or the launch is refused
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = n_blocks;
  config.blockDim = kThreads + kFetchThreads;
  config.dynamicSmemBytes = size_t(a.shared.ring) + a.shared.work;
  config.stream = stream;
  config.attrs = &together;
  config.numAttrs = 1;
  switch (a.head_dim) {
    case 64: return cudaLaunchKernelEx(&config, persistent_step<kSet, kRows, 64>, a);
    case 128: return cudaLaunchKernelEx(&config, persistent_step<kSet, kRows, 128>, a);
    default: return cudaLaunchKernelEx(&config, persistent_step<kSet, kRows, 0>, a);
  }
}

}  // namespace honeycrisp::backend::cuda
