// The one list of tensor element formats: everything that names, sizes or enumerates them reads it from here.
// Ids and block sizes are those of the GGUF format (ggml_type); dequantization lives in dequantize.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace honeycrisp::quant {

// X(enumerator, GGUF id, name, elements per block, bytes per block)
#define HC_FORMATS(X)                 \
  X(kF32, 0, "F32", 1, 4)             \
  X(kF16, 1, "F16", 1, 2)             \
  X(kQ4_0, 2, "Q4_0", 32, 18)         \
  X(kQ4_1, 3, "Q4_1", 32, 20)         \
  X(kQ5_0, 6, "Q5_0", 32, 22)         \
  X(kQ5_1, 7, "Q5_1", 32, 24)         \
  X(kQ8_0, 8, "Q8_0", 32, 34)         \
  X(kQ2_K, 10, "Q2_K", 256, 84)       \
  X(kQ3_K, 11, "Q3_K", 256, 110)      \
  X(kQ4_K, 12, "Q4_K", 256, 144)      \
  X(kQ5_K, 13, "Q5_K", 256, 176)      \
  X(kQ6_K, 14, "Q6_K", 256, 210)      \
  X(kIQ2_XXS, 16, "IQ2_XXS", 256, 66) \
  X(kIQ2_XS, 17, "IQ2_XS", 256, 74)   \
  X(kIQ3_XXS, 18, "IQ3_XXS", 256, 98) \
  X(kIQ1_S, 19, "IQ1_S", 256, 50)     \
  X(kIQ4_NL, 20, "IQ4_NL", 32, 18)    \
  X(kIQ3_S, 21, "IQ3_S", 256, 110)    \
  X(kIQ2_S, 22, "IQ2_S", 256, 82)     \
  X(kIQ4_XS, 23, "IQ4_XS", 256, 136)  \
  X(kI8, 24, "I8", 1, 1)              \
  X(kI16, 25, "I16", 1, 2)            \
  X(kI32, 26, "I32", 1, 4)            \
  X(kI64, 27, "I64", 1, 8)            \
  X(kF64, 28, "F64", 1, 8)            \
  X(kIQ1_M, 29, "IQ1_M", 256, 56)     \
  X(kBF16, 30, "BF16", 1, 2)          \
  X(kTQ1_0, 34, "TQ1_0", 256, 54)     \
  X(kTQ2_0, 35, "TQ2_0", 256, 66)     \
  X(kMXFP4, 39, "MXFP4", 32, 17)      \
  X(kNVFP4, 40, "NVFP4", 64, 36)

enum class Format : uint8_t {
#define HC_X(e, id, name, elements, bytes) e = id,
  HC_FORMATS(HC_X)
#undef HC_X
};

/// What the elements of a tensor are: floating-point or integer scalars, or blocks with shared scales.
enum class FormatKind : uint8_t { kFloat, kInteger, kQuantized };

struct FormatInfo {
  Format format;
  FormatKind kind;
  std::string_view name;
  uint32_t block_elements;
  uint32_t block_bytes;
};

namespace detail {
constexpr FormatKind kind_of(std::string_view name, uint32_t block_elements) {
  if (block_elements > 1) return FormatKind::kQuantized;
  return name.front() == 'I' ? FormatKind::kInteger : FormatKind::kFloat;
}
}  // namespace detail

inline constexpr auto kFormats = std::to_array<FormatInfo>({
#define HC_X(e, id, name, elements, bytes) {Format::e, detail::kind_of(name, elements), name, elements, bytes},
    HC_FORMATS(HC_X)
#undef HC_X
});

namespace detail {
inline constexpr auto kIndexById = [] {
  std::array<int8_t, 64> index{};
  for (auto& i : index) i = -1;
  for (size_t i = 0; i < kFormats.size(); ++i) index[size_t(kFormats[i].format)] = int8_t(i);
  return index;
}();
}  // namespace detail

/// The format of a GGUF type id; nullopt if there is none.
constexpr std::optional<Format> format_from_id(uint32_t id) {
  if (id >= detail::kIndexById.size() || detail::kIndexById[id] < 0) return std::nullopt;
  return kFormats[size_t(detail::kIndexById[id])].format;
}

constexpr const FormatInfo& info(Format f) { return kFormats[size_t(detail::kIndexById[size_t(f)])]; }
constexpr std::string_view to_string(Format f) { return info(f).name; }

/// Bytes of a row of `elements`, which must be a multiple of the block and at most 2^60 (the product is not checked).
constexpr uint64_t row_bytes(Format f, uint64_t elements) {
  return elements / info(f).block_elements * info(f).block_bytes;
}

}  // namespace honeycrisp::quant
