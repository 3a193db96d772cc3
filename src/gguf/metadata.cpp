#include "gguf/metadata.h"

#include "base/text_escape.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

namespace honeycrisp::gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF payloads are used in place and are little-endian");

struct TypeInfo {
  std::string_view name;
  uint8_t bytes;
};
constexpr std::array<TypeInfo, 13> kTypes = {{
    {"uint8", 1},
    {"int8", 1},
    {"uint16", 2},
    {"int16", 2},
    {"uint32", 4},
    {"int32", 4},
    {"float32", 4},
    {"bool", 1},
    {"string", 0},
    {"array", 0},
    {"uint64", 8},
    {"int64", 8},
    {"float64", 8},
}};

template <class T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

/// Calls `use` with the scalar at `p`, widened to uint64_t, int64_t or double; nullopt for strings and arrays.
template <class R, class F>
std::optional<R> visit_scalar(ValueType type, const std::byte* p, F&& use) {
  switch (type) {
    case ValueType::kUint8:
    case ValueType::kBool: return use(uint64_t{load<uint8_t>(p)});
    case ValueType::kInt8: return use(int64_t{load<int8_t>(p)});
    case ValueType::kUint16: return use(uint64_t{load<uint16_t>(p)});
    case ValueType::kInt16: return use(int64_t{load<int16_t>(p)});
    case ValueType::kUint32: return use(uint64_t{load<uint32_t>(p)});
    case ValueType::kInt32: return use(int64_t{load<int32_t>(p)});
    case ValueType::kUint64: return use(load<uint64_t>(p));
    case ValueType::kInt64: return use(load<int64_t>(p));
    case ValueType::kFloat32: return use(double{load<float>(p)});
    case ValueType::kFloat64: return use(load<double>(p));
    case ValueType::kString:
    case ValueType::kArray: break;
  }
  return std::nullopt;
}

/// An integer that fits I; nullopt for floats.
template <class I>
constexpr auto kToInteger = [](auto v) -> std::optional<I> {
  if constexpr (std::is_integral_v<decltype(v)>) {
    if (std::in_range<I>(v)) return static_cast<I>(v);
  }
  return std::nullopt;
};

std::string_view kind_name(const Value& value) { return to_string(value.type()); }

}  // namespace

std::string_view to_string(ValueType type) {
  const auto id = size_t(type);
  return id < kTypes.size() ? kTypes[id].name : "unknown";
}

std::optional<ValueType> value_type_from_id(uint32_t id) {
  if (id >= kTypes.size()) return std::nullopt;
  return ValueType(id);
}

size_t scalar_bytes(ValueType type) { return kTypes[size_t(type)].bytes; }

std::optional<uint64_t> Value::uint_at(size_t i) const {
  if (i >= size_) return std::nullopt;
  return visit_scalar<uint64_t>(element_type_, payload_.data() + i * scalar_bytes(element_type_), kToInteger<uint64_t>);
}

std::optional<int64_t> Value::int_at(size_t i) const {
  if (i >= size_) return std::nullopt;
  return visit_scalar<int64_t>(element_type_, payload_.data() + i * scalar_bytes(element_type_), kToInteger<int64_t>);
}

std::optional<double> Value::float_at(size_t i) const {
  if (i >= size_) return std::nullopt;
  return visit_scalar<double>(element_type_, payload_.data() + i * scalar_bytes(element_type_),
                              [](auto v) -> std::optional<double> { return double(v); });
}

std::optional<std::string_view> Value::string_at(size_t i) const {
  if (i >= strings_.size()) return std::nullopt;
  return strings_[i];
}

std::optional<uint64_t> Value::as_uint() const { return is_array() ? std::nullopt : uint_at(0); }
std::optional<int64_t> Value::as_int() const { return is_array() ? std::nullopt : int_at(0); }
std::optional<double> Value::as_float() const { return is_array() ? std::nullopt : float_at(0); }
std::optional<bool> Value::as_bool() const {
  const std::optional<uint64_t> v = as_uint();
  if (!v || *v > 1) return std::nullopt;
  return *v == 1;
}
std::optional<std::string_view> Value::as_string() const { return is_array() ? std::nullopt : string_at(0); }

const Value* Metadata::find(std::string_view key) const {
  const std::optional<size_t> position = index_.find(key);
  return position ? &entries_[*position].value : nullptr;
}

namespace {

/// The value of `key` through `read`; `fallback` (or an error, if there is none) when the key is absent.
template <class T>
Result<T> read_key(const Metadata& metadata, std::string_view key, std::optional<T> (Value::*read)() const,
                   std::string_view wanted, const std::optional<T>& fallback) {
  const Value* value = metadata.find(key);
  if (value == nullptr) {
    if (fallback) return *fallback;
    return invalid("{}: key '{}' is missing", metadata.source(), escape_for_display(key));
  }
  const std::optional<T> result = (value->*read)();
  if (!result)
    return invalid(
        "{}: key '{}' must be {}, but is {}{}", metadata.source(), escape_for_display(key), wanted,
        value->as_int() ? "the " : "of type ",
        value->as_int() ? fmt::format("{} {}", kind_name(*value), *value->as_int()) : std::string(kind_name(*value)));
  return *result;
}

constexpr std::string_view kUint = "a non-negative integer", kFloat = "a number", kBool = "a bool", kText = "a string";

}  // namespace

Result<uint64_t> Metadata::require_uint(std::string_view key) const {
  return read_key<uint64_t>(*this, key, &Value::as_uint, kUint, std::nullopt);
}
Result<double> Metadata::require_float(std::string_view key) const {
  return read_key<double>(*this, key, &Value::as_float, kFloat, std::nullopt);
}
Result<std::string_view> Metadata::require_string(std::string_view key) const {
  return read_key<std::string_view>(*this, key, &Value::as_string, kText, std::nullopt);
}
Result<uint64_t> Metadata::get_uint(std::string_view key, uint64_t fallback) const {
  return read_key<uint64_t>(*this, key, &Value::as_uint, kUint, fallback);
}
Result<double> Metadata::get_float(std::string_view key, double fallback) const {
  return read_key<double>(*this, key, &Value::as_float, kFloat, fallback);
}
Result<bool> Metadata::get_bool(std::string_view key, bool fallback) const {
  return read_key<bool>(*this, key, &Value::as_bool, kBool, fallback);
}
Result<std::string_view> Metadata::get_string(std::string_view key, std::string_view fallback) const {
  return read_key<std::string_view>(*this, key, &Value::as_string, kText, fallback);
}

}  // namespace honeycrisp::gguf
