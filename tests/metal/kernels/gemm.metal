// C = A B, row-major; a threadgroup of 4 simdgroups computes a tile of 16 x 16, each simdgroup a quarter of it. Tiles
// of 16 x 16 of A and B go through threadgroup memory, zeros where the matrices end, so that every size is allowed.
#include <metal_simdgroup_matrix>
#include <metal_stdlib>
using namespace metal;

struct GemmArgs {
  uint m;
  uint n;
  uint k;
};

constant constexpr uint kTile = 16;

template <typename T, typename S>
kernel void gemm(device const T* a [[buffer(0)]],  // [m][k]
                 device const T* b [[buffer(1)]],  // [k][n]
                 device float* c [[buffer(2)]],    // [m][n]
                 constant GemmArgs& args [[buffer(3)]], uint2 tile [[threadgroup_position_in_grid]],
                 uint thread_index [[thread_index_in_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup S tile_a[kTile][kTile];
  threadgroup S tile_b[kTile][kTile];
  threadgroup float tile_c[kTile][kTile];
  const uint row0 = tile.y * kTile;
  const uint column0 = tile.x * kTile;
  const uint quarter_row = simdgroup / 2 * 8;
  const uint quarter_column = simdgroup % 2 * 8;

  simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8>(0.0f);
  for (uint k0 = 0; k0 < args.k; k0 += kTile) {
    for (uint i = thread_index; i < kTile * kTile; i += 128) {
      const uint row = i / kTile;
      const uint column = i % kTile;
      const bool in_a = row0 + row < args.m && k0 + column < args.k;
      const bool in_b = k0 + row < args.k && column0 + column < args.n;
      tile_a[row][column] = in_a ? S(a[(row0 + row) * args.k + k0 + column]) : S(0.0f);
      tile_b[row][column] = in_b ? S(b[(k0 + row) * args.n + column0 + column]) : S(0.0f);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = 0; k < kTile; k += 8) {
      simdgroup_matrix<S, 8, 8> left;
      simdgroup_matrix<S, 8, 8> right;
      simdgroup_load(left, &tile_a[quarter_row][k], kTile);
      simdgroup_load(right, &tile_b[k][quarter_column], kTile);
      simdgroup_multiply_accumulate(sum, left, right, sum);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  simdgroup_store(sum, &tile_c[quarter_row][quarter_column], kTile);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = thread_index; i < kTile * kTile; i += 128) {
    const uint row = row0 + i / kTile;
    const uint column = column0 + i % kTile;
    if (row < args.m && column < args.n) {
      c[row * args.n + column] = tile_c[i / kTile][i % kTile];
    }
  }
}

template [[host_name("gemm_f16")]] kernel decltype(gemm<half, half>) gemm<half, half>;
template [[host_name("gemm_f32_as_bf16")]] kernel decltype(gemm<float, bfloat>) gemm<float, bfloat>;
template [[host_name("gemm_f32")]] kernel decltype(gemm<float, float>) gemm<float, float>;
