// The bits of packed tiles (packed.cuh) from a file's blocks, 16 of them at a time; zero where the weight has no row or
// column. Only the order changes, and the width of IQ4_XS's scales.
#pragma once

#include "backend/cuda/kernels/packed.cuh"

namespace honeycrisp::backend::cuda {

struct PackSource {
  const uint8_t* rows;
  uint32_t n_rows, n_cols;
};

template <Format F>
__device__ const typename BlockOf<F>::Type* block_at(const PackSource& s, uint32_t row, uint32_t column) {
  constexpr quant::FormatInfo kInfo = quant::info(F);
  if (row >= s.n_rows || column >= s.n_cols) return nullptr;
  const size_t blocks_per_row = s.n_cols / kInfo.block_elements;
  return reinterpret_cast<const typename BlockOf<F>::Type*>(s.rows) + row * blocks_per_row +
         column / kInfo.block_elements;
}

// The code of column j of the 32 columns `blk` of a tile.
__device__ __forceinline__ int code_of(const quant::BlockQ8_0& b, int, int j) { return b.codes[j] + 128; }
// Of one f16 or byte of scale and 32 columns: Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, MXFP4.
template <class Block>
__device__ __forceinline__ int code_of(const Block& b, int, int j) {
  int code = nibble(b.codes[j % 16], j / 16);
  if constexpr (requires { b.high[3]; }) code |= bit(b.high[j / 8], j % 8) << 4;
  return code;
}
__device__ __forceinline__ int code_of(const quant::BlockQ2_K& b, int blk, int j) {
  return crumb(b.codes[32 * (blk / 4) + j], blk % 4);
}
__device__ __forceinline__ int code_of(const quant::BlockQ3_K& b, int blk, int j) {
  return crumb(b.codes[32 * (blk / 4) + j], blk % 4) | bit(b.high[j], blk) << 2;
}
__device__ __forceinline__ int code_of(const quant::BlockQ4_K& b, int blk, int j) {
  return nibble(b.codes[32 * (blk / 2) + j], blk % 2);
}
__device__ __forceinline__ int code_of(const quant::BlockQ5_K& b, int blk, int j) {
  return nibble(b.codes[32 * (blk / 2) + j], blk % 2) | bit(b.high[j], blk) << 4;
}
__device__ __forceinline__ int code_of(const quant::BlockQ6_K& b, int blk, int j) {
  return nibble(b.codes[64 * (blk / 4) + 32 * (blk % 2) + j], blk / 2 % 2) | crumb(b.high[32 * (blk / 4) + j], blk % 4)
                                                                                 << 4;
}
__device__ __forceinline__ int code_of(const quant::BlockIQ4_XS& b, int blk, int j) {
  return nibble(b.codes[16 * blk + j % 16], j / 16);
}
__device__ __forceinline__ int code_of(const quant::BlockNVFP4& b, int blk, int j) {
  return nibble(b.codes[16 * (blk % 2) + j / 16 * 8 + j % 8], j / 8 % 2);
}

/// 16 bits at word `at` of the planes of codes.
template <Format F>
__device__ uint16_t packed_codes(const PackSource& s, uint32_t row0, uint32_t column0, int at) {
  constexpr TileLayout kLayout = layout_of(F);
  const bool of_bits = at >= kLayout.bit_at() / 2;
  const int word = (of_bits ? at - kLayout.bit_at() / 2 : at) / 2, half = at % 2;
  const int lane = of_bits ? word / 4 : word % 128 / 4, sub = word % 4, four = word / 128;
  const int size = of_bits ? 1 : kLayout.bits, shift = of_bits ? kLayout.bits : 0;
  uint32_t value = 0;
  for (int i = 0; i < 16 / size; ++i) {
    const int n = half * (16 / size) + i;  // which of the word's codes
    int blk, r8, high, byte;
    if (of_bits) {
      blk = 2 * sub + n / 4 % 2, r8 = n % 2, high = n / 2 % 2, byte = n / 8;
    } else if (kLayout.bits == 8) {
      blk = four, r8 = sub % 2, high = sub / 2, byte = n;
    } else if (kLayout.bits == 2) {
      blk = four * 4 + sub, r8 = n % 2, high = n / 2 % 2, byte = n / 4;
    } else {
      blk = four * 2 + sub / 2, r8 = sub % 2;
      high = kLayout.table ? n / 4 : n % 2, byte = kLayout.table ? n % 4 : n / 2;
    }
    const auto* b = block_at<F>(s, row0 + lane / 4 + 8 * r8, column0 + 32 * blk);
    if (b == nullptr) continue;
    const int code = code_of(*b, blk, high * 16 + lane % 4 * 4 + byte_of_element(byte));
    const int part = F == Format::kQ6_K && high != 0 ? code >> 2 : code >> shift;
    value |= uint32_t(part & ((1 << size) - 1)) << (size * i);
  }
  return uint16_t(value);
}

/// Q6_K: 16 bits of the plane of two bits.
__device__ inline uint16_t packed_two_bits(const PackSource& s, uint32_t row0, uint32_t column0, int at) {
  const int word = at / 2, lane = word / 2 % 32, blk = word / 64 * 2 + word % 2;
  uint32_t value = 0;
  for (int r8 = 0; r8 < 2; ++r8) {
    const auto* b = block_at<Format::kQ6_K>(s, row0 + lane / 4 + 8 * r8, column0);
    if (b == nullptr) continue;
    uint32_t two = 0;
    for (int i = 0; i < 8; ++i) {
      const int high = i % 2, code = code_of(*b, blk, high * 16 + lane % 4 * 4 + byte_of_element(i / 2));
      two |= uint32_t(high != 0 ? code & 3 : code >> 4) << (8 * (i / 2) + (high != 0 ? 2 : 4));
    }
    value |= r8 == 0 ? two : __funnelshift_l(two, two, 4);
  }
  return uint16_t(value >> (16 * (at % 2)));
}

/// The 24 bits of scales and minimums of two neighbouring blocks.
template <class Block>
__device__ __forceinline__ uint32_t scale_fields(const Block* b, int pair) {
  if (b == nullptr) return 0;
  uint32_t fields = 0;
  for (int i = 0; i < 2; ++i) {
    const ScaleAndMin s = scale_and_min(b->scales, 2 * pair + i);
    fields |= (uint32_t(s.scale) | uint32_t(s.min) << 6) << (12 * i);
  }
  return fields;
}
__device__ __forceinline__ uint32_t scale_fields(const quant::BlockQ3_K* b, int pair) {
  if (b == nullptr) return 0;
  uint32_t fields = 0;
  for (int i = 0; i < 4; ++i) fields |= uint32_t(scale_of(*b, 4 * pair + i)) << (6 * i);
  return fields;
}

// The byte of a scale: of half block `half` (16 columns) of the tile, or of block `blk`.
__device__ __forceinline__ uint8_t scale_byte(const quant::BlockQ2_K& b, int half) { return b.scales[half]; }
__device__ __forceinline__ uint8_t scale_byte(const quant::BlockQ6_K& b, int half) { return uint8_t(b.scales[half]); }
__device__ __forceinline__ uint8_t scale_byte(const quant::BlockNVFP4& b, int half) { return b.d[half % 4]; }
__device__ __forceinline__ uint8_t scale_byte(const quant::BlockIQ4_XS& b, int blk) {
  return uint8_t(scale_of(b, blk) - 32);
}
__device__ __forceinline__ uint8_t scale_byte(const quant::BlockMXFP4& b, int) { return b.exponent; }

/// d (and dmin) of rows, from word 0 on.
template <Format F>
__device__ uint16_t packed_row_scale(const PackSource& s, uint32_t row0, uint32_t column0, int at) {
  const auto* b = block_at<F>(s, row0 + (has_row_minimum(F) ? at / 2 : at), column0);
  if (b == nullptr) return 0;
  if constexpr (has_row_minimum(F))
    return at % 2 ? b->dmin : b->d;
  else
    return b->d;
}

/// 16 bits at word `at` after the planes of codes.
template <Format F>
__device__ uint16_t packed_scales(const PackSource& s, uint32_t row0, uint32_t column0, int at) {
  if constexpr (has_half_scales(F)) {
    const int blk = at % 8, r8 = at / 8 % 2, g = at / 16 % 8;
    const auto* b = block_at<F>(s, row0 + g + 8 * r8, column0 + 32 * blk);
    if (b == nullptr) return 0;
    if constexpr (has_half_minimums(F))
      return at < 128 ? b->d : b->m;
    else
      return b->d;
  } else if constexpr (F == Format::kQ4_K || F == Format::kQ5_K || F == Format::kQ3_K) {
    if (at >= 96) return packed_row_scale<F>(s, row0, column0, at - 96);
    const int lane = at >= 64 ? at - 64 : at / 2;
    const uint64_t all = scale_fields(block_at<F>(s, row0 + lane / 4, column0), lane % 4) |
                         uint64_t(scale_fields(block_at<F>(s, row0 + lane / 4 + 8, column0), lane % 4)) << 24;
    return uint16_t(at >= 64 ? all >> 32 : all >> (16 * (at % 2)));
  } else {
    constexpr int kBytes = has_half_blocks(F) ? 256 : 128, kEach = kBytes / 64;  // scales of a lane and row
    if constexpr (F == Format::kQ2_K || F == Format::kQ6_K || F == Format::kIQ4_XS)
      if (at >= kBytes / 2) return packed_row_scale<F>(s, row0, column0, at - kBytes / 2);
    uint32_t value = 0;
    for (int i = 0; i < 2; ++i) {
      const int byte = 2 * at + i, lane = byte / (2 * kEach), r8 = byte / kEach % 2,
                of_row = lane % 4 * kEach + byte % kEach;
      const auto* b = block_at<F>(s, row0 + lane / 4 + 8 * r8, column0 + uint32_t(of_row) * (64 / kEach));
      if (b != nullptr) value |= uint32_t(scale_byte(*b, of_row)) << (8 * i);
    }
    return uint16_t(value);
  }
}

/// F16, BF16: the number at word `at`.
__device__ inline uint16_t packed_float(const PackSource& s, uint32_t row0, uint32_t column0, int at) {
  const int lane = at / 8 % 32;
  const uint32_t row = row0 + lane / 4 + at / 2 % 2 * 8;
  const uint32_t column = column0 + at / 256 * 16 + lane % 4 * 4 + at / 4 % 2 * 2 + at % 2;
  if (row >= s.n_rows || column >= s.n_cols) return 0;
  return reinterpret_cast<const uint16_t*>(s.rows)[size_t(row) * s.n_cols + column];
}

/// The 16-bit word `at` of a tile.
template <Format F>
__device__ uint16_t packed_word(const PackSource& s, uint32_t row0, uint32_t column0, int at) {
  constexpr int kScales = layout_of(F).scales_at() / 2;
  if constexpr (is_packed_float(F)) {
    return packed_float(s, row0, column0, at);
  } else if constexpr (F == Format::kQ6_K) {
    if (at < kScales) return packed_codes<F>(s, row0, column0, at);
    if (at < kScales + 512) return packed_two_bits(s, row0, column0, at - kScales);
    return packed_scales<F>(s, row0, column0, at - kScales - 512);
  } else {
    return at < kScales ? packed_codes<F>(s, row0, column0, at) : packed_scales<F>(s, row0, column0, at - kScales);
  }
}

}  // namespace honeycrisp::backend::cuda
