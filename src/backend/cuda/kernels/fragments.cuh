// Vectors as the products that follow want them, published by whoever makes them, so that a block that reads one copies
// it instead of rounding and measuring it again.
//
// A group is 16 columns of a row, the low or the high ones of a block of 32. Its values, times the norm's weights of
// the product that reads them, are f16 numbers after scaling by a power of two that brings the largest to 2^14: none
// overflows, and what underflows is 2^-38 of the largest. With it go, as floats, what they were divided by, minus their
// sum, and the sum of the squares of the values themselves. Who makes a group, and how many rows there are, changes
// none of this.
//
// Words of the fragments of a row: halves as products read them, [block][t][low 2, high 2]; then of every block what is
// known of its low and its high group: scales, sums, squares, two that are not used.
#pragma once

#include "backend/cuda/kernels/persistent_block.cuh"
#include "backend/cuda/kernels/step_tile.cuh"

namespace honeycrisp::backend::cuda {

constexpr int kLargestExponent = 14;
// What scales a number up to 2^14 at most, and what undoes it: powers of two.
struct GroupScale {
  float before, after;

  __device__ __forceinline__ explicit GroupScale(float largest) {
    const uint32_t exponent = max(__float_as_uint(largest) >> 23, 20u);  // biased
    before = __uint_as_float((254 + kLargestExponent - exponent) << 23);
    after = __uint_as_float((exponent - kLargestExponent) << 23);
  }
};

/// Two groups by a warp, a value each lane; `column`: the lane's. `to`: place of the fragments of `values` columns.
/// Only groups that exist are published.
__device__ __forceinline__ void publish_groups(float* to, uint32_t values, uint32_t column, float value, float weight,
                                               bool high_scaled, bool exists) {
  const uint32_t group = column / kFragmentGroup, in_group = column % kFragmentGroup;
  const bool smaller = high_scaled && group % 2 != 0;  // packed.cuh
  const float scaled = value * weight;
  float largest = fabsf(scaled), squares = value * value;
#pragma unroll
  for (int d = 1; d < 16; d *= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, d));
  const GroupScale scale(largest);
  const uint32_t half = __half_as_ushort(__float2half_rn(scaled * (smaller ? scale.before / 16 : scale.before)));
  float sum = f16(uint16_t(half));
  const uint32_t other = __shfl_xor_sync(~0u, half, 1);
#pragma unroll
  for (int d = 1; d < 16; d *= 2) {
    sum += __shfl_xor_sync(~0u, sum, d);
    squares += __shfl_xor_sync(~0u, squares, d);
  }
  if (!exists) return;
  if (in_group % 2 == 0) {  // no half is 0xffff
    const uint32_t word = group / 2 * 16 + in_group / 4 * 4 + group % 2 * 2 + in_group % 4 / 2;
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to + word), "r"(half | other << 16) : "memory");
  }
  if (in_group < 3) {
    float* known = to + values / 2 + group / 2 * 8 + in_group * 2 + group % 2;
    publish(known, in_group == 0 ? scale.after : in_group == 1 ? -(smaller ? sum * 16 : sum) : squares);
  }
}

// ---- reading

/// Eight values that lie together in a fragment, lane t's of a block: and what the lane leaves of what is known of it.
struct FragmentPiece {
  uint4 halves;
  float known, squares;

  __device__ __forceinline__ void clear() {
    halves = make_uint4(0, 0, 0, 0);
    known = squares = 0;
  }
  /// `at`: of the piece; `known_at`: of its block.
  __device__ __forceinline__ void look(const float* at, const float* known_at, int t, bool has_high, bool measures) {
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(halves.x), "=r"(halves.y), "=r"(halves.z), "=r"(halves.w)
                 : "l"(at)
                 : "memory");
    if (!has_high) halves.z = halves.w = 0;
    if (t % 2 != 0 && !has_high) return;
    known = honeycrisp::backend::cuda::look(known_at + t);
    if (measures && t < 2) squares = honeycrisp::backend::cuda::look(known_at + 4 + t);
  }
  __device__ __forceinline__ bool waits() const {
    const uint32_t h = max(max(halves.x, halves.y), max(halves.z, halves.w));
    return max(h, max(__float_as_uint(known), __float_as_uint(squares))) == kPoison;
  }
};

}  // namespace honeycrisp::backend::cuda
