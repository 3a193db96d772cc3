// The token list of a GGUF file: texts, types, scores, and the lookup from text to id. Owns copies of everything, so
// it may outlive the file. Knows nothing of how text is split or merged.
#pragma once

#include "base/result.h"
#include "gguf/metadata.h"
#include "text/tokenizer.h"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace honeycrisp::text {

inline constexpr TokenId kNoToken = -1;

class Vocabulary {
 public:
  /// Reads `tokenizer.ggml.tokens`, `.scores` and `.token_type`. Errors: a list that is missing, of another type or of
  /// another length; an unknown token type; a byte token that is not spelled `<0xNN>`; a score that is not a number.
  static Result<Vocabulary> load(const gguf::Metadata& metadata);

  size_t size() const { return types_.size(); }
  bool contains(int64_t id) const { return id >= 0 && size_t(id) < size(); }
  bool has_types() const { return has_types_; }

  // Of an id that contains() accepts.
  std::string_view text(TokenId id) const {
    return std::string_view(texts_).substr(offsets_[size_t(id)], offsets_[size_t(id) + 1] - offsets_[size_t(id)]);
  }
  TokenType type(TokenId id) const { return types_[size_t(id)]; }
  float score(TokenId id) const { return scores_.empty() ? 0.0f : scores_[size_t(id)]; }

  /// The token of exactly this text, of whatever type, or kNoToken. Of duplicates the last one.
  TokenId find(std::string_view text) const;
  /// find() of many texts at once; several times as fast for large vocabularies, because cache misses overlap.
  void find_many(std::span<const std::string_view> texts, std::span<TokenId> ids) const;
  /// Whether plain text can become this token: not a control, unknown or byte token.
  bool is_plain(TokenId id) const {
    return type(id) == TokenType::kNormal || type(id) == TokenType::kUserDefined || type(id) == TokenType::kUnused;
  }
  /// find() among the plain tokens.
  TokenId find_plain(std::string_view text) const;
  /// The token of type byte for this byte, or kNoToken.
  TokenId byte_token(uint8_t byte) const { return byte_tokens_[byte]; }
  uint8_t byte_of(TokenId id) const;                     // of a token of type byte
  size_t longest_text() const { return longest_text_; }  // bytes

  void set_type(TokenId id, TokenType type) { types_[size_t(id)] = type; }

 private:
  Result<void> read_types(const gguf::Metadata& metadata);
  Result<void> read_scores(const gguf::Metadata& metadata);
  Result<void> read_byte_tokens();
  void build_index();

  struct Slot {
    uint32_t hash = 0;
    TokenId id = kNoToken;
    uint32_t begin = 0, length = 0;  // of the text, in texts_
  };
  TokenId find_hashed(std::string_view text, uint32_t hash) const;
  std::string_view text_of(const Slot& slot) const { return {texts_.data() + slot.begin, slot.length}; }

  std::string texts_;              // all texts, one after the other
  std::vector<uint32_t> offsets_;  // [size + 1] into texts_
  std::vector<TokenType> types_;   // [size]
  std::vector<float> scores_;      // [size], or empty
  std::vector<Slot> slots_;        // open addressing, a power of two, at most half full
  std::array<TokenId, 256> byte_tokens_{};
  size_t longest_text_ = 0;
  bool has_types_ = false;
};

}  // namespace honeycrisp::text
