// Template source to tokens, with the whitespace rules of trim_blocks, lstrip_blocks and the `-`/`+` marks applied.
// Follows the lexical rules of Jinja (https://jinja.palletsprojects.com/en/stable/templates/).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace honeycrisp::text::jinja {

enum class TokenKind : uint8_t {
  kText,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  uint32_t line;
  std::string text;  // of text, names, strings (unescaped) and operators
  int64_t integer = 0;
  double number = 0;

  bool is_operator(std::string_view op) const { return kind == TokenKind::kOperator && text == op; }
  bool is_name(std::string_view name) const { return kind == TokenKind::kName && text == name; }
};

/// The last token is kEnd. Throws Failure on a malformed source; `line` then holds the place.
std::vector<Token> tokenize(std::string_view source, uint32_t& line);

}  // namespace honeycrisp::text::jinja
