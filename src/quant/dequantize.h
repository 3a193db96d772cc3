// Exact values of quantized and scalar elements: one trait per format, and rows of any format through one table.
// The arithmetic is f32 in the operation order of the reference (gguf-py), so results are equal to it bit by bit; every
// byte pattern has a defined value (NaN and infinite scales propagate; only a NaN's sign and payload are unspecified).
// Results do not depend on the thread flushing subnormals. Pure functions, safe from any thread.
#pragma once

#include "quant/blocks.h"
#include "quant/formats.h"

#include <cstddef>

namespace honeycrisp::quant {

/// How one format is read: `Block`, its bytes, and dequantize_block(block, out [block_elements]).
/// Deliberately without a primary definition: a row of HC_FORMATS without a trait does not compile.
template <Format F>
struct Traits;

#define HC_TRAIT(format, block)                               \
  template <>                                                 \
  struct Traits<Format::format> {                             \
    using Block = block;                                      \
    static void dequantize_block(const Block& b, float* out); \
  };
HC_TRAIT(kF32, float)
HC_TRAIT(kF64, double)
HC_TRAIT(kF16, uint16_t)
HC_TRAIT(kBF16, uint16_t)
HC_TRAIT(kI8, int8_t)
HC_TRAIT(kI16, int16_t)
HC_TRAIT(kI32, int32_t)
HC_TRAIT(kI64, int64_t)
HC_TRAIT(kQ4_0, BlockQ4_0)
HC_TRAIT(kQ4_1, BlockQ4_1)
HC_TRAIT(kQ5_0, BlockQ5_0)
HC_TRAIT(kQ5_1, BlockQ5_1)
HC_TRAIT(kQ8_0, BlockQ8_0)
HC_TRAIT(kQ2_K, BlockQ2_K)
HC_TRAIT(kQ3_K, BlockQ3_K)
HC_TRAIT(kQ4_K, BlockQ4_K)
HC_TRAIT(kQ5_K, BlockQ5_K)
HC_TRAIT(kQ6_K, BlockQ6_K)
HC_TRAIT(kIQ2_XXS, BlockIQ2_XXS)
HC_TRAIT(kIQ2_XS, BlockIQ2_XS)
HC_TRAIT(kIQ2_S, BlockIQ2_S)
HC_TRAIT(kIQ3_XXS, BlockIQ3_XXS)
HC_TRAIT(kIQ3_S, BlockIQ3_S)
HC_TRAIT(kIQ1_S, BlockIQ1_S)
HC_TRAIT(kIQ1_M, BlockIQ1_M)
HC_TRAIT(kIQ4_NL, BlockIQ4_NL)
HC_TRAIT(kIQ4_XS, BlockIQ4_XS)
HC_TRAIT(kTQ1_0, BlockTQ1_0)
HC_TRAIT(kTQ2_0, BlockTQ2_0)
HC_TRAIT(kMXFP4, BlockMXFP4)
HC_TRAIT(kNVFP4, BlockNVFP4)
#undef HC_TRAIT

/// Reads `n` elements (a multiple of the format's block) from `src` (row_bytes(f, n) bytes, any alignment) into `dst`.
/// Integers and F64 are rounded to the nearest f32.
void dequantize_row(Format f, const std::byte* src, float* dst, size_t n);

}  // namespace honeycrisp::quant
