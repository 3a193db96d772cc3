#include "gguf/parser.h"

#include "base/checked.h"
#include "base/text_escape.h"
#include "base/utf8.h"

#include <algorithm>
#include <bit>

namespace honeycrisp::gguf {
namespace {

/// How much of a file's own text a message repeats.
constexpr size_t kShownBytes = 100;
/// Records reserved before any has been read; more are allocated as the file proves to hold them.
constexpr uint64_t kReservedRecords = 1024;

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Version 3 is 0x03000000 to a reader of the other byte order; real versions are small numbers.
bool is_byte_swapped(uint32_t version) { return version != 0 && (version & 0xFFFF) == 0; }

}  // namespace

Result<Header> parse(std::span<const std::byte> bytes, const std::string& name) { return Parser(bytes, name).run(); }

Parser::Parser(std::span<const std::byte> bytes, const std::string& name)
    : bytes_(bytes), cursor_(bytes), metadata_(header_.metadata) {
  metadata_.source_ = escape_for_display(name);
}

Result<Header> Parser::run() {
  HC_TRY(read_preamble());
  HC_TRY(read_metadata());
  HC_TRY(read_alignment());
  HC_TRY(read_tensors());
  return std::move(header_);
}

std::string Parser::context() const {
  if (record_kind_.empty()) return {};
  return fmt::format("{} '{}': ", record_kind_, escape_for_display(record_name_, kShownBytes));
}

tl::unexpected<Error> Parser::truncated(std::string_view what) const {
  return bad("the file ends inside {}, at byte {}", what, bytes_.size());
}

Result<void> Parser::read_preamble() {
  if (bytes_.empty()) return bad("the file is empty");
  const std::string_view magic = as_text(bytes_.first(std::min<size_t>(4, bytes_.size())));
  if (magic == "FUGG") return unsupported("{}: a big-endian file, only little-endian is read", metadata_.source());
  if (magic != "GGUF") return bad("not a GGUF file, it begins with '{}' instead of 'GGUF'", escape_for_display(magic));
  cursor_.take(4);
  if (!cursor_.read(header_.version)) return truncated("the version");
  if (is_byte_swapped(header_.version))
    return unsupported("{}: a big-endian file, only little-endian is read", metadata_.source());
  if (header_.version < kMinVersion || header_.version > kMaxVersion)
    return unsupported("{}: GGUF version {} is not supported, only {} and {} are", metadata_.source(), header_.version,
                       kMinVersion, kMaxVersion);
  if (!cursor_.read(n_tensors_)) return truncated("the number of tensors");
  if (!cursor_.read(n_key_values_)) return truncated("the number of keys");
  HC_TRY(check_count("keys", n_key_values_, kMaxKeyValues, kMinKeyValueBytes));
  return check_count("tensors", n_tensors_, kMaxTensors, kMinTensorBytes);
}

Result<void> Parser::check_count(std::string_view what, uint64_t count, uint64_t limit, uint64_t least_bytes) const {
  if (count > cursor_.left() / least_bytes)
    return bad("{} {} are declared, but only {} bytes are left", count, what, cursor_.left());
  if (count > limit) return bad("{} {} are declared, at most {} are supported", count, what, limit);
  return {};
}

Result<std::string_view> Parser::read_name(std::string_view what, uint64_t number) {
  uint64_t size = 0;
  if (!cursor_.read(size)) return truncated(fmt::format("the name of {} {}", what, number));
  if (size == 0) return bad("the name of {} {} is empty", what, number);
  if (size > kMaxNameBytes)
    return bad("the name of {} {} has {} bytes, at most {} are allowed", what, number, size, kMaxNameBytes);
  if (size > cursor_.left())
    return bad("the name of {} {} has {} bytes, but only {} are left", what, number, size, cursor_.left());
  const std::string_view name = as_text(cursor_.take(size));
  // Names become JSON keys and C strings, where neither of these could be kept.
  if (name.find('\0') != name.npos || !is_valid_utf8(name))
    return bad("the name of {} {} is not valid UTF-8 without NUL: '{}'", what, number,
               escape_for_display(name, kShownBytes));
  return name;
}

Result<void> Parser::read_metadata() {
  metadata_.entries_.reserve(std::min(n_key_values_, kReservedRecords));
  for (uint64_t i = 0; i < n_key_values_; ++i) HC_TRY(read_key_value(i));
  for (const Metadata::Entry& entry : metadata_.entries_) metadata_.index_.add(entry.key);
  metadata_.index_.sort();
  if (const auto twice = metadata_.index_.find_duplicate())
    return bad("key '{}' occurs twice", escape_for_display(metadata_.entries_[twice->first].key, kShownBytes));
  return {};
}

Result<void> Parser::read_key_value(uint64_t number) {
  Metadata::Entry entry;
  HC_ASSIGN(entry.key, read_name("key", number));
  record_kind_ = "key", record_name_ = entry.key;
  HC_TRY(read_value(entry.value));
  record_kind_ = {};
  metadata_.entries_.push_back(std::move(entry));
  return {};
}

Result<void> Parser::read_value(Value& value) {
  uint32_t id = 0;
  if (!cursor_.read(id)) return truncated("its type");
  const std::optional<ValueType> type = value_type_from_id(id);
  if (!type) return bad("unknown value type {}", id);
  value.type_ = value.element_type_ = *type;
  if (*type == ValueType::kArray) return read_array(value);
  if (*type == ValueType::kString) return read_strings(value, 1);
  if (cursor_.left() < scalar_bytes(*type)) return truncated("its value");
  value.payload_ = cursor_.take(scalar_bytes(*type));
  if (*type == ValueType::kBool && *value.uint_at(0) > 1) return bad("bool is {}, not 0 or 1", *value.uint_at(0));
  return {};
}

Result<void> Parser::read_array(Value& value) {
  uint32_t id = 0;
  uint64_t count = 0;
  if (!cursor_.read(id)) return truncated("its element type");
  const std::optional<ValueType> type = value_type_from_id(id);
  if (!type) return bad("unknown element type {}", id);
  if (*type == ValueType::kArray) return bad("arrays of arrays are not supported");
  if (!cursor_.read(count)) return truncated("its number of elements");
  value.element_type_ = *type;
  const uint64_t least_bytes = *type == ValueType::kString ? kMinStringBytes : scalar_bytes(*type);
  if (count > cursor_.left() / least_bytes)
    return bad("an array of {} elements, but only {} bytes are left", count, cursor_.left());
  value.size_ = count;
  if (*type == ValueType::kString) return read_strings(value, count);
  value.payload_ = cursor_.take(count * least_bytes);
  if (*type == ValueType::kBool) {
    const auto is_bool = [](std::byte b) { return b <= std::byte{1}; };
    const auto wrong = std::find_if_not(value.payload_.begin(), value.payload_.end(), is_bool);
    if (wrong != value.payload_.end())
      return bad("bool {} is {}, not 0 or 1", wrong - value.payload_.begin(), unsigned(*wrong));
  }
  return {};
}

Result<void> Parser::read_strings(Value& value, uint64_t count) {
  value.strings_.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t size = 0;
    if (!cursor_.read(size)) return truncated(fmt::format("string {}", i));
    if (size > cursor_.left()) return bad("string {} has {} bytes, but only {} are left", i, size, cursor_.left());
    value.strings_.push_back(as_text(cursor_.take(size)));
  }
  return {};
}

