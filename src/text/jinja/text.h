// The strings of the template language: immutable UTF-8 with the byte ranges that came from the caller's input.
// Positions are bytes here; the language counts code points, and Text converts between the two. A malformed byte
// counts as one code point. Knows nothing of values or templates.
#pragma once

#include "text/jinja/budget.h"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace honeycrisp::text::jinja {

struct ByteRange {
  size_t begin, end;
};

class Text {
 public:
  /// `input`: sorted, disjoint, non-empty ranges of `bytes` that are input. `is_markup`: the string was declared safe
  /// HTML (filters safe and escape), which makes `+` and `%` escape their other operand.
  explicit Text(std::string bytes, std::vector<ByteRange> input = {}, bool is_markup = false);

  std::string_view bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  size_t length() const { return length_; }  // in code points
  bool is_ascii() const { return length_ == bytes_.size(); }
  bool is_markup() const { return is_markup_; }
  const std::vector<ByteRange>& input() const { return input_; }

  /// Byte offset of code point `index`; size() if index >= length().
  size_t offset_of(size_t index) const;
  /// Number of code points before byte `offset`.
  size_t index_of(size_t offset) const;

 private:
  std::string bytes_;
  std::vector<ByteRange> input_;
  size_t length_;
  bool is_markup_;
};
using TextPtr = std::shared_ptr<const Text>;

/// Bytes of the code point that starts at `at`, and the code point (U+FFFD if malformed).
size_t code_point_size(std::string_view bytes, size_t at);

/// Answers for ascending byte offsets whether they are input; amortised constant time.
class MarkCursor {
 public:
  explicit MarkCursor(const Text& text) : ranges_(text.input()) {}
  bool is_input(size_t offset) {
    while (next_ < ranges_.size() && ranges_[next_].end <= offset) ++next_;
    return next_ < ranges_.size() && ranges_[next_].begin <= offset;
  }

 private:
  const std::vector<ByteRange>& ranges_;
  size_t next_ = 0;
};

/// Puts a Text together from pieces, keeps their marks and pays the budget for them.
class TextBuilder {
 public:
  explicit TextBuilder(Budget& budget) : budget_(budget) {}

  void append(const Text& text) { append(text, 0, text.size()); }
  void append(const Text& text, size_t begin, size_t end);  // bytes
  void append(std::string_view bytes, bool is_input = false);
  void append_repeated(std::string_view bytes, size_t count);
  size_t size() const { return bytes_.size(); }
  const std::string& bytes() const { return bytes_; }
  const std::vector<ByteRange>& input() const { return input_; }

  TextPtr finish(bool is_markup = false);

 private:
  void mark(size_t begin, size_t end);

  Budget& budget_;
  std::string bytes_;
  std::vector<ByteRange> input_;
};

/// text[begin, end), with the marks and the markup flag; the same object if that is all of it.
TextPtr slice_text(Budget& budget, const TextPtr& text, size_t begin, size_t end);

}  // namespace honeycrisp::text::jinja
