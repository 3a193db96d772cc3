// Vectors as the products that follow want them, published by whoever makes them, so that a block that reads one copies
// it instead of rounding and measuring it again.
//
// A block is 32 columns of a row. Its values, times the norm's weights of the product that reads them, become integers
// x after scaling by a power of two that brings the largest to between 2^13 and 2^14, and those two limbs of a byte:
// x = 128 · high + low, low within 0..127. With it go, as floats, what they were divided by, their sum and that of the
// low 16 columns, and the sum of the squares of the values themselves. Who makes a block, and how many rows there are,
// changes none of this. A block with an infinite value or none is divided by NaN, which then all products become.
//
// Words of the fragments of a row: limbs of pairs of blocks as products read them (step_tile.cuh), where high limbs
// have 128 added: no word is poison, as none of them is 127. Then four of every block.
#pragma once

#include "backend/cuda/kernels/persistent_block.cuh"
#include "backend/cuda/kernels/step_tile.cuh"

namespace honeycrisp::backend::cuda {

constexpr uint32_t kHighBias = 0x80808080;

// What turns numbers into integers below 127 · 128 (rounded), and what undoes it: powers of two. `largest`: the bits of
// the largest magnitude.
struct BlockScale {
  float before, after;

  __device__ __forceinline__ explicit BlockScale(uint32_t largest) {
    constexpr uint32_t kNearTwo = 0x020400, kInfinite = 0x7f800000;  // from 16255 / 8192 on counts as two
    const uint32_t exponent = max((largest + kNearTwo) >> 23, 20u);  // biased
    before = __uint_as_float((267 - exponent) << 23);
    after = largest >= kInfinite ? __uint_as_float(0x7fffffff) : __uint_as_float((exponent - 13) << 23);
  }
};
__device__ __forceinline__ uint32_t magnitude_bits(float v) { return __float_as_uint(v) & 0x7fffffff; }

/// A block by a warp, a value each lane; `column`: the lane's. `to`: place of the fragments of `values` columns. Values
/// that do not exist count as zeros; blocks without any are not published.
__device__ __forceinline__ void publish_block(float* to, uint32_t values, uint32_t column, float value, float weight,
                                              bool exists) {
  const uint32_t block = column / kFragmentBlock, lane = column % kFragmentBlock;
  if (!exists) value = 0;
  const float scaled = value * weight;
  const BlockScale scale(__reduce_max_sync(~0u, magnitude_bits(scaled)));
  const int x = __float2int_rn(scaled * scale.before);
  const int sum = __reduce_add_sync(~0u, x), low_sum = __reduce_add_sync(~0u, lane < 16 ? x : 0);
  float squares = value * value;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) squares += __shfl_xor_sync(~0u, squares, d);
  // Of four lanes, the limbs in the bytes of two words: low limbs below, biased high ones above.
  uint32_t limbs = (uint32_t(x) & 127) | (uint32_t(x >> 7) + 128) << 16;
  const uint32_t second = __shfl_xor_sync(~0u, limbs, 2);
  limbs = lane & 2 ? second | limbs << 8 : limbs | second << 8;
  const uint32_t other = __shfl_xor_sync(~0u, limbs, 1);
  if (block * kFragmentBlock >= values) return;
  if (lane % 4 < 2) {  // the first lane has the high limbs' word, the second the low one's
    const uint32_t word = lane & 1 ? __byte_perm(other, limbs, 0x5410) : __byte_perm(limbs, other, 0x7632);
    const uint32_t at = block / 2 * 32 + (lane & 1) * 16 + lane % 16 / 4 * 4 + block % 2 * 2 + lane / 16;
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to + at), "r"(word) : "memory");
  }
  if (lane < 4)
    publish(to + limb_words(values) + block * 4 + lane, lane == 0   ? scale.after
                                                        : lane == 1 ? scale.after * float(sum)
                                                        : lane == 2 ? scale.after * float(low_sum)
                                                                    : squares);
}

// ---- reading

/// Four words of the limbs of two blocks, and a word of what is known of the tile's blocks: lane's block and one of
/// {scale, sum, low sum, squares}.
struct FragmentPiece {
  uint4 limbs;
  float known;

  __device__ __forceinline__ void clear() {
    limbs = make_uint4(0, 0, 0, 0);
    known = 0;
  }
  __device__ __forceinline__ void look(const float* at, const float* known_at, bool has, bool has_second,
                                       bool has_known) {
    if (has)
      asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(limbs.x), "=r"(limbs.y), "=r"(limbs.z), "=r"(limbs.w)
                   : "l"(at)
                   : "memory");
    if (!has_second) limbs.z = limbs.w = 0;
    if (has_known) known = honeycrisp::backend::cuda::look(known_at);
  }
  __device__ __forceinline__ bool waits() const {
    const uint32_t h = max(max(limbs.x, limbs.y), max(limbs.z, limbs.w));
    return max(h, __float_as_uint(known)) == kPoison;
  }
};

}  // namespace honeycrisp::backend::cuda
