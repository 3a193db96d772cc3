// One GGUF file's bytes to a Header, in one pass. Owns every check of a single file; siblings are file.cpp's matter.
// Nothing is allocated for a count before the bytes left in the file could hold that many records, and there is no
// recursion: arrays of arrays are refused.
#pragma once

#include "base/result.h"
#include "gguf/file.h"

#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace honeycrisp::gguf {

/// The bytes not read yet. Nothing is consumed by a read that fails.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : all_(bytes), rest_(bytes) {}
  uint64_t left() const { return rest_.size(); }
  uint64_t position() const { return all_.size() - rest_.size(); }

  template <class T>
  bool read(T& value) {
    if (rest_.size() < sizeof value) return false;
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_ = rest_.subspan(sizeof value);
    return true;
  }
  /// Requires size <= left().
  std::span<const std::byte> take(size_t size) {
    const std::span<const std::byte> taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }

 private:
  std::span<const std::byte> all_, rest_;
};

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& name);
  Result<Header> run();

 private:
  Result<void> read_preamble();
  Result<void> check_count(std::string_view what, uint64_t count, uint64_t limit, uint64_t least_bytes) const;
  Result<void> read_metadata();
  Result<void> read_key_value(uint64_t number);
  Result<void> read_value(Value& value);
  Result<void> read_array(Value& value);
  Result<void> read_strings(Value& value, uint64_t count);
  Result<void> read_alignment();
  Result<void> read_tensors();
  Result<void> read_tensor(uint64_t number);
  Result<void> read_extent(Tensor& tensor);
  Result<void> place_tensor(Tensor& tensor);
  Result<void> check_overlaps() const;
  Result<std::string_view> read_name(std::string_view what, uint64_t number);

  /// An error that begins with the file and the record at hand.
  template <class... A>
  tl::unexpected<Error> bad(fmt::format_string<A...> f, A&&... args) const {
    return fail(ErrorCode::kInvalidInput, "{}: {}{}", header_.metadata.source(), context(),
                fmt::format(f, std::forward<A>(args)...));
  }
  tl::unexpected<Error> truncated(std::string_view what) const;
  std::string context() const;

  std::span<const std::byte> bytes_;
  Cursor cursor_;
  Header header_;
  Metadata& metadata_;
  uint64_t n_tensors_ = 0, n_key_values_ = 0;
  // what messages say the fault is in: "tensor 'x': " or "key 'y': "
  std::string_view record_kind_, record_name_;
};

}  // namespace honeycrisp::gguf
