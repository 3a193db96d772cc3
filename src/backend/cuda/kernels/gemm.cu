// The matrix product of prompt rows: products[i][n] = Σ_k x[i][k] · w[n][k], both operands split in two bf16.
// x = x_high + x_low with 16 bits, so high·high + high·low + low·high in f32 leaves an error near 2^-16 of each term,
// in the whole range of f32. A row's bits depend on nothing but its own values and the depth: every k step adds the
// same three products in the same order, and rows of a tile do not mix.
//
// Block: 128 rows of x by 128 rows of w; 8 warps of 64 x 32; three stages of 32 columns, filled by cp.async. Rows of 64
// bytes; 16-byte piece c of row r lies at c ^ (r / 2 & 3), which keeps ldmatrix free of bank conflicts.
#include "backend/cuda/args.h"
#include "backend/cuda/kernels/launch.cuh"

namespace honeycrisp::backend::cuda {
namespace {

constexpr int kThreads = 256, kTile = 128, kStages = 3;
constexpr int kPieces = kGemmDepth / 8;                     // 16-byte pieces of a row of a stage
constexpr int kOperandBytes = kTile * int(kGemmDepth) * 2;  // 8 KB
constexpr int kStageBytes = 4 * kOperandBytes;              // x high, x low, w high, w low

struct GemmArgs {
  const uint16_t* operand[4];  // x high, x low [n_x][depth], w high, w low [n_w][depth]
  uint32_t n_x, n_w, depth;
  Rows products;
};

__device__ __forceinline__ uint32_t piece_offset(int row, int piece) {
  return uint32_t(row * kPieces + (piece ^ (row / 2 & 3))) * 16;
}

__device__ __forceinline__ void copy_async(uint32_t to, const void* from, bool present) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(present ? 16 : 0));
}

__device__ __forceinline__ void load_stage(const GemmArgs& a, uint32_t stage, uint32_t x0, uint32_t w0, uint32_t k0) {
#pragma unroll
  for (int operand = 0; operand < 4; ++operand) {
    const uint32_t first = operand < 2 ? x0 : w0, n = operand < 2 ? a.n_x : a.n_w;
#pragma unroll
    for (int i = 0; i < kTile * kPieces / kThreads; ++i) {
      const int at = i * kThreads + int(threadIdx.x), row = at / kPieces, piece = at % kPieces;
      const bool present = first + row < n;
      const uint16_t* from = a.operand[operand] + size_t(present ? first + row : 0) * a.depth + k0 + piece * 8;
      copy_async(stage + operand * kOperandBytes + piece_offset(row, piece), from, present);
    }
  }
}

__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

__device__ __forceinline__ void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__global__ void __launch_bounds__(kThreads, 1) gemm(const __grid_constant__ GemmArgs a) {
  extern __shared__ __align__(128) unsigned char shared[];
  const auto base = uint32_t(__cvta_generic_to_shared(shared));
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warp_x = warp / 4 * 64, warp_w = warp % 4 * 32;
  const uint32_t x0 = blockIdx.y * kTile, w0 = blockIdx.x * kTile, steps = a.depth / kGemmDepth;
  wait_for_previous();

  for (uint32_t s = 0; s < kStages - 1; ++s) {
    if (s < steps) load_stage(a, base + s * kStageBytes, x0, w0, s * kGemmDepth);
    asm volatile("cp.async.commit_group;");
  }
  float acc[4][4][4] = {};  // [16 rows of x][8 rows of w][fragment]
  for (uint32_t step = 0; step < steps; ++step) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2));
    __syncthreads();
    const uint32_t ahead = step + kStages - 1;
    if (ahead < steps) load_stage(a, base + ahead % kStages * kStageBytes, x0, w0, ahead * kGemmDepth);
    asm volatile("cp.async.commit_group;");
    const uint32_t stage = base + step % kStages * kStageBytes;
#pragma unroll
    for (int k = 0; k < int(kGemmDepth) / 16; ++k) {
      uint32_t w[2][2][4];  // [high, low][16 rows of w]{k lower: rows 0-7, k upper: rows 0-7, the same of rows 8-15}
#pragma unroll
      for (int part = 0; part < 2; ++part)
#pragma unroll
        for (int j = 0; j < 2; ++j)
          load_matrices(w[part][j], stage + (2 + part) * kOperandBytes +
                                        piece_offset(warp_w + j * 16 + lane / 16 * 8 + lane % 8, k * 2 + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t x[2][4];
#pragma unroll
        for (int part = 0; part < 2; ++part)
          load_matrices(x[part],
                        stage + part * kOperandBytes + piece_offset(warp_x + i * 16 + lane % 16, k * 2 + lane / 16));
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int pair = j / 2, at = j % 2 * 2;
          mma_bf16(acc[i][j], x[1], w[0][pair][at], w[0][pair][at + 1]);
          mma_bf16(acc[i][j], x[0], w[1][pair][at], w[1][pair][at + 1]);
          mma_bf16(acc[i][j], x[0], w[0][pair][at], w[0][pair][at + 1]);
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const uint32_t row = x0 + warp_x + i * 16 + lane / 4 + e / 2 * 8,
                       column = w0 + warp_w + j * 8 + lane % 4 * 2 + e % 2;
        if (row < a.n_x && column < a.n_w) a.products.data[size_t(row) * a.products.stride + column] = acc[i][j][e];
      }
}

}  // namespace

int launch_gemm(const uint16_t* x_high, const uint16_t* x_low, uint32_t n_x, const uint16_t* w_high,
                const uint16_t* w_low, uint32_t n_w, uint32_t depth, Rows products, Stream stream) {
  const dim3 grid((n_w + kTile - 1) / kTile, (n_x + kTile - 1) / kTile);
  return launch(gemm, grid, kThreads, kStages * kStageBytes, stream,
                GemmArgs{{x_high, x_low, w_high, w_low}, n_x, n_w, depth, products});
}

int prepare_gemm() {
  return cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, kStages * kStageBytes);
}

}  // namespace honeycrisp::backend::cuda
