#include "text/jinja/text.h"

#include "base/utf8.h"

#include <algorithm>

namespace honeycrisp::text::jinja {
namespace {

size_t count_code_points(std::string_view bytes) {
  size_t count = 0;
  for (size_t i = 0; i < bytes.size(); ++count) i += code_point_size(bytes, i);
  return count;
}

}  // namespace

size_t code_point_size(std::string_view bytes, size_t at) {
  return static_cast<unsigned char>(bytes[at]) < 0x80 ? 1 : decode_utf8(bytes, at).length;
}

Text::Text(std::string bytes, std::vector<ByteRange> input, bool is_markup)
    : bytes_(std::move(bytes)), input_(std::move(input)), length_(count_code_points(bytes_)), is_markup_(is_markup) {}

size_t Text::offset_of(size_t index) const {
  if (index >= length_) return bytes_.size();
  if (is_ascii()) return index;
  size_t offset = 0;
  for (; index > 0; --index) offset += code_point_size(bytes_, offset);
  return offset;
}

size_t Text::index_of(size_t offset) const {
  return is_ascii() ? offset : count_code_points(std::string_view(bytes_).substr(0, offset));
}

void TextBuilder::mark(size_t begin, size_t end) {
  if (begin == end) return;
  if (!input_.empty() && input_.back().end == begin) {
    input_.back().end = end;
  } else {
    input_.push_back({begin, end});
  }
}

void TextBuilder::append(const Text& text, size_t begin, size_t end) {
  budget_.text(end - begin);
  const size_t base = bytes_.size();
  bytes_.append(text.bytes(), begin, end - begin);
  const auto& ranges = text.input();
  auto range = std::partition_point(ranges.begin(), ranges.end(), [&](const ByteRange& r) { return r.end <= begin; });
  for (; range != ranges.end() && range->begin < end; ++range) {
    mark(base + std::max(range->begin, begin) - begin, base + std::min(range->end, end) - begin);
  }
}

void TextBuilder::append(std::string_view bytes, bool is_input) {
  budget_.text(bytes.size());
  const size_t base = bytes_.size();
  bytes_.append(bytes);
  if (is_input) mark(base, bytes_.size());
}

void TextBuilder::append_repeated(std::string_view bytes, size_t count) {
  if (bytes.empty() || count == 0) return;
  if (count > SIZE_MAX / bytes.size()) raise_exhausted("text");
  budget_.text(bytes.size() * count);
  bytes_.reserve(bytes_.size() + bytes.size() * count);
  for (; count > 0; --count) bytes_.append(bytes);
}

TextPtr TextBuilder::finish(bool is_markup) {
  return std::make_shared<const Text>(std::move(bytes_), std::move(input_), is_markup);
}

TextPtr slice_text(Budget& budget, const TextPtr& text, size_t begin, size_t end) {
  if (begin == 0 && end == text->size()) return text;
  TextBuilder out(budget);
  out.append(*text, begin, std::max(begin, end));
  return out.finish(text->is_markup());
}

}  // namespace honeycrisp::text::jinja
