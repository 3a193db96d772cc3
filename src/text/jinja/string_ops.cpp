#include "text/jinja/string_ops.h"

#include "base/utf8.h"
#include "text/jinja/escape.h"
#include "text/jinja/unicode.h"

#include <algorithm>
#include <string.h>  // memmem: POSIX 2024, not in <cstring>'s std

namespace honeycrisp::text::jinja {
namespace {

/// The code point that ends at `end`, and where it begins.
std::pair<char32_t, size_t> code_point_before(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  const Utf8Char c = decode_utf8(text, begin);
  if (c.valid && begin + c.length == end) return {c.code_point, begin};
  return {decode_utf8(text, end - 1).code_point, end - 1};
}

bool has_code_point(std::string_view set, std::string_view bytes_of_one) {
  for (size_t i = 0; i < set.size();) {
    const size_t size = code_point_size(set, i);
    if (set.substr(i, size) == bytes_of_one) return true;
    i += size;
  }
  return false;
}

size_t skip_spaces(std::string_view text, size_t from) {
  while (from < text.size()) {
    const Utf8Char c = decode_utf8(text, from);
    if (!is_space(c.code_point)) break;
    from += c.length;
  }
  return from;
}

size_t skip_non_spaces(std::string_view text, size_t from) {
  while (from < text.size()) {
    const Utf8Char c = decode_utf8(text, from);
    if (is_space(c.code_point)) break;
    from += c.length;
  }
  return from;
}

Value piece(Runtime& runtime, const TextPtr& text, size_t begin, size_t end) {
  runtime.budget().elements(1);
  return slice_text(runtime.budget(), text, begin, end);
}

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

bool is_word_delimiter(char32_t c) {
  return c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos;
}

/// Greek capital sigma becomes the final form after a letter and before none.
bool is_final_sigma(std::string_view text, size_t at) {
  const size_t after = at + 2;
  const bool follows_letter = at > 0 && is_cased(code_point_before(text, at).first);
  return follows_letter && (after >= text.size() || !is_cased(decode_utf8(text, after).code_point));
}

}  // namespace

size_t find_bytes(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return found == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

std::string_view strip_spaces(std::string_view text) {
  text = trim_right(text);
  return text.substr(skip_spaces(text, 0));
}

TextPtr strip(Runtime& runtime, const TextPtr& text, Side side, const Text* characters) {
  const std::string_view bytes = text->bytes();
  const auto is_stripped = [&](char32_t c, size_t at, size_t size) {
    if (characters == nullptr) return is_space(c);
    runtime.budget().step(characters->size() / 16 + 1);
    return has_code_point(characters->bytes(), bytes.substr(at, size));
  };
  size_t begin = 0, end = bytes.size();
  if (side != Side::kRight) {
    while (begin < end) {
      const Utf8Char c = decode_utf8(bytes, begin);
      if (!is_stripped(c.code_point, begin, c.length)) break;
      begin += c.length;
    }
  }
  if (side != Side::kLeft) {
    while (end > begin) {
      const auto [c, at] = code_point_before(bytes, end);
      if (!is_stripped(c, at, end - at)) break;
      end = at;
    }
  }
  runtime.budget().step((begin + (bytes.size() - end)) / 16 + 1);
  return slice_text(runtime.budget(), text, begin, end);
}

std::vector<Value> split(Runtime& runtime, const TextPtr& text, const Text* separator, int64_t limit) {
  const std::string_view bytes = text->bytes();
  std::vector<Value> pieces;
  const auto may_split = [&] { return limit < 0 || static_cast<int64_t>(pieces.size()) < limit; };
  if (separator == nullptr) {
    for (size_t at = skip_spaces(bytes, 0); at < bytes.size();) {
      const size_t end = may_split() ? skip_non_spaces(bytes, at) : bytes.size();
      pieces.push_back(piece(runtime, text, at, end));
      at = skip_spaces(bytes, end);
    }
    return pieces;
  }
  if (separator->size() == 0) raise("empty separator");
  size_t at = 0;
  while (may_split()) {
    const size_t found = find_bytes(bytes, separator->bytes(), at);
    if (found == std::string_view::npos) break;
    pieces.push_back(piece(runtime, text, at, found));
    at = found + separator->size();
  }
  pieces.push_back(piece(runtime, text, at, bytes.size()));
  return pieces;
}

std::vector<Value> split_from_right(Runtime& runtime, const TextPtr& text, const Text* separator, int64_t limit) {
  if (limit < 0 && separator == nullptr) return split(runtime, text, separator, limit);
  const std::string_view bytes = text->bytes();
  std::vector<Value> pieces;  // last first
  const auto may_split = [&] { return limit < 0 || static_cast<int64_t>(pieces.size()) < limit; };
  if (separator == nullptr) {
    for (size_t end = trim_right(bytes).size(); end > 0;) {
      size_t begin = may_split() ? end : 0;
      while (begin > 0 && !is_space(code_point_before(bytes, begin).first)) {
        begin = code_point_before(bytes, begin).second;
      }
      pieces.push_back(piece(runtime, text, begin, end));
      end = trim_right(bytes.substr(0, begin)).size();
    }
  } else {
    if (separator->size() == 0) raise("empty separator");
    runtime.budget().step(bytes.size() / 16 * separator->size());  // rfind compares the whole separator everywhere
    size_t end = bytes.size();
    while (may_split() && end >= separator->size()) {
      const size_t found = bytes.rfind(separator->bytes(), end - separator->size());
      if (found == std::string_view::npos) break;
      pieces.push_back(piece(runtime, text, found + separator->size(), end));
      end = found;
    }
    pieces.push_back(piece(runtime, text, 0, end));
  }
  std::ranges::reverse(pieces);
  return pieces;
}

std::vector<Value> split_lines(Runtime& runtime, const TextPtr& text, bool keeps_ends) {
  const std::string_view bytes = text->bytes();
  std::vector<Value> lines;
  size_t begin = 0;
  for (size_t i = 0; i < bytes.size();) {
    const Utf8Char c = decode_utf8(bytes, i);
    size_t next = i + c.length;
    if (is_line_break(c.code_point)) {
      if (c.code_point == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
      lines.push_back(piece(runtime, text, begin, keeps_ends ? next : i));
      begin = next;
    }
    i = next;
  }
  if (begin < bytes.size()) lines.push_back(piece(runtime, text, begin, bytes.size()));
  return lines;
}

TextPtr replace(Runtime& runtime, const TextPtr& text, const Text& old_text, const Text& new_text, int64_t count) {
  const std::string_view bytes = text->bytes();
  const bool escapes = text->is_markup() && !new_text.is_markup();
  TextBuilder out(runtime.budget());
  const auto append_new = [&] { escapes ? append_escaped(out, new_text) : out.append(new_text); };
  size_t at = 0;
  if (old_text.size() == 0) {  // between all characters, and at both ends
    for (; count != 0; --count) {
      append_new();
      if (at == bytes.size()) break;
      const size_t size = code_point_size(bytes, at);
      out.append(*text, at, at + size);
      at += size;
    }
  } else {
    for (; count != 0; --count) {
      const size_t found = find_bytes(bytes, old_text.bytes(), at);
      if (found == std::string_view::npos) break;
      out.append(*text, at, found);
      append_new();
      at = found + old_text.size();
    }
    if (at == 0) return text;
  }
  out.append(*text, at, bytes.size());
  return out.finish(text->is_markup());
}

TextPtr change_case(Runtime& runtime, const TextPtr& text, Case mode) {
  const std::string_view bytes = text->bytes();
  TextBuilder out(runtime.budget());
  MarkCursor marks(*text);
  std::string run;  // of equal marks, so that the builder is not called per character
  bool run_is_input = false, follows_cased = false, follows_delimiter = true;
  const auto flush = [&] {
    out.append(run, run_is_input);
    run.clear();
  };
  for (size_t i = 0; i < bytes.size();) {
    const Utf8Char c = decode_utf8(bytes, i);
    const bool is_input = marks.is_input(i);
    if (is_input != run_is_input || run.size() > 4096) flush();
    run_is_input = is_input;
    const bool starts_word = mode == Case::kCapitalize ? i == 0
                             : mode == Case::kTitle    ? !follows_cased
                                                       : mode == Case::kWords && follows_delimiter;
    const bool lowers = mode == Case::kSwap ? is_upper(c.code_point) : mode != Case::kUpper;
    if (!c.valid) {
      run += bytes[i];
    } else if (starts_word) {
      mode == Case::kWords ? append_upper(run, c.code_point) : append_title(run, c.code_point);
    } else if (lowers) {
      append_lower(run, c.code_point == 0x03A3 && is_final_sigma(bytes, i) ? char32_t{0x03C2} : c.code_point);
    } else if (mode == Case::kUpper || is_lower(c.code_point)) {
      append_upper(run, c.code_point);
    } else {
      run += bytes.substr(i, c.length);
    }
    follows_cased = is_cased(c.code_point);
    follows_delimiter = is_space(c.code_point) || is_word_delimiter(c.code_point);
    i += c.length;
  }
  flush();
  return out.finish(text->is_markup());
}

TextPtr pad(Runtime& runtime, const TextPtr& text, int64_t width, Align align, const Text& fill) {
  if (fill.length() != 1) raise("The fill character must be exactly one character long");
  const auto length = static_cast<int64_t>(text->length());
  if (width <= length) return text;
  const int64_t missing = width - length;
  // Python's center puts the odd space to the left if the width is odd.
  const int64_t left = align == Align::kLeft    ? 0
                       : align == Align::kRight ? missing
                                                : missing / 2 + (missing & width & 1);
  TextBuilder out(runtime.budget());
  out.append_repeated(fill.bytes(), static_cast<size_t>(left));
  out.append(*text);
  out.append_repeated(fill.bytes(), static_cast<size_t>(missing - left));
  return out.finish(text->is_markup());
}

}  // namespace honeycrisp::text::jinja
