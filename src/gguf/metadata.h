// Typed, read-only view of a GGUF file's key/value section. Strings and array payloads point into the file's bytes:
// a Metadata must not outlive the File (or the buffer) it came from. Filled by the parser only, which has checked
// every length and every bool; keys are unique, valid UTF-8 and free of NUL, string values are any bytes at all.
// Knows nothing of what a key means.
#pragma once

#include "base/result.h"
#include "gguf/name_index.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace honeycrisp::gguf {

/// Type ids of the GGUF format.
enum class ValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};
/// "uint8", "string", "array", …
std::string_view to_string(ValueType type);
/// The type of an id read from a file; nullopt if there is none.
std::optional<ValueType> value_type_from_id(uint32_t id);
/// Bytes of one scalar in a file; 0 for strings and arrays, whose length varies.
size_t scalar_bytes(ValueType type);

/// A scalar, string or one-dimensional array. The as_* readers convert between widths and return nullopt when the
/// value is of another kind, is out of range of the result, or is an array.
class Value {
 public:
  ValueType type() const { return type_; }
  bool is_array() const { return type_ == ValueType::kArray; }

  std::optional<uint64_t> as_uint() const;  // any non-negative integer, or bool as 0/1
  std::optional<int64_t> as_int() const;    // any integer, or bool
  std::optional<double> as_float() const;   // any float or integer
  std::optional<bool> as_bool() const;      // bool, or integer 0/1
  std::optional<std::string_view> as_string() const;

  ValueType element_type() const { return element_type_; }  // of an array; type() otherwise
  size_t size() const { return size_; }                     // elements of an array; 1 otherwise
  /// Elements by the same conversion rules; nullopt if i >= size(). A scalar is read as an array of one.
  std::optional<uint64_t> uint_at(size_t i) const;
  std::optional<int64_t> int_at(size_t i) const;
  std::optional<double> float_at(size_t i) const;
  std::optional<std::string_view> string_at(size_t i) const;
  /// Empty unless a string or an array of strings.
  std::span<const std::string_view> strings() const { return strings_; }

  /// The scalar, or the packed elements, little-endian and unaligned; empty for strings and arrays of them.
  std::span<const std::byte> payload() const { return payload_; }

 private:
  friend class Parser;
  ValueType type_ = ValueType::kUint8;
  ValueType element_type_ = ValueType::kUint8;
  size_t size_ = 1;
  std::span<const std::byte> payload_;
  std::vector<std::string_view> strings_;  // one for a string
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
  /// What messages call the file, made safe to show.
  const std::string& source() const { return source_; }

  // Required values: an error that names file and key if it is absent or of another kind.
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
  std::string source_;
  std::vector<Entry> entries_;
  NameIndex index_;
};

}  // namespace honeycrisp::gguf
