#include "text/jinja/lexer.h"

#include "base/text_escape.h"
#include "base/utf8.h"
#include "text/jinja/budget.h"
#include "text/jinja/unicode.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace honeycrisp::text::jinja {
namespace {

/// \r\n and \r become \n; one newline at the very end is dropped, as Jinja does unless told otherwise.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_digit(char c, int base) {
  if (base == 16) return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  return c >= '0' && c < '0' + base;
}

int hex_value(char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; }

class Lexer {
 public:
  Lexer(std::string_view source, uint32_t& line) : source_(normalize_newlines(source)), line_(line) { line_ = 1; }

  std::vector<Token> run() {
    while (at_ < source_.size()) lex_text();
    add(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  bool starts_with(std::string_view text) const { return std::string_view(source_).substr(at_).starts_with(text); }
  char peek(size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }
  Token& add(TokenKind kind, std::string text = {}) {
    return tokens_.emplace_back(Token{kind, line_, std::move(text)});
  }

  void advance(size_t count) {
    line_ += static_cast<uint32_t>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                              source_.begin() + static_cast<ptrdiff_t>(at_ + count), '\n'));
    at_ += count;
    is_line_start_ = at_ > 0 && source_[at_ - 1] == '\n';
  }
  size_t space_end(size_t from) const {
    while (from < source_.size()) {
      const Utf8Char c = decode_utf8(source_, from);
      if (!is_space(c.code_point)) break;
      from += c.length;
    }
    return from;
  }

