// Rows of any format: the scalar formats, and the table that leads to every format's trait.
// The blocks' arithmetic lies in dequantize_basic.cpp, dequantize_k.cpp and dequantize_iq.cpp.
#include "quant/dequantize.h"

#include "base/check.h"
#include "base/half.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace honeycrisp::quant {
namespace {

static_assert(std::endian::native == std::endian::little, "blocks are read in place: GGUF is little-endian");

// Rounds to the nearest f32. The subnormal results are made by integer arithmetic: the conversion instruction would
// give zero in a thread that flushes them.
float f64_to_f32(double x) {
  constexpr double kSmallestNormal = 0x1p-126;
  if (!(std::abs(x) < kSmallestNormal)) return float(x);
  const double steps = std::abs(x) * 0x1p149;  // in units of the smallest subnormal, below 2^23
  return std::bit_cast<float>(uint32_t(std::nearbyint(steps)) | uint32_t(std::signbit(x)) << 31);
}

template <Format F>
void dequantize_blocks(const std::byte* src, float* dst, size_t n_blocks) {
  using Block = typename Traits<F>::Block;
  constexpr FormatInfo kInfo = info(F);
  static_assert(sizeof(Block) == kInfo.block_bytes);
  for (size_t i = 0; i < n_blocks; ++i) {
    Block block;  // a copy: the source may lie at any address
    std::memcpy(&block, src + i * sizeof(Block), sizeof(Block));
    Traits<F>::dequantize_block(block, dst + i * kInfo.block_elements);
  }
}

// One entry per row of kFormats, in its order.
constexpr std::array<void (*)(const std::byte*, float*, size_t), kFormats.size()> kDequantizers = {
#define HC_X(e, id, name, elements, bytes) &dequantize_blocks<Format::e>,
    HC_FORMATS(HC_X)
#undef HC_X
};

}  // namespace

void Traits<Format::kF32>::dequantize_block(const float& x, float* out) { *out = x; }
void Traits<Format::kF64>::dequantize_block(const double& x, float* out) { *out = f64_to_f32(x); }
void Traits<Format::kF16>::dequantize_block(const uint16_t& x, float* out) { *out = f16_to_f32(x); }
void Traits<Format::kBF16>::dequantize_block(const uint16_t& x, float* out) { *out = bf16_to_f32(x); }
void Traits<Format::kI8>::dequantize_block(const int8_t& x, float* out) { *out = float(x); }
void Traits<Format::kI16>::dequantize_block(const int16_t& x, float* out) { *out = float(x); }
void Traits<Format::kI32>::dequantize_block(const int32_t& x, float* out) { *out = float(x); }
void Traits<Format::kI64>::dequantize_block(const int64_t& x, float* out) { *out = float(x); }

void dequantize_row(Format f, const std::byte* src, float* dst, size_t n) {
  const size_t block_elements = info(f).block_elements;
  HC_CHECK(n % block_elements == 0, "{} elements of {} are not whole blocks of {}", n, to_string(f), block_elements);
  kDequantizers[size_t(detail::kIndexById[size_t(f)])](src, dst, n / block_elements);
}

}  // namespace honeycrisp::quant
