// Which patterns each `tokenizer.ggml.pre` means, as data. To add one: a row in kNames, and a row in kPatterns if its
// patterns are new.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace honeycrisp::text {

/// Stands in a list of patterns for the one cut that is not a linear pattern: runs of \p{N} in groups of three, counted
/// from the right (1234567 = 1 234 567).
inline constexpr std::string_view kThreesFromRight = "threes from the right";

enum PreTokenizerFlag : uint8_t {
  kWholeChunks = 1,    // a chunk that is a token as it stands is not merged
  kAddBos = 2,         // BOS is added unless the file says otherwise
  kRawCharacters = 4,  // not byte-level: spaces are written as U+2581, missing characters as byte tokens
  kWholeNewlines = 8,  // a chunk of line feeds that is a token is not merged
  kNoDefaultBos = 16,  // there is no BOS unless the file names one
};

struct PreTokenizerRule {
  std::string_view name;
  std::span<const std::string_view> patterns;  // applied one after the other, each to the chunks of the one before
  uint8_t flags = 0;
};

/// The rule for a value of `tokenizer.ggml.pre`; null if it is not known.
const PreTokenizerRule* find_pre_tokenizer(std::string_view name);
/// The rule used when the file names none or an unknown one.
const PreTokenizerRule& default_pre_tokenizer();
std::span<const PreTokenizerRule> all_pre_tokenizers();

}  // namespace honeycrisp::text
