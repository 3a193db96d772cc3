// Typed, read-only view of a GGUF file's key/value section. Strings and array payloads point into the file's bytes:
// a Metadata must not outlive the File (or the buffer) it came from.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace honeycrisp::gguf {

/// Type ids of the GGUF format.
enum class ValueType : uint32_t {
  kUint8 = 0, kInt8 = 1, kUint16 = 2, kInt16 = 3, kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7,
  kString = 8, kArray = 9, kUint64 = 10, kInt64 = 11, kFloat64 = 12,
};
std::string_view to_string(ValueType type);

/// A scalar, string or one-dimensional array. The as_* readers convert between widths and return nullopt when the
/// value is of another kind, is out of range of the result, or is an array.
class Value {
 public:
  ValueType type() const { return type_; }
  bool is_array() const { return type_ == ValueType::kArray; }

  std::optional<uint64_t> as_uint() const;         // any non-negative integer, or bool as 0/1
  std::optional<int64_t> as_int() const;           // any integer, or bool
  std::optional<double> as_float() const;          // any float or integer
  std::optional<bool> as_bool() const;             // bool, or integer 0/1
  std::optional<std::string_view> as_string() const;

  ValueType element_type() const { return element_type_; }  // of an array
  size_t size() const { return size_; }                     // elements of an array; 1 otherwise
  /// Elements as scalars by the same conversion rules; i < size(). A scalar is read as an array of one.
  std::optional<int64_t> int_at(size_t i) const;
  std::optional<double> float_at(size_t i) const;
  std::optional<std::string_view> string_at(size_t i) const;
  std::span<const std::string_view> strings() const;  // empty unless an array of strings

 private:
  friend class Parser;
  ValueType type_ = ValueType::kUint8;
  ValueType element_type_ = ValueType::kUint8;
  size_t size_ = 1;
  const std::byte* payload_ = nullptr;     // scalar or packed elements, unaligned, little-endian
  std::string_view string_;                // of a string
  std::vector<std::string_view> strings_;  // of an array of strings
};

class Metadata {
 public:
  struct Entry {
    std::string_view key;
    Value value;
  };

  const Value* find(std::string_view key) const;  // null if absent
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  std::span<const Entry> entries() const { return entries_; }  // in file order

  // Required values: an error that names the key if it is absent or of another kind.
  Result<uint64_t> require_uint(std::string_view key) const;
  Result<double> require_float(std::string_view key) const;
  Result<std::string_view> require_string(std::string_view key) const;

  // Optional values: `fallback` if the key is absent; an error if it is there but of another kind.
  Result<uint64_t> get_uint(std::string_view key, uint64_t fallback) const;
  Result<double> get_float(std::string_view key, double fallback) const;
  Result<bool> get_bool(std::string_view key, bool fallback) const;
  Result<std::string_view> get_string(std::string_view key, std::string_view fallback) const;

 private:
  friend class Parser;
  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, size_t> index_;
};

}  // namespace honeycrisp::gguf