Result<void> Parser::read_alignment() {
  const Value* value = metadata_.find(kAlignmentKey);
  if (value == nullptr) return {};
  if (value->type() != ValueType::kUint32)
    return bad("{} must be uint32, but is {}", kAlignmentKey, to_string(value->type()));
  const uint64_t alignment = *value->as_uint();
  if (!std::has_single_bit(alignment) || alignment < kMinAlignment || alignment > kMaxAlignment)
    return bad("{} is {}, but must be a power of two from {} to {}", kAlignmentKey, alignment, kMinAlignment,
               kMaxAlignment);
  header_.alignment = alignment;
  return {};
}

Result<void> Parser::read_tensors() {
  header_.tensors.reserve(std::min(n_tensors_, kReservedRecords));
  for (uint64_t i = 0; i < n_tensors_; ++i) HC_TRY(read_tensor(i));
  NameIndex names;
  for (const Tensor& tensor : header_.tensors) names.add(tensor.name);
  names.sort();
  if (const auto twice = names.find_duplicate())
    return bad("tensor '{}' occurs twice", escape_for_display(header_.tensors[twice->first].name, kShownBytes));

  header_.data_offset = round_up(cursor_.position(), header_.alignment);
  for (Tensor& tensor : header_.tensors) HC_TRY(place_tensor(tensor));
  return check_overlaps();
}

