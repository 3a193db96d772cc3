// Writes GGUF v3 files: metadata in insertion order, tensors aligned. Used by tests, and by everything that makes
// models. What a Writer is told is trusted: keys and names are unique and valid, data have the size of their dimensions
// (CHECKed). Knows nothing of what a key or a tensor means.
#pragma once

#include "base/result.h"
#include "gguf/file.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace honeycrisp::gguf {

class Writer {
 public:
  /// `alignment` as limits.h allows it; it is written as a key unless it is the default.
  explicit Writer(uint32_t alignment = kDefaultAlignment);

  void add_uint16(std::string_view key, uint16_t v);
  void add_uint32(std::string_view key, uint32_t v);
  void add_int32(std::string_view key, int32_t v);
  void add_uint64(std::string_view key, uint64_t v);
  void add_float32(std::string_view key, float v);
  void add_bool(std::string_view key, bool v);
  void add_string(std::string_view key, std::string_view v);
  void add_uint32s(std::string_view key, std::span<const uint32_t> v);
  void add_int32s(std::string_view key, std::span<const int32_t> v);
  void add_float32s(std::string_view key, std::span<const float> v);
  void add_bools(std::string_view key, std::span<const bool> v);
  void add_strings(std::string_view key, std::span<const std::string> v);
  /// An entry taken over unchanged from another file. Does nothing for the keys that describe how the other file lies
  /// on disk: general.alignment and split.*.
  void add_entry(const Metadata::Entry& entry);

  /// Makes the bytes of a tensor when its turn comes; they must stay valid until the next source is called.
  using Source = std::function<Result<std::span<const std::byte>>()>;

  /// Declares a tensor of 0..4 dimensions, innermost first. Its bytes are not copied and must stay valid until the file
  /// has been written.
  void add_tensor(std::string_view name, quant::Format format, std::span<const uint64_t> dims,
                  std::span<const std::byte> data);
  /// The same for a tensor that need not be in memory before it is written. write() calls the sources in order of
  /// declaration, once each, and fails with the first error of one.
  void add_tensor(std::string_view name, quant::Format format, std::span<const uint64_t> dims, Source source);

  /// The whole file in memory. Sources must succeed.
  std::vector<std::byte> to_bytes() const;
  /// Writes to a temporary name beside `path`, then renames: a failure leaves no half-written file, and an old file of
  /// that name unchanged. Refuses to replace what is not a regular file.
  Result<void> write(const std::string& path) const;

 private:
  struct PendingTensor {
    std::string name;
    quant::Format format;
    std::vector<uint64_t> dims;
    uint64_t bytes;
    Source source;
  };
  using Sink = std::function<Result<void>(std::span<const std::byte>)>;

  void add_key(std::string_view key, ValueType type);
  void add_array_key(std::string_view key, ValueType element_type, size_t count);
  std::vector<std::byte> header() const;
  Result<void> emit(const Sink& sink) const;

  uint32_t alignment_;
  uint64_t n_entries_ = 0;
  std::vector<std::byte> entries_;
  std::vector<PendingTensor> tensors_;
};

}  // namespace honeycrisp::gguf
