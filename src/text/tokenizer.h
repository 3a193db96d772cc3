// Text to token ids and back, for the vocabularies that GGUF files carry. Immutable after load; thread safe.
// Knows nothing of chat templates or models beyond `tokenizer.ggml.*`.
#pragma once

#include "base/result.h"
#include "gguf/metadata.h"
#include "text/segment.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace honeycrisp::text {

using TokenId = int32_t;

/// `tokenizer.ggml.token_type`.
enum class TokenType : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct SpecialTokens {
  std::optional<TokenId> bos, eos, unk, pad;
  bool add_bos = false, add_eos = false;
  std::vector<TokenId>
      end_of_generation;  // sorted: the union of eos, eot, eom keys and known end markers that are control tokens
};

class Tokenizer {
 public:
  /// Reads and validates `tokenizer.ggml.*`. A model of kind "none" gives a tokenizer without vocabulary
  /// (has_vocabulary() is false, encode and decode fail with a message that says so).
  static Result<Tokenizer> load(const gguf::Metadata& metadata);

  bool has_vocabulary() const;
  size_t vocabulary_size() const;  // 0 without one
  const SpecialTokens& special() const;
  std::string_view kind() const;  // "gpt2", "llama", "gemma4", …: tokenizer.ggml.model
  std::string_view pre() const;   // tokenizer.ggml.pre, or the default taken

  /// Ids of `text`, without BOS or EOS. `parse_special`: control and user-defined tokens written in the text are
  /// recognised; otherwise control tokens stay characters.
  /// Errors: no vocabulary; text of more than 2^31 bytes; a pattern engine's limit was hit.
  Result<std::vector<TokenId>> encode(std::string_view text, bool parse_special) const;
  /// The same for a rendered prompt: special tokens are recognised only inside segments that are not input; text on
  /// both sides of a segment boundary is otherwise tokenized together, as if it were one string.
  Result<std::vector<TokenId>> encode(std::span<const Segment> segments) const;

  /// Bytes of one token as they appear in text (may be an incomplete UTF-8 sequence); empty for control tokens unless
  /// `with_special`. An id outside the vocabulary gives an empty string.
  std::string token_bytes(TokenId id, bool with_special) const;
  /// The raw vocabulary entry, for display.
  std::string_view token_text(TokenId id) const;
  TokenType token_type(TokenId id) const;
  /// The text of all ids. decode(encode(x)) is x wherever the vocabulary has a token for every byte; SentencePiece
  /// kinds read U+2581 as a space, and the space that encode() puts in front of their text is taken away again.
  std::string decode(std::span<const TokenId> ids, bool with_special) const;
  std::optional<TokenId> find(std::string_view token_text) const;
  bool is_end_of_generation(TokenId id) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

/// Joins token bytes into text that is always valid UTF-8: an incomplete character is held back until its bytes are
/// there; bytes that can never complete become U+FFFD.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);  // what can be shown now
  std::string finish();                      // the rest; incomplete bytes become U+FFFD

 private:
  std::string pending_;
};

}  // namespace honeycrisp::text
