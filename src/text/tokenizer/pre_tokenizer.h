// Cuts text into the chunks inside which BPE merges. Runs the patterns of the rule table with PCRE2 (JIT where
// available). Immutable after create; thread safe.
#pragma once

#include "base/result.h"
#include "text/tokenizer/pre_tokenizer_table.h"

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace honeycrisp::text {

class PreTokenizer {
 public:
  static Result<PreTokenizer> create(const PreTokenizerRule& rule);

  /// The ends of the chunks of `text`, ascending; the last is text.size() (none for an empty text). What no pattern
  /// matches is a chunk of its own, and so is a run of malformed UTF-8.
  /// Errors: the pattern engine hit one of its limits, or is out of memory.
  Result<std::vector<uint32_t>> split(std::string_view text) const;

 private:
  struct Pattern;
  std::vector<std::shared_ptr<const Pattern>> patterns_;
};

}  // namespace honeycrisp::text
