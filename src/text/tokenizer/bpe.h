// Byte-pair encoding of one pre-tokenized chunk: `tokenizer.ggml.merges` as a table from a pair of token ids to rank
// and merged id. Two spellings exist: byte-level (GPT-2 and its successors) and raw characters with byte tokens for
// what the vocabulary lacks (Gemma 4).
#pragma once

#include "base/result.h"
#include "gguf/metadata.h"
#include "text/tokenizer/merge_queue.h"
#include "text/tokenizer/vocabulary.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace honeycrisp::text {

struct BpeOptions {
  bool byte_level = true;       // false: raw characters, byte tokens for the missing ones
  bool whole_chunks = false;    // a chunk that is a token as it stands is not merged ("ignore_merges" of HF tokenizers)
  bool whole_newlines = false;  // the same only for chunks of line feeds (Gemma 4)
};

class Bpe {
 public:
  /// Reads `tokenizer.ggml.merges`. Errors: no such array of strings; a merge without a space, or whose parts or
  /// result are not in the vocabulary.
  static Result<Bpe> load(const gguf::Metadata& metadata, const Vocabulary& vocabulary, BpeOptions options);

  /// Appends the ids of `chunk`. A byte that no token stands for is left out, as the reference does.
  /// `vocabulary` is the one that load() was given.
  void encode(const Vocabulary& vocabulary, std::string_view chunk, MergeQueue& queue, std::vector<TokenId>& ids) const;

 private:
  struct Merge {
    uint64_t pair = kNoPair;
    MergeCandidate candidate{};  // its priority is the rank, the place in the list
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};

  Result<void> read_merges(std::span<const std::string_view> merges, const Vocabulary& vocabulary);
  void add_merge(TokenId left, TokenId right, MergeCandidate merge);
  std::optional<MergeCandidate> find_merge(TokenId left, TokenId right) const;
  bool encode_whole(const Vocabulary& vocabulary, std::string_view chunk, std::vector<TokenId>& ids) const;

  BpeOptions options_;
  std::vector<Merge> slots_;             // open addressing, a power of two, at most half full
  std::array<TokenId, 256> byte_ids_{};  // byte-level: the token of each single byte, or kNoToken
};

}  // namespace honeycrisp::text
