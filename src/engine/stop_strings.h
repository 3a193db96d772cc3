// Finds the first completed stop string in a stream of text and holds back what might become one.
// Knows nothing of tokens. Linear in the text, whatever the strings are.
#pragma once

#include "base/result.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace honeycrisp::engine {

class StopStrings {
 public:
  /// Error: a string is empty, not UTF-8, or too long; or there are too many.
  static Result<StopStrings> create(std::span<const std::string> strings);

  /// Takes more text and returns what is certain not to belong to a stop string. After a match: what came before it;
  /// from then on nothing.
  std::string push(std::string_view text);
  /// The end of the text: what was held back.
  std::string finish();

  /// The string that was completed first (of several at the same place the longest); empty if none was.
  const std::string& matched() const { return matched_; }

 private:
  /// A string and how much of it the text ends with (Knuth, Morris and Pratt, 1977).
  struct Matcher {
    std::string pattern;
    std::vector<uint32_t> fallback;  // [pattern] length of the longest proper border of each prefix
    uint32_t state = 0;              // bytes of the pattern that the text ends with
    void advance(char c);
  };

  std::vector<Matcher> matchers_;
  std::string held_;  // the longest beginning of a pattern that the text ends with
  std::string matched_;
};

}  // namespace honeycrisp::engine
