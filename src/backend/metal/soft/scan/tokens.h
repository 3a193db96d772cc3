// Tokens of MSL as far as the scanner needs them, and where each stands.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace honeycrisp::backend::metal::soft {

struct Token {
  std::string_view text;  // of the scanned text
  size_t at = 0;          // offset in it
  bool operator==(std::string_view t) const { return text == t; }
};

class Tokens {
 public:
  /// Comments and preprocessor lines are left out. `text` must outlive the tokens.
  Tokens(const std::string& text, std::string file);

  size_t size() const { return tokens_.size(); }
  /// Past either end there are empty tokens.
  const Token& operator[](size_t i) const { return i < tokens_.size() ? tokens_[i] : end_; }
  bool identifier(size_t i) const;
  /// The token that closes the bracket at i, or size().
  size_t closing(size_t i) const;
  /// "file:line" by the `#line` directives before.
  std::string place(size_t i) const;
  int line(size_t i) const;

 private:
  const std::string& text_;
  std::string file_;
  std::vector<Token> tokens_;
  Token end_;
};

}  // namespace honeycrisp::backend::metal::soft
