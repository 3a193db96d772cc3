// Which tokens begin, end and stop: the ids that a GGUF file names, the defaults of its tokenizer's kind, and the end
// markers known by their text.
#pragma once

#include "base/result.h"
#include "gguf/metadata.h"
#include "text/tokenizer.h"
#include "text/tokenizer/vocabulary.h"

#include <string_view>

namespace honeycrisp::text {

struct SpecialDefaults {
  TokenId bos = kNoToken, eos = kNoToken, unk = kNoToken;
  bool add_bos = false;
};

/// Gives user-defined tokens that structure a prompt or end a turn (by their text) the type control, so that they are
/// believed only where control tokens are.
void promote_structural_tokens(Vocabulary& vocabulary);

/// Reads `tokenizer.ggml.{bos,eos,eot,eom,unknown,padding}_token_id` and `add_{bos,eos}_token`. A default id is taken
/// only if the vocabulary has it as a control token. Errors: an id outside the vocabulary; a key of the wrong type.
Result<SpecialTokens> read_special_tokens(const gguf::Metadata& metadata, const Vocabulary& vocabulary,
                                          const SpecialDefaults& defaults);

}  // namespace honeycrisp::text
