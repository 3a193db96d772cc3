// Tiny GGUF files for tests: a record-by-record description whose every field can be made to lie, and a valid llama
// model of two layers described that way. Shares no code with src/gguf, so that each checks the other.
// Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace honeycrisp::test_support {

/// A metadata value as it lies in a file: the type id, and the bytes that follow it.
struct RawValue {
  uint32_t type = 0;
  std::string payload;
};

inline constexpr uint32_t kTypeString = 8, kTypeArray = 9;

/// The type id of a C++ scalar.
template <class T>
constexpr uint32_t type_id() {
  if constexpr (std::same_as<T, bool>)
    return 7;
  else if constexpr (std::same_as<T, float>)
    return 6;
  else if constexpr (std::same_as<T, double>)
    return 12;
  else if constexpr (sizeof(T) == 8)
    return std::is_signed_v<T> ? 11 : 10;
  else
    return (sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 2 : 4) + (std::is_signed_v<T> ? 1 : 0);
}

/// The bytes of a scalar, little-endian.
template <class T>
std::string packed(T v) {
  std::string bytes(sizeof v, '\0');
  std::memcpy(bytes.data(), &v, sizeof v);
  return bytes;
}
inline std::string packed_string(std::string_view text) { return packed(uint64_t(text.size())) + std::string(text); }

template <class T>
  requires std::is_arithmetic_v<T>
RawValue value(T v) {
  return {type_id<T>(), packed(v)};
}
inline RawValue value(std::string_view text) { return {kTypeString, packed_string(text)}; }
inline RawValue value(const char* text) { return value(std::string_view(text)); }
/// An array that claims `count` elements of `element_type` and holds `elements`.
inline RawValue array_value(uint32_t element_type, uint64_t count, std::string_view elements) {
  return {kTypeArray, packed(element_type) + packed(count) + std::string(elements)};
}
template <class T>
RawValue value(const std::vector<T>& elements) {
  std::string bytes;
  if constexpr (std::same_as<T, std::string>) {
    for (const std::string& element : elements) bytes += packed_string(element);
    return array_value(kTypeString, elements.size(), bytes);
  } else {
    for (const T element : elements) bytes += packed(element);
    return array_value(type_id<T>(), elements.size(), bytes);
  }
}

struct RawEntry {
  std::string key;
  RawValue value;
};

struct RawTensor {
  std::string name;
  uint32_t type = 0;  // ggml type id; 0 is F32
  std::vector<uint64_t> dims;
  std::string data;
  std::optional<uint32_t> n_dims;  // what the file claims instead of dims.size()
  std::optional<uint64_t> offset;  // what the file claims instead of the place of `data`
};

struct RawGguf {
  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t alignment = 32;                       // of the data; the key is an entry like any other
  std::optional<uint64_t> n_entries, n_tensors;  // what the file claims
  std::vector<RawEntry> entries;
  std::vector<RawTensor> tensors;

  /// Replaces the value of a key, or appends it.
  void set(std::string_view key, RawValue value);
  void remove(std::string_view key);
  RawTensor& tensor(std::string_view name);  // must exist
  void remove_tensor(std::string_view name);
  /// Aligns the data to `bytes`, and says so in the metadata.
  void set_alignment(uint32_t bytes);

  /// The file. It ends with the last byte of the last tensor.
  std::string bytes() const;
};

struct TinyOptions {
  enum class Tokenizer { kGpt2, kLlama };  // byte-level BPE with merges, or scores with byte fallback
  Tokenizer tokenizer = Tokenizer::kGpt2;
  uint32_t layers = 2, width = 64, heads = 4, kv_heads = 2, feed_forward = 128, context = 512;
  bool tied = false;  // without output.weight
  uint64_t seed = 1;
};

/// A valid model of architecture "llama" with F32 weights that depend on the seed only. Names and shapes are those
/// that llama.cpp's converter writes.
RawGguf tiny_llama(const TinyOptions& options = {});

/// Only the metadata of tiny_llama(): a vocabulary without tensors, which is legal.
RawGguf tiny_vocabulary(const TinyOptions& options = {});

/// One entry of every type, arrays, and two tensors: all that a file can hold, in under a kilobyte.
RawGguf one_of_each();

/// The same model as `count` files: tensors dealt out in order, metadata in the first only, split.* in each.
std::vector<RawGguf> split(const RawGguf& model, uint16_t count);
/// "model-00001-of-00002.gguf" of prefix "model", index 0, count 2.
std::string shard_name(std::string_view prefix, size_t index, size_t count);

}  // namespace honeycrisp::test_support
