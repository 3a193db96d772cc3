// Loops of nothing but reading, and of nothing but multiplying (ceilings.h).
#include "backend/cuda/ceilings_args.h"
#include "backend/cuda/kernels/hopper.cuh"

#include <cuda_fp16.h>

namespace honeycrisp::backend::cuda {
namespace {

// ---- reading

constexpr int kDirectThreads = 256, kDirectBlocks = 8, kDirectLoads = 8;  // blocks of a multiprocessor

__global__ void __launch_bounds__(kDirectThreads, kDirectBlocks)
    read_directly(const uint4* from, uint64_t n, uint32_t* kept) {
  constexpr uint64_t kTogether = uint64_t{kDirectThreads} * kDirectLoads;
  uint32_t sum = 0;
  for (uint64_t at = blockIdx.x * kTogether + threadIdx.x; at < n; at += gridDim.x * kTogether) {
    uint4 v[kDirectLoads];
#pragma unroll
    for (int i = 0; i < kDirectLoads; ++i)
      v[i] = at + i * kDirectThreads < n ? __ldcs(from + at + i * kDirectThreads) : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < kDirectLoads; ++i) sum += (v[i].x ^ v[i].y) + (v[i].z ^ v[i].w);
  }
  if (sum == 0x5a17e3c1) *kept = sum;  // so that the loads are not optimised away
}

constexpr int kBulkSlots = 6;

// By one thread of a block: a slot of shared memory is filled again as soon as it is full.
__global__ void __launch_bounds__(32, 1) read_in_bulk(const uint8_t* from, uint64_t n_units) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint8_t slots[];
  __shared__ __align__(8) uint64_t full[kBulkSlots];
  if (threadIdx.x != 0) return;
  for (uint64_t& barrier : full) init_barrier(address_in_shared(&barrier), 1);
  publish_barriers();
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  const auto fetch = [&](uint64_t unit, uint32_t slot) {
    copy_bulk(address_in_shared(slots + slot * kReadUnit), from + unit * kReadUnit, kReadUnit,
              address_in_shared(&full[slot]));
  };
  uint64_t next = blockIdx.x;
  uint32_t issued = 0;
  for (; issued < kBulkSlots && next < n_units; ++issued, next += gridDim.x) fetch(next, issued);
  for (uint32_t done = 0; done < issued; ++done) {
    const uint32_t slot = done % kBulkSlots;
    await_barrier(address_in_shared(&full[slot]), done / kBulkSlots & 1);
    if (next >= n_units) continue;
    fetch(next, slot);
    next += gridDim.x;
    ++issued;
  }
#endif
}

// ---- multiplying

constexpr int kPeakThreads = 256, kPeakWarps = kPeakThreads / 32;
constexpr uint32_t kPeakRows = 256, kPeakDepth = 64;  // of B in shared memory; A is its first 64 rows

// Some number between -1 and 1: zeros need less power, and are quicker, than what a model multiplies.
__device__ __forceinline__ __half any_number(uint32_t i) {
  return __float2half_rn(float(i * 2654435761u >> 16) / 32768.0f - 1.0f);
}

__global__ void __launch_bounds__(kPeakThreads, 1) multiply_peak(uint32_t rounds, unsigned long long* multiply_adds) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr uint64_t kOfRound = kPeakRows * kPeakDepth * 64 / 4;  // of a warp: a fourth of four products' 64 rows
  __shared__ __align__(1024) __half b[kPeakRows * kPeakDepth];
  for (uint32_t i = threadIdx.x; i < kPeakRows * kPeakDepth; i += kPeakThreads) b[i] = any_number(i);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  float d[128] = {};
  const uint64_t rows = swizzled_rows(address_in_shared(b));
  for (uint32_t round = 0; round < rounds; ++round) {
    products_begin();
#pragma unroll
    for (uint32_t k = 0; k < kPeakDepth / 16; ++k) wgmma(d, rows + 2 * k, rows + 2 * k);
    products_commit();
    products_wait<1>();
  }
  products_wait<0>();
  float sum = 0;
#pragma unroll
  for (float v : d) sum += v;
#else
  constexpr int kSums = 8;
  constexpr uint64_t kOfRound = kSums * 16 * 8 * 16;
  uint32_t a[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __half2 h = {any_number(threadIdx.x * 8 + 2 * i), any_number(threadIdx.x * 8 + 2 * i + 1)};
    a[i] = *reinterpret_cast<const uint32_t*>(&h);
  }
  float d[kSums][4] = {}, sum = 0;
  for (uint32_t round = 0; round < rounds; ++round)
#pragma unroll
    for (auto& c : d)
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%5, %6}, "
          "{%0, %1, %2, %3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]));
#pragma unroll
  for (const auto& c : d) sum += (c[0] + c[1]) + (c[2] + c[3]);
#endif
  // The comparison, which hardly a sum fulfils, keeps the products from being optimised away.
  if (threadIdx.x == 0 || sum == 1234.5678f) atomicAdd(multiply_adds, kOfRound * kPeakWarps * rounds);
}

}  // namespace

int launch_read_directly(const uint8_t* from, uint64_t n, uint32_t* kept, uint32_t n_multiprocessors, Stream stream) {
  read_directly<<<n_multiprocessors * kDirectBlocks, kDirectThreads, 0, stream>>>(reinterpret_cast<const uint4*>(from),
                                                                                  n / sizeof(uint4), kept);
  return cudaGetLastError();
}

int launch_read_in_bulk(const uint8_t* from, uint64_t n, uint32_t n_multiprocessors, Stream stream) {
  constexpr int kBytes = kBulkSlots * int(kReadUnit);
  static const cudaError_t allowed =
      cudaFuncSetAttribute(read_in_bulk, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (allowed != cudaSuccess) return allowed;
  read_in_bulk<<<n_multiprocessors, 32, kBytes, stream>>>(from, n / kReadUnit);
  return cudaGetLastError();
}

int launch_multiply_peak(uint32_t rounds, uint64_t* multiply_adds, uint32_t n_multiprocessors, Stream stream) {
  static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
  multiply_peak<<<n_multiprocessors, kPeakThreads, 0, stream>>>(rounds,
                                                                reinterpret_cast<unsigned long long*>(multiply_adds));
  return cudaGetLastError();
}

}  // namespace honeycrisp::backend::cuda
