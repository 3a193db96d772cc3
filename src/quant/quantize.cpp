// Rounds blocks of f32 to quantized and scalar formats. Each quantize_block returns false if it would have to store an
// infinity; it is given finite values only. Operation order is that of the reference, see quantize.h.
#include "quant/quantize.h"

#include "base/half.h"
#include "quant/blocks.h"
#include "quant/dequantize.h"
#include "quant/tables.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace honeycrisp::quant {
namespace {

bool store_f16(float x, uint16_t* out) {
  *out = f32_to_f16(x);
  return (*out & 0x7fff) < 0x7c00;
}

// The reciprocal of a scale. Zero also where it overflows (scales below 2^-128, which are stored as zero): every code
// then stands for zero, where the reference converts infinities to integers.
float reciprocal(float d) {
  const float r = 1.0f / d;
  return std::isfinite(r) ? r : 0.0f;
}

// The first of the elements that are largest in magnitude, with its sign.
float signed_extreme(const float* x, int n) {
  float extreme = x[0];
  for (int i = 1; i < n; ++i) {
    if (std::abs(x[i]) > std::abs(extreme)) extreme = x[i];
  }
  return extreme;
}

float max_magnitude(const float* x, int n) { return std::abs(signed_extreme(x, n)); }

// Halves away from zero, as std::round (which is a library call on baseline x86), for |x| < 2^31.
int rounded(float x) {
  const int whole = int(x);
  return whole + int((x - float(whole)) * 2);
}

int clamped_code(float x, int max_code) { return std::min(int(x), max_code); }

// Low nibbles first, as all blocks of 32 keep them.
void pack_nibbles(const std::array<int, 32>& codes, uint8_t (&out)[16]) {
  for (size_t j = 0; j < 16; ++j) out[j] = uint8_t((codes[j] & 15) | (codes[j + 16] & 15) << 4);
}
void pack_fifth_bits(const std::array<int, 32>& codes, uint8_t (&out)[4]) {
  std::fill(std::begin(out), std::end(out), uint8_t(0));
  for (size_t i = 0; i < 32; ++i) out[i / 8] |= uint8_t((codes[i] >> 4) << (i % 8));
}

// Codes around `zero`; the element of largest magnitude gets code 0, so one more step is left on its side.
bool symmetric_codes(const float* x, int zero, uint16_t* scale, std::array<int, 32>* codes) {
  const float d = signed_extreme(x, 32) / float(-zero);
  if (!store_f16(d, scale)) return false;
  const float id = reciprocal(d);
  for (size_t i = 0; i < 32; ++i) (*codes)[i] = clamped_code(x[i] * id + (float(zero) + 0.5f), 2 * zero - 1);
  return true;
}

// Codes from the smallest (0) to the largest (max_code) element.
bool range_codes(const float* x, int max_code, uint16_t* scale, uint16_t* minimum, std::array<int, 32>* codes) {
  const auto [min, max] = std::minmax_element(x, x + 32);
  const float d = (*max - *min) / float(max_code);
  if (!store_f16(d, scale) || !store_f16(*min, minimum)) return false;
  const float id = reciprocal(d);
  for (size_t i = 0; i < 32; ++i) (*codes)[i] = clamped_code((x[i] - *min) * id + 0.5f, max_code);
  return true;
}

bool quantize_block(const float* x, BlockQ4_0* b) {
  std::array<int, 32> codes;
  if (!symmetric_codes(x, 8, &b->d, &codes)) return false;
  pack_nibbles(codes, b->codes);
  return true;
}

bool quantize_block(const float* x, BlockQ4_1* b) {
  std::array<int, 32> codes;
  if (!range_codes(x, 15, &b->d, &b->m, &codes)) return false;
  pack_nibbles(codes, b->codes);
  return true;
}

bool quantize_block(const float* x, BlockQ5_0* b) {
  std::array<int, 32> codes;
  if (!symmetric_codes(x, 16, &b->d, &codes)) return false;
  pack_nibbles(codes, b->codes);
  pack_fifth_bits(codes, b->high);
  return true;
}

bool quantize_block(const float* x, BlockQ5_1* b) {
  std::array<int, 32> codes;
  if (!range_codes(x, 31, &b->d, &b->m, &codes)) return false;
  pack_nibbles(codes, b->codes);
  pack_fifth_bits(codes, b->high);
  return true;
}

bool quantize_block(const float* x, BlockQ8_0* b) {
  const float d = max_magnitude(x, 32) / 127.0f;
  if (!store_f16(d, &b->d)) return false;
  const float id = reciprocal(d);
  for (int i = 0; i < 32; ++i) b->codes[i] = int8_t(rounded(x[i] * id));
  return true;
}

// Ternary codes 0, 1, 2 of 256 elements and their scale, the largest magnitude.
bool ternary_codes(const float* x, uint16_t* scale, std::array<uint8_t, 256>* codes) {
  const float d = max_magnitude(x, 256);
  if (!store_f16(d, scale)) return false;
  const float id = reciprocal(d);
  for (size_t i = 0; i < 256; ++i) (*codes)[i] = uint8_t(rounded(x[i] * id) + 1);
  return true;
}

// `width` bytes of up to five trits each, from `trits` runs of `width` codes; first run on top.
void pack_trits(const uint8_t* codes, int width, int trits, uint8_t* out) {
  for (int j = 0; j < width; ++j) {
    int number = 0;
    for (int k = 0; k < 5; ++k) number = 3 * number + (k < trits ? codes[k * width + j] : 0);
    out[j] = uint8_t((number * 256 + 242) / 243);  // as a fraction of 256, rounded up, so that reading truncates to it
  }
}

bool quantize_block(const float* x, BlockTQ1_0* b) {
  std::array<uint8_t, 256> codes;
  if (!ternary_codes(x, &b->d, &codes)) return false;
  pack_trits(codes.data(), 32, 5, b->codes);
  pack_trits(codes.data() + 160, 16, 5, b->codes + 32);
  pack_trits(codes.data() + 240, 4, 4, b->tail);
  return true;
}

bool quantize_block(const float* x, BlockTQ2_0* b) {
  std::array<uint8_t, 256> codes;
  if (!ternary_codes(x, &b->d, &codes)) return false;
  for (size_t h = 0; h < 2; ++h) {
    for (size_t l = 0; l < 32; ++l) {
      const uint8_t* c = codes.data() + 128 * h + l;
      b->codes[32 * h + l] = uint8_t(c[0] | c[32] << 2 | c[64] << 4 | c[96] << 6);
    }
  }
  return true;
}

// The exponent byte of an MXFP4 block: the largest value lands between 4 and 8 of the codes' 6.
uint8_t mxfp4_exponent(float largest) {
  if (largest == 0) return 0;
  // The reference takes log2 in f32, which rounds up just below a power of two. Rounding the f64 logarithm gives the
  // same everywhere, whatever the quality of the platform's log2f.
  const float log = float(std::log2(double(largest)));
  return uint8_t(std::max(0, int(std::floor(log)) - 2 + 127));
}

bool quantize_block(const float* x, BlockMXFP4* b) {
  b->exponent = mxfp4_exponent(max_magnitude(x, 32));
  const float d = std::ldexp(1.0f, int(b->exponent) - 128);
  std::array<int, 32> codes;
  for (size_t i = 0; i < 32; ++i) {
    const float magnitude = std::abs(x[i]);
    int best = 0;
    float best_error = magnitude;
    for (int code = 1; code < 8; ++code) {  // ties go to the smaller
      const float error = std::abs(d * float(kE2M1Doubled[size_t(code)]) - magnitude);
      if (error < best_error) best = code, best_error = error;
    }
    codes[i] = best != 0 && x[i] < 0 ? best + 8 : best;
  }
  pack_nibbles(codes, b->codes);
  return true;
}

template <Format F>
bool quantize(const float* x, typename Traits<F>::Block* b) {
  return quantize_block(x, b);
}
template <>
bool quantize<Format::kF32>(const float* x, float* b) {
  *b = *x;
  return true;
}
template <>
bool quantize<Format::kF16>(const float* x, uint16_t* b) {
  return store_f16(*x, b);
}
template <>
bool quantize<Format::kBF16>(const float* x, uint16_t* b) {
  *b = f32_to_bf16(*x);
  return (*b & 0x7fff) < 0x7f80;
}

// Returns the number of blocks done: fewer than n_blocks if the next one would have stored an infinity.
template <Format F>
size_t quantize_blocks(const float* src, std::byte* dst, size_t n_blocks) {
  using Block = typename Traits<F>::Block;
  for (size_t i = 0; i < n_blocks; ++i) {
    Block block;
    if (!quantize<F>(src + i * info(F).block_elements, &block)) return i;
    std::memcpy(dst + i * sizeof(Block), &block, sizeof(Block));
  }
  return n_blocks;
}

struct Quantizer {
  Format format;
  size_t (*quantize_blocks)(const float*, std::byte*, size_t);
};

constexpr Quantizer kQuantizers[] = {
    {Format::kF32, &quantize_blocks<Format::kF32>},     {Format::kF16, &quantize_blocks<Format::kF16>},
    {Format::kBF16, &quantize_blocks<Format::kBF16>},   {Format::kQ4_0, &quantize_blocks<Format::kQ4_0>},
    {Format::kQ4_1, &quantize_blocks<Format::kQ4_1>},   {Format::kQ5_0, &quantize_blocks<Format::kQ5_0>},
    {Format::kQ5_1, &quantize_blocks<Format::kQ5_1>},   {Format::kQ8_0, &quantize_blocks<Format::kQ8_0>},
    {Format::kTQ1_0, &quantize_blocks<Format::kTQ1_0>}, {Format::kTQ2_0, &quantize_blocks<Format::kTQ2_0>},
    {Format::kMXFP4, &quantize_blocks<Format::kMXFP4>},
};

const Quantizer* find_quantizer(Format f) {
  const auto* found =
      std::find_if(std::begin(kQuantizers), std::end(kQuantizers), [f](auto& q) { return q.format == f; });
  return found == std::end(kQuantizers) ? nullptr : found;
}

}  // namespace

bool can_quantize(Format f) { return find_quantizer(f) != nullptr; }

Result<void> quantize_row(Format f, const float* src, std::byte* dst, size_t n) {
  const Quantizer* quantizer = find_quantizer(f);
  if (!quantizer) return unsupported("{}: there is no quantizer for this format", to_string(f));
  const size_t block_elements = info(f).block_elements;
  if (n % block_elements != 0) {
    return invalid("{}: {} elements are not whole blocks of {}", to_string(f), n, block_elements);
  }
  const float* bad = std::find_if(src, src + n, [](float x) { return !std::isfinite(x); });
  if (bad != src + n) return invalid("{}: element {} is {}", to_string(f), bad - src, *bad);
  const size_t done = quantizer->quantize_blocks(src, dst, n / block_elements);
  if (done != n / block_elements) {
    const size_t first = done * block_elements;
    const float largest = max_magnitude(src + first, int(block_elements));
    if (block_elements == 1)
      return invalid("{}: element {} is too large for the format: {}", to_string(f), first, largest);
    return invalid("{}: elements {} to {} are too large for the format: up to {}", to_string(f), first,
                   first + block_elements - 1, largest);
  }
  return {};
}

}  // namespace honeycrisp::quant
