// SentencePiece's BPE as GGUF calls it ("llama"): neighbouring symbols whose joined text is a token are merged, highest
// score first; what is no token in the end becomes byte tokens, or the unknown token. Algorithm:
// https://github.com/google/sentencepiece/blob/master/src/bpe_model.cc.
#pragma once

#include "text/tokenizer/merge_queue.h"
#include "text/tokenizer/vocabulary.h"

#include <string>
#include <string_view>
#include <vector>

namespace honeycrisp::text {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, stands for a space

/// Appends `text` with its spaces written as kSpaceMark.
void append_escaped_spaces(std::string& out, std::string_view text);
/// The inverse.
std::string unescape_spaces(std::string_view text);

/// Appends the ids of `escaped`. `unknown` stands for characters that have neither a token nor byte tokens
/// (kNoToken: they are left out).
void encode_spm(const Vocabulary& vocabulary, std::string_view escaped, TokenId unknown, MergeQueue& queue,
                std::vector<TokenId>& ids);

}  // namespace honeycrisp::text
