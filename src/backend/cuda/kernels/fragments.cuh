// Vectors as the products that follow want them, published by whoever makes them, so that a block that reads one copies
// it instead of rounding and measuring it again.
//
// A block is 32 columns of a row. Its values, times the norm's weights of the product that reads them, become integers
// x after scaling by a power of two that brings the largest to between 2^13 and 2^14, rounded to eleven significant
// bits. So an x is what two limbs of a byte are, x = 128 · high + low with low within 0..127, and an f16 as well: one
// row is multiplied as limbs, several rows as limbs or as f16, and all these sums are exact (step_tile.cuh,
// half_tile.cuh). With a block go, as floats, what its values were divided by, the sum of its x and that of its low 16
// columns, and the sum of the squares of the values themselves. Who makes a block, and how many rows there are, changes
// none of this. A block with an infinite value or none is divided by NaN, which then all products become.
//
// Words of the fragments of a row: of pairs of blocks as products read them, of limbs or of f16, where high limbs have
// 128 added: no word is poison, as no high limb is 127 (block_scale.cuh) and no f16 is a NaN with all bits set. Then
// four of every block.
//
// Who reads them makes the scales of a k tile's blocks relative to its largest (Relative), which the products of the
// tile are multiplied by in the end. Blocks below 2^-24 of it count as zeros: f16 do not reach further.
#pragma once

#include "backend/cuda/kernels/block_scale.cuh"
#include "backend/cuda/kernels/half_tile.cuh"
#include "backend/cuda/kernels/persistent_block.cuh"
#include "backend/cuda/kernels/step_tile.cuh"

namespace honeycrisp::backend::cuda {

constexpr uint32_t kHighBias = 0x80808080;

/// Two integers of BlockScale as f16.
__device__ __forceinline__ uint32_t two_halves(int x, int y) { return pack_halves(float(x), float(y)); }

/// A block by a warp, a value each lane; `column`: the lane's. `to`: place of the fragments of `values` columns. Values
/// that do not exist count as zeros; blocks without any are not published.
__device__ __forceinline__ void publish_block(float* to, bool halves, uint32_t values, uint32_t column, float value,
                                              float weight, bool exists) {
  const uint32_t block = column / kFragmentBlock, lane = column % kFragmentBlock;
  if (!exists) value = 0;
  const float scaled = value * weight;
  const BlockScale scale(__reduce_max_sync(~0u, magnitude_bits(scaled)));
  const int x = scale.integer(scaled);
  const int sum = __reduce_add_sync(~0u, x), low_sum = __reduce_add_sync(~0u, lane < 16 ? x : 0);
  float squares = value * value;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) squares += __shfl_xor_sync(~0u, squares, d);
  uint32_t word, at;
  bool stores;
  if (halves) {  // even lanes have the word of two
    word = two_halves(x, __shfl_xor_sync(~0u, x, 1));
    at = block * 16 + half_word(lane);
    stores = lane % 2 == 0;
  } else {
    // Of four lanes, the limbs in the bytes of two words: low limbs below, biased high ones above.
    uint32_t limbs = (uint32_t(x) & 127) | (uint32_t(x >> 7) + 128) << 16;
    const uint32_t second = __shfl_xor_sync(~0u, limbs, 2);
    limbs = lane & 2 ? second | limbs << 8 : limbs | second << 8;
    const uint32_t other = __shfl_xor_sync(~0u, limbs, 1);
    // The first lane has the high limbs' word, the second the low one's.
    word = lane & 1 ? __byte_perm(other, limbs, 0x5410) : __byte_perm(limbs, other, 0x7632);
    at = block / 2 * 32 + (lane & 1) * 16 + lane % 16 / 4 * 4 + block % 2 * 2 + lane / 16;
    stores = lane % 4 < 2;
  }
  if (block * kFragmentBlock >= values) return;
  if (stores) asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to + at), "r"(word) : "memory");
  if (lane < 4)
    publish(to + value_words(values) + block * 4 + lane, lane == 0   ? scale.after
                                                         : lane == 1 ? float(sum)
                                                         : lane == 2 ? float(low_sum)
                                                                     : squares);
}

// ---- reading

/// Four words of a tile's fragments, of one block (f16) or of two (limbs), and a word of what is known of its blocks:
/// of the lane's, block lane / 4, one of {scale, sum, low sum, squares}.
struct FragmentPiece {
  uint4 words;
  float known;

  __device__ __forceinline__ void clear() {
    words = make_uint4(0, 0, 0, 0);
    known = 0;
  }
  __device__ __forceinline__ void look(const float* at, const float* known_at, bool has, bool has_second,
                                       bool has_known) {
    if (has)
      asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                   : "l"(at)
                   : "memory");
    if (!has_second) words.z = words.w = 0;
    if (has_known) known = honeycrisp::backend::cuda::look(known_at);
  }
  __device__ __forceinline__ bool waits() const {
    const uint32_t h = max(max(words.x, words.y), max(words.z, words.w));
    return max(h, __float_as_uint(known)) == kPoison;
  }
};

/// What is known of a tile's blocks, relative to its largest scale. By a warp, lanes as in FragmentPiece.
struct Relative {
  float known;   // of {scale, sum, low sum}; the sums, of products of f16, in the unit of their codes
  float factor;  // the block's scale
  float whole;   // the tile's

  __device__ __forceinline__ Relative(float of_block, int lane, bool halves) {
    const uint32_t bits = __float_as_uint(of_block);
    const uint32_t largest = __reduce_max_sync(~0u, lane % 4 == 0 ? bits : 0), mine = __shfl_sync(~0u, bits, lane & 28);
    const bool counts = largest - mine <= 24u << 23;
    // Powers of two (or NaN, which the largest is then): exponents are subtracted.
    factor = counts ? __uint_as_float((127u << 23) + mine - largest) : 0.0f;
    known = lane % 4 == 0 ? factor : of_block * (halves ? factor / kUnscale : factor);
    whole = __uint_as_float(largest);
  }
};
/// Leaves it where products read it.
__device__ __forceinline__ void leave_known(KnownOfTile& to, const Relative& v, int lane) {
  auto* words = reinterpret_cast<float*>(&to);
  if (lane % 4 != 3) words[lane % 4 * 8 + lane / 4] = v.known;
  if (lane == 3) to.whole = v.whole;
}
/// The words of a piece of f16 of a row, lane = 4 block + t, where products read them. x: of the tile and row.
__device__ __forceinline__ void leave_halves(uint32_t* x, int row, const uint4& words, float factor, int lane) {
  const uint32_t by = pack_halves(factor, factor);
  *reinterpret_cast<uint4*>(x + half_place(row, lane / 4, lane % 4)) = {mul_f16x2(words.x, by), mul_f16x2(words.y, by),
                                                                        mul_f16x2(words.z, by), mul_f16x2(words.w, by)};
}

}  // namespace honeycrisp::backend::cuda