Result<void> Parser::read_tensor(uint64_t number) {
  Tensor tensor;
  HC_ASSIGN(tensor.name, read_name("tensor", number));
  record_kind_ = "tensor", record_name_ = tensor.name;
  if (!cursor_.read(tensor.n_dims)) return truncated("its number of dimensions");
  if (tensor.n_dims > kMaxDims) return bad("{} dimensions, at most {} are supported", tensor.n_dims, kMaxDims);
  for (uint32_t d = 0; d < tensor.n_dims; ++d) {
    if (!cursor_.read(tensor.dims[d])) return truncated("its dimensions");
    if (tensor.dims[d] == 0 || tensor.dims[d] > kMaxDim)
      return bad("dimension {} is {}, outside of 1..{}", d, tensor.dims[d], kMaxDim);
  }
  HC_TRY(read_extent(tensor));
  record_kind_ = {};
  header_.tensors.push_back(tensor);
  return {};
}

/// Element type and offset, and the bytes that follow from type and dimensions.
Result<void> Parser::read_extent(Tensor& tensor) {
  uint32_t id = 0;
  if (!cursor_.read(id)) return truncated("its element type");
  if (!cursor_.read(tensor.file_offset)) return truncated("its offset");
  const std::optional<quant::Format> format = quant::format_from_id(id);
  if (!format) return unsupported("{}: {}unknown element type {}", metadata_.source(), context(), id);
  tensor.format = *format;
  const quant::FormatInfo& info = quant::info(*format);
  if (tensor.dims[0] % info.block_elements != 0)
    return bad("a row of {} elements is not a multiple of the {} of a {} block", tensor.dims[0], info.block_elements,
               info.name);
  std::optional<uint64_t> elements = tensor.dims[0];
  // A row fits: at most 2^40 elements of at most 8 bytes.
  std::optional<uint64_t> bytes = quant::row_bytes(*format, tensor.dims[0]);
  for (size_t d = 1; d < kMaxDims; ++d) {
    if (elements) elements = checked_mul(*elements, tensor.dims[d]);
    if (bytes) bytes = checked_mul(*bytes, tensor.dims[d]);
  }
  if (!elements || !bytes)
    return bad("its dimensions {} x {} x {} x {} overflow", tensor.dims[0], tensor.dims[1], tensor.dims[2],
               tensor.dims[3]);
  tensor.bytes = *bytes;
  return {};
}

/// From an offset in the data section to one in the file, once the section is known and the extent fits in it.
Result<void> Parser::place_tensor(Tensor& tensor) {
  const uint64_t offset = tensor.file_offset;
  const uint64_t available = bytes_.size() - std::min<uint64_t>(header_.data_offset, bytes_.size());
  record_kind_ = "tensor", record_name_ = tensor.name;
  if (offset % header_.alignment != 0)
    return bad("offset {} is not a multiple of the alignment {}", offset, header_.alignment);
  if (offset > available || tensor.bytes > available - offset)
    return bad("{} bytes at offset {} of the data section pass its end: the file has {} bytes, data begins at {}",
               tensor.bytes, offset, bytes_.size(), header_.data_offset);
  tensor.file_offset = header_.data_offset + offset;
  tensor.data = bytes_.data() + tensor.file_offset;
  record_kind_ = {};
  return {};
}

Result<void> Parser::check_overlaps() const {
  std::vector<const Tensor*> by_offset;
  by_offset.reserve(header_.tensors.size());
  for (const Tensor& tensor : header_.tensors) by_offset.push_back(&tensor);
  std::sort(by_offset.begin(), by_offset.end(),
            [](const Tensor* a, const Tensor* b) { return a->file_offset < b->file_offset; });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const Tensor &before = *by_offset[i - 1], &tensor = *by_offset[i];
    if (tensor.file_offset - before.file_offset < before.bytes)
      return bad("tensors '{}' and '{}' overlap at byte {}", escape_for_display(before.name, kShownBytes),
                 escape_for_display(tensor.name, kShownBytes), tensor.file_offset);
  }
  return {};
}

}  // namespace honeycrisp::gguf
