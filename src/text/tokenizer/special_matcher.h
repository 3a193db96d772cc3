// Cuts text at the special tokens written in it. Which match wins is the reference's rule: the longest token first,
// wherever it stands; of equally long ones the lower id; each from left to right, in what earlier ones left over.
// Finds the same cuts without one pass per token: O(bytes · longest special token), plus a heap of the matches.
#pragma once

#include "text/tokenizer/vocabulary.h"

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace honeycrisp::text {

/// A piece of the text: one special token, or plain text (token == kNoToken).
struct Fragment {
  TokenId token;
  size_t begin, end;
};

/// Where control tokens are believed.
struct TrustedRange {
  size_t begin, end;
};

class SpecialMatcher {
 public:
  SpecialMatcher() = default;
  /// Takes the tokens that are control, unknown or user-defined. `strips_right`: those that swallow the white space
  /// behind them (Phi-3).
  SpecialMatcher(const Vocabulary& vocabulary, std::span<const TokenId> strips_right);

  /// User-defined tokens match everywhere; control and unknown tokens only inside one of `trusted` (sorted, disjoint,
  /// not touching). Fragments are in order and not empty.
  std::vector<Fragment> cut(std::string_view text, std::span<const TrustedRange> trusted) const;

 private:
  struct Node {  // of a trie over the tokens' bytes; children form a list
    int32_t child = -1, sibling = -1;
    uint8_t byte = 0;
    TokenId token = kNoToken;
  };
  struct Match {
    size_t begin;
    uint32_t length;
    TokenId token;
  };
  class Cutter;

  void insert(std::string_view token_text, TokenId id);
  int32_t child_of(int32_t node, uint8_t byte) const;

  std::vector<Node> nodes_;
  std::array<int32_t, 256> roots_{};
  std::vector<bool> needs_trust_;   // [vocabulary size]: control and unknown tokens
  std::vector<bool> strips_right_;  // [vocabulary size]
};

}  // namespace honeycrisp::text