  /// Emits source_[at_, end) as text, cut as the sign of the tag that follows and lstrip_blocks want it.
  void emit_text(size_t end, char sign, bool is_variable) {
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    if (sign == '-') {
      text = trim_right(text);
    } else if (sign != '+' && !is_variable) {
      const size_t newline = text.rfind('\n');
      const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line_begin > 0 || is_line_start_) && space_end(at_ + line_begin) >= end) text = text.substr(0, line_begin);
    }
    if (!text.empty()) add(TokenKind::kText, std::string(text));
    advance(end - at_);
  }

  void lex_text() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        add(TokenKind::kText, source_.substr(at_));
        return advance(source_.size() - at_);
      }
      const char next = source_[tag + 1];
      if (next == '%' || next == '{' || next == '#') break;
    }
    const char type = source_[tag + 1];
    const char after = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const char sign = after == '-' || after == '+' ? after : '\0';
    emit_text(tag, sign, type == '{');
    if (type == '%') {
      if (const auto length = raw_begin_length()) return lex_raw(*length);
    }
    advance(sign == '\0' ? 2 : 3);
    if (type == '#') return lex_comment();
    add(type == '%' ? TokenKind::kBlockBegin : TokenKind::kVariableBegin);
    lex_tag(type == '%');
  }

  /// Length of `{% raw %}` here, with its signs and the space that `-%}` takes; it takes no newline otherwise.
  std::optional<size_t> raw_begin_length() const {
    size_t i = at_ + 2;
    if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) ++i;
    i = space_end(i);
    if (source_.compare(i, 3, "raw") != 0) return std::nullopt;
    i = space_end(i + 3);
    if (source_.compare(i, 3, "-%}") == 0) return space_end(i + 3) - at_;
    if (source_.compare(i, 2, "%}") == 0) return i + 2 - at_;
    return std::nullopt;
  }

  void lex_raw(size_t begin_length) {
    advance(begin_length);
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 2)) {
      size_t i = tag + 2;
      const char sign = i < source_.size() && (source_[i] == '-' || source_[i] == '+') ? source_[i++] : '\0';
      i = space_end(i);
      if (source_.compare(i, 6, "endraw") != 0) continue;
      const auto end = end_of_tag(space_end(i + 6), "%}", true, true);
      if (!end) continue;
      emit_text(tag, sign, false);
      return advance(*end - tag);
    }
    raise("missing end of raw directive");
  }

  void lex_comment() {
    if (at_ >= source_.size()) return;  // as Jinja: nothing after `{#` is nothing at all
    const size_t close = source_.find("#}", at_);
    if (close == std::string::npos) raise("missing end of comment tag");
    const bool has_sign = close > at_ && (source_[close - 1] == '-' || source_[close - 1] == '+');
    advance(*end_of_tag(has_sign ? close - 1 : close, "#}", true, true) - at_);
  }

  /// Where the closing delimiter at `from` ends, with what it swallows: `-` all space, else (blocks) one newline.
  std::optional<size_t> end_of_tag(size_t from, std::string_view delimiter, bool takes_newline,
                                   bool allows_plus) const {
    const bool minus = from < source_.size() && source_[from] == '-';
    const bool plus = allows_plus && from < source_.size() && source_[from] == '+';
    const size_t i = from + (minus || plus ? 1 : 0);
    if (i > source_.size() || source_.compare(i, delimiter.size(), delimiter) != 0) return std::nullopt;
    const size_t end = i + delimiter.size();
    if (minus) return space_end(end);
    return end + (takes_newline && !plus && end < source_.size() && source_[end] == '\n' ? 1 : 0);
  }

  void lex_tag(bool is_block) {
    std::string open;  // brackets that wait for their closing one; inside them a delimiter is no end
    for (;;) {
      if (at_ >= source_.size()) return;  // the parser reports the missing end
      if (open.empty()) {
        if (const auto end = end_of_tag(at_, is_block ? "%}" : "}}", is_block, is_block)) {
          add(is_block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd);
          return advance(*end - at_);
        }
      }
      const size_t after_space = space_end(at_);
      if (after_space > at_) {
        advance(after_space - at_);
      } else if (!lex_number() && !lex_name() && !lex_string()) {
        lex_operator(open);
      }
    }
  }

  /// Digits of `base` with single underscores between them; the end, or `from` if there is none.
  size_t digits_end(size_t from, int base) const {
    size_t i = from;
    while (i < source_.size() &&
           (is_digit(source_[i], base) ||
            (source_[i] == '_' && i > from && i + 1 < source_.size() && is_digit(source_[i + 1], base)))) {
      ++i;
    }
    return i;
  }

  bool lex_number() {
    if (!is_digit(peek(), 10)) return false;
    const size_t whole = digits_end(at_, 10);
    size_t end = whole;
    bool is_float = false;
    if (at_ == 0 || source_[at_ - 1] != '.') {
      if (end < source_.size() && source_[end] == '.' && digits_end(end + 1, 10) > end + 1) {
        end = digits_end(end + 1, 10);
        is_float = true;
      }
      if (end < source_.size() && (source_[end] | 0x20) == 'e') {
        size_t exponent = end + 1;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
        if (digits_end(exponent, 10) > exponent) {
          end = digits_end(exponent, 10);
          is_float = true;
        }
      }
    }
    if (is_float) {
      add_number(at_, end, 10, true);
      advance(end - at_);
      return true;
    }
    static constexpr std::pair<char, int> kPrefixes[] = {{'b', 2}, {'o', 8}, {'x', 16}};
    for (const auto& [letter, base] : kPrefixes) {
      if (peek() != '0' || (peek(1) | 0x20) != letter) continue;
      const size_t begin = at_ + 2 + (peek(2) == '_' ? 1 : 0);
      if (digits_end(begin, base) == begin) break;
      end = digits_end(begin, base);
      add_number(begin, end, base, false);
      advance(end - at_);
      return true;
    }
    if (peek() == '0') {  // 007 is two tokens in Jinja, and then an error
      end = at_;
      while (end < whole && (source_[end] == '0' || source_[end] == '_')) ++end;
    }
    add_number(at_, end, 10, false);
    advance(end - at_);
    return true;
  }

  void add_number(size_t begin, size_t end, int base, bool is_float) {
    std::string digits = source_.substr(begin, end - begin);
    std::erase(digits, '_');
    Token& token = add(is_float ? TokenKind::kFloat : TokenKind::kInteger);
    const char* last = digits.data() + digits.size();
    if (is_float) {
      if (std::from_chars(digits.data(), last, token.number).ec != std::errc())
        raise("number {} is out of range", digits);
    } else if (std::from_chars(digits.data(), last, token.integer, base).ec != std::errc()) {
      raise("integer {} does not fit 64 bits", escape_for_display(digits, 60));
    }
  }

  bool lex_name() {
    size_t end = at_;
    while (end < source_.size()) {
      const Utf8Char c = decode_utf8(source_, end);
      if (!c.valid || (c.code_point != '_' && !is_alnum(c.code_point))) break;
      end += c.length;
    }
    if (end == at_) return false;
    add(TokenKind::kName, source_.substr(at_, end - at_));
    advance(end - at_);
    return true;
  }

  bool lex_string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') return false;
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) raise("unexpected char {} (a string without end)", quote);
    add(TokenKind::kString, unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    advance(end + 1 - at_);
    return true;
  }

  static std::string unescape(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 == text.size()) {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      static constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeanings = "\a\b\f\n\r\t\v\\'\"";
      if (const size_t known = kLetters.find(c); known != std::string_view::npos) {
        out += kMeanings[known];
      } else if (c == '\n') {
        continue;
      } else if (is_digit(c, 8)) {
        char32_t code = 0;
        size_t digits = 0;
        for (; digits < 3 && i + digits < text.size() && is_digit(text[i + digits], 8); ++digits) {
          code = code * 8 + static_cast<char32_t>(text[i + digits] - '0');
        }
        i += digits - 1;
        append_utf8(out, code);
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        i += append_hex_escape(out, text.substr(i + 1), digits);
      } else if (c == 'N') {
        raise("\\N{{…}} in a string is not supported");
      } else {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  static size_t append_hex_escape(std::string& out, std::string_view text, size_t digits) {
    char32_t code = 0;
    for (size_t i = 0; i < digits; ++i) {
      if (i >= text.size() || !is_digit(text[i], 16))
        raise("truncated escape in a string: {} hex digits expected", digits);
      code = code * 16 + static_cast<char32_t>(hex_value(text[i]));
    }
    if (code > 0x10FFFF) raise("illegal Unicode character in a string");
    append_utf8(out, code >= 0xD800 && code <= 0xDFFF ? char32_t{0xFFFD} : code);  // a lone surrogate has no UTF-8
    return digits;
  }

  void lex_operator(std::string& open) {
    static constexpr std::string_view kLong[] = {"**", "//", "==", "!=", ">=", "<="};
    static constexpr std::string_view kShort = "+-/*%~[](){}><=.:|,;";
    for (const std::string_view op : kLong) {
      if (!starts_with(op)) continue;
      add(TokenKind::kOperator, std::string(op));
      return advance(2);
    }
    const char c = peek();
    if (kShort.find(c) == std::string_view::npos) {
      raise("unexpected char '{}'", escape_for_display(std::string_view(source_).substr(at_, code_point_size(at_))));
    }
    if (c == '(' || c == '[' || c == '{') {
      open += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) raise("unexpected '{}'", c);
      if (open.back() != c) raise("unexpected '{}', expected '{}'", c, open.back());
      open.pop_back();
    }
    add(TokenKind::kOperator, std::string(1, c));
    advance(1);
  }
  size_t code_point_size(size_t at) const { return decode_utf8(source_, at).length; }

  std::string source_;
  uint32_t& line_;
  size_t at_ = 0;
  bool is_line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, uint32_t& line) { return Lexer(source, line).run(); }

}  // namespace honeycrisp::text::jinja
