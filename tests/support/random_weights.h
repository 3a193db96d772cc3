// Random numbers that are the same everywhere, and random weights of every format with sensible scales.
#pragma once

#include "base/half.h"
#include "quant/dequantize.h"

#include <cstring>
#include <optional>
#include <vector>

namespace honeycrisp::test_support {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 1) {}
  uint32_t bits() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return uint32_t(state_ >> 32);
  }
  /// Uniform in [low, high).
  float uniform(float low, float high) { return low + (high - low) * (float(bits() >> 8) * 0x1p-24f); }
  std::vector<float> floats(size_t n, float low = -1, float high = 1) {
    std::vector<float> v(n);
    for (float& x : v) x = uniform(low, high);
    return v;
  }

 private:
  uint64_t state_;
};

/// Random codes, or all bytes `fill`; scales near 1/64 so that weights are about 1.
template <quant::Format F>
void random_block(Random& random, std::optional<uint8_t> fill, std::byte* out) {
  using Block = typename quant::Traits<F>::Block;
  Block b;
  if constexpr (std::is_same_v<Block, float>) {
    b = random.uniform(-1, 1);
  } else if constexpr (std::is_same_v<Block, uint16_t>) {
    const float x = random.uniform(-1, 1);
    b = F == quant::Format::kF16 ? f32_to_f16(x) : f32_to_bf16(x);
  } else if constexpr (!std::is_class_v<Block>) {
    b = Block(random.bits());
  } else {
    auto* bytes = reinterpret_cast<uint8_t*>(&b);
    for (size_t i = 0; i < sizeof b; ++i) bytes[i] = fill ? *fill : uint8_t(random.bits());
    const uint16_t scale = f32_to_f16(random.uniform(0.01f, 0.03f));
    if constexpr (requires { b.d = uint16_t{}; } && !requires { b.d[0]; }) b.d = scale;
    if constexpr (requires { b.dmin; }) b.dmin = scale;
    if constexpr (requires { b.m; }) b.m = f32_to_f16(random.uniform(-0.3f, 0.3f));
    if constexpr (requires { b.exponent; }) b.exponent = uint8_t(118 + random.bits() % 6);
    if constexpr (F == quant::Format::kIQ1_M)
      for (int i = 0; i < 4; ++i) b.scales[i] = uint16_t((b.scales[i] & 0xfff) | (scale >> (4 * i) & 15) << 12);
    if constexpr (F == quant::Format::kNVFP4)
      for (uint8_t& d : b.d) d = uint8_t(d % 0x40);
  }
  std::memcpy(out, &b, sizeof b);
}

inline std::vector<std::byte> random_weights(Random& random, quant::Format format, uint64_t elements,
                                             std::optional<uint8_t> fill = std::nullopt) {
  const auto& info = quant::info(format);
  std::vector<std::byte> bytes(quant::row_bytes(format, elements));
  for (size_t at = 0; at < bytes.size(); at += info.block_bytes) {
    switch (format) {
#define HC_X(name, id, text, n, size) \
  case quant::Format::name: random_block<quant::Format::name>(random, fill, bytes.data() + at); break;
      HC_FORMATS(HC_X)
#undef HC_X
    }
  }
  return bytes;
}

/// Tensor types that are no formats of weights.
inline bool is_integer_type(quant::Format f) {
  return f == quant::Format::kI8 || f == quant::Format::kI16 || f == quant::Format::kI32 || f == quant::Format::kI64 ||
         f == quant::Format::kF64;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace honeycrisp::test_support
