// Launching with programmatic dependent launch, and reductions that always add in the same order.
// A kernel calls wait_for_previous() before it touches anything that an earlier kernel of the step wrote; what it reads
// before that does not change during a step (weights, row lists, page tables). Every block calls it, so completion is
// transitive. let_next_begin() frees the next kernel to do its own reading ahead.
#pragma once

#include <cstdint>
#include <cuda_runtime.h>

namespace honeycrisp::backend::cuda {

__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

template <class... Parameters, class... Arguments>
int launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
           const Arguments&... arguments) {
  cudaLaunchAttribute overlap;
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int distance = 16; distance != 0; distance /= 2) v += __shfl_xor_sync(~0u, v, distance);
  return v;
}
__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int distance = 16; distance != 0; distance /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, distance));
  return v;
}

/// Sum over the block, the same in every thread; `shared` holds a float per warp. Ends with all threads in step.
template <int kThreads>
__device__ __forceinline__ float block_sum(float v, float* shared) {
  v = warp_sum(v);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kThreads / 32; ++i) sum += shared[i];
  __syncthreads();
  return sum;
}

}  // namespace honeycrisp::backend::cuda
