// Writes GGUF v3 files: metadata in insertion order, tensors aligned. Used by tests, and by everything that makes models.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/file.h"

namespace honeycrisp::gguf {

class Writer {
 public:
  explicit Writer(uint32_t alignment = kDefaultAlignment);

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
  /// An entry taken over unchanged from another file.
  void add_entry(const Metadata::Entry& entry);

  /// Declares a tensor. Its bytes are not copied and must stay valid until the file has been written.
  void add_tensor(std::string_view name, quant::Format format, std::span<const uint64_t> dims,
                  std::span<const std::byte> data);

  std::vector<std::byte> to_bytes() const;
  /// Writes to a temporary name beside `path`, then renames: a failure leaves no half-written file.
  Result<void> write(const std::string& path) const;

 private:
  struct PendingTensor {
    std::string name;
    quant::Format format;
    std::vector<uint64_t> dims;
    std::span<const std::byte> data;
  };
  void key(std::string_view key, ValueType type);
  std::vector<std::byte> header() const;

  uint32_t alignment_;
  uint64_t n_entries_ = 0;
  std::vector<std::byte> entries_;
  std::vector<PendingTensor> tensors_;
};

}  // namespace honeycrisp::gguf
