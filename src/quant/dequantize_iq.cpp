// IQ formats: codes index a grid of octets or quads, or a codebook of values. Formulas: blocks.h; grids: tables.h.
#include "base/half.h"
#include "quant/bits.h"
#include "quant/dequantize.h"
#include "quant/tables.h"

#include <bit>
#include <cstring>

namespace honeycrisp::quant {
namespace {

// Bit j of `signs` negates element j. Branch-free, with masks instead of shifts by j: that vectorises on every
// instruction set, where a conditional costs a misprediction at every other element.
template <class T, size_t N>
void write_signed(const std::array<T, N>& grid, uint32_t signs, float scale, float* out) {
  constexpr uint32_t kMasks[8] = {1, 2, 4, 8, 16, 32, 64, 128};
  for (size_t j = 0; j < N; ++j) {
    const uint32_t sign = uint32_t((signs & kMasks[j]) != 0) << 31;
    out[j] = std::bit_cast<float>(std::bit_cast<uint32_t>(scale * float(grid[j])) ^ sign);
  }
}

// The scale and the 4 x 7 sign bits of a group of 32 elements, as IQ2_XXS and IQ3_XXS pack them.
struct SignsAndScale {
  uint32_t packed;
  uint8_t signs(int octet) const { return kEvenSigns[packed >> (7 * octet) & 127]; }
  float scale() const { return 0.5f + float(packed >> 28); }
};

}  // namespace

void Traits<Format::kIQ2_XXS>::dequantize_block(const BlockIQ2_XXS& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int g = 0; g < 8; ++g) {
    const uint16_t* words = b.words + 4 * g;
    const SignsAndScale tail{words[2] | uint32_t(words[3]) << 16};
    const float scale = d * tail.scale() * 0.25f;
    for (int k = 0; k < 4; ++k) {
      const int index = words[k / 2] >> (8 * (k % 2)) & 255;
      write_signed(kGridIQ2_XXS[size_t(index)], tail.signs(k), scale, out + 32 * g + 8 * k);
    }
  }
}

void Traits<Format::kIQ2_XS>::dequantize_block(const BlockIQ2_XS& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int o = 0; o < 32; ++o) {
    const float scale = d * (0.5f + float(nibble(b.scales[o / 4], o / 2 % 2))) * 0.25f;
    write_signed(kGridIQ2_XS[b.words[o] & 511], kEvenSigns[b.words[o] >> 9], scale, out + 8 * o);
  }
}

void Traits<Format::kIQ2_S>::dequantize_block(const BlockIQ2_S& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int o = 0; o < 32; ++o) {
    const float scale = d * (0.5f + float(nibble(b.scales[o / 4], o / 2 % 2))) * 0.25f;
    const int index = b.codes[o] | crumb(b.high[o / 4], o % 4) << 8;
    write_signed(kGridIQ2_S[size_t(index)], b.signs[o], scale, out + 8 * o);
  }
}

void Traits<Format::kIQ3_XXS>::dequantize_block(const BlockIQ3_XXS& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int g = 0; g < 8; ++g) {
    SignsAndScale tail;
    std::memcpy(&tail.packed, b.scales_and_signs + 4 * g, 4);
    const float scale = d * tail.scale() * 0.5f;
    for (int k = 0; k < 8; ++k) {
      const uint32_t signs = uint32_t(tail.signs(k / 2)) >> (4 * (k % 2));
      write_signed(kGridIQ3_XXS[b.codes[8 * g + k]], signs, scale, out + 32 * g + 4 * k);
    }
  }
}

void Traits<Format::kIQ3_S>::dequantize_block(const BlockIQ3_S& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int k = 0; k < 64; ++k) {  // quads
    const int g = k / 8;
    const float scale = d * float(1 + 2 * nibble(b.scales[g / 2], g % 2));
    const int index = b.codes[k] | bit(b.high[g], k % 8) << 8;
    write_signed(kGridIQ3_S[size_t(index)], uint32_t(b.signs[k / 2]) >> (4 * (k % 2)), scale, out + 4 * k);
  }
}

namespace {
// An octet of IQ1_S or IQ1_M.
void write_shifted(int index, bool negative_delta, float scale, float* out) {
  const float delta = negative_delta ? -0.125f : 0.125f;
  const auto& grid = kGridIQ1[size_t(index)];
  for (size_t j = 0; j < 8; ++j) out[j] = scale * (float(grid[j]) + delta);
}
}  // namespace

void Traits<Format::kIQ1_S>::dequantize_block(const BlockIQ1_S& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int o = 0; o < 32; ++o) {
    const uint32_t high = b.high[o / 4];
    const float scale = d * float(2 * (high >> 12 & 7) + 1);
    const int index = b.codes[o] | int(high >> (3 * (o % 4)) & 7) << 8;
    write_shifted(index, bit(high, 15), scale, out + 8 * o);
  }
}

void Traits<Format::kIQ1_M>::dequantize_block(const BlockIQ1_M& b, float* out) {
  uint32_t d_bits = 0;
  for (int j = 0; j < 4; ++j) d_bits |= uint32_t(b.scales[j] >> 12) << (4 * j);
  const float d = f16_to_f32(uint16_t(d_bits));
  for (int o = 0; o < 32; ++o) {
    const int k = o / 2;  // sub-block of 16
    const float scale = d * float(2 * (b.scales[k / 4] >> (3 * (k % 4)) & 7) + 1);
    const int high = nibble(b.high[o / 2], o % 2);
    write_shifted(b.codes[o] | (high & 7) << 8, bit(uint32_t(high), 3), scale, out + 8 * o);
  }
}

void Traits<Format::kIQ4_NL>::dequantize_block(const BlockIQ4_NL& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * float(kValuesIQ4_NL[size_t(nibble(b.codes[j], 0))]);
    out[j + 16] = d * float(kValuesIQ4_NL[size_t(nibble(b.codes[j], 1))]);
  }
}

void Traits<Format::kIQ4_XS>::dequantize_block(const BlockIQ4_XS& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int g = 0; g < 8; ++g) {
    const float scale = d * float((nibble(b.scales_low[g / 2], g % 2) | crumb(b.scales_high, g) << 4) - 32);
    const uint8_t* codes = b.codes + 16 * g;
    for (int j = 0; j < 16; ++j) {
      out[32 * g + j] = scale * float(kValuesIQ4_NL[size_t(nibble(codes[j], 0))]);
      out[32 * g + j + 16] = scale * float(kValuesIQ4_NL[size_t(nibble(codes[j], 1))]);
    }
  }
}

}  // namespace honeycrisp::quant
