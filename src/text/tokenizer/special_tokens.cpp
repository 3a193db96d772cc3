// Keys, defaults and the table of end markers.
#include "text/tokenizer/special_tokens.h"

#include "base/log.h"

#include <algorithm>

namespace honeycrisp::text {
namespace {

/// Texts of tokens after which a model that was trained with them says nothing more. Counted only where the token is
/// of type control, so that HTML's </s> in Gemma's vocabulary is none.
constexpr std::string_view kEndMarkers[] = {
    "<|im_end|>",             // ChatML: Qwen, SmolLM, Hunyuan and many more
    "<|endoftext|>",          // GPT-2 and its successors
    "</s>",                   // Llama 1 and 2, Mistral
    "<|eot_id|>",             // Llama 3: end of turn
    "<|eom_id|>",             // Llama 3: end of message, a tool is called
    "<|eot|>",                // Llama 4
    "<|eom|>",                // Llama 4
    "<|end_of_text|>",        // Llama 3, Granite
    "<end_of_turn>",          // Gemma 2 and 3
    "<eos>",                  // Gemma
    "<turn|>",                // Gemma 4
    "<|tool_response>",       // Gemma 4: the answer of a tool comes next
    "<|end|>",                // Phi-3 (but see kMessageEnd)
    "<|return|>",             // gpt-oss
    "<|call|>",               // gpt-oss: a tool is called
    "<|calls|>",              // Solar Open: tools are called
    "<|flush|>",              // Solar Open
    "<|END_OF_TURN_TOKEN|>",  // Command R
    "<|endofturn|>",          // HyperCLOVA X, EXAONE
    "[|endofturn|]",          // EXAONE
    "[EOT]",
    "[EOS]",  // Kimi K2
    "[e~[",   // MiniMax M2
    "<EOT>",
    "_<EOT>",              // Code Llama and its kin
    "<end_of_utterance>",  // SmolVLM
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",  // DeepSeek
};

/// Ends a message, not the answer, in formats that have other markers for the end of the answer (gpt-oss, Solar Open).
constexpr std::string_view kMessageEnd = "<|end|>";
constexpr std::string_view kAnswerEnds[] = {"<|return|>", "<|flush|>"};

/// Tokens that some files call user-defined though they structure what the model reads.
constexpr std::string_view kStructuralTexts[] = {
    "<|tool_response>",
    "<|im_end|>",
    "<|im_start|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<turn|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|fim_prefix|>",
    "<|fim_suffix|>",
    "<|fim_middle|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<fim_prefix>",
    "<fim_suffix>",
    "<fim_middle>",
    "<fim_pad>",
    "<fim-prefix>",
    "<fim-suffix>",
    "<fim-middle>",
    "<fim-pad>",
    "<|code_prefix|>",
    "<|code_suffix|>",
    "<|code_middle|>",
    "<\xEF\xBD\x9C"
    "fim\xE2\x96\x81"
    "begin\xEF\xBD\x9C>",
    "<\xEF\xBD\x9C"
    "fim\xE2\x96\x81hole\xEF\xBD\x9C>",
    "<\xEF\xBD\x9C"
    "fim\xE2\x96\x81"
    "end\xEF\xBD\x9C>",
};

/// An id that the file names: an error if it is outside the vocabulary.
Result<std::optional<TokenId>> read_id(const gguf::Metadata& metadata, std::string_view name,
                                       const Vocabulary& vocabulary) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
  const gguf::Value* value = metadata.find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> id = value->as_int();
  if (!id) return invalid("{} is not an integer", key);
  if (!vocabulary.contains(*id)) {
    return invalid("{} is {}, but the vocabulary has {} tokens", key, *id, vocabulary.size());
  }
  return TokenId(*id);
}

bool is_control(const Vocabulary& vocabulary, TokenId id) {
  return id != kNoToken && vocabulary.type(id) == TokenType::kControl;
}
bool has_control(const Vocabulary& vocabulary, std::string_view text) {
  return is_control(vocabulary, vocabulary.find(text));
}

/// The default ids are conventions of one vocabulary each; in another one they may be any word.
std::optional<TokenId> usable_default(const Vocabulary& vocabulary, TokenId id) {
  if (!vocabulary.contains(id)) return std::nullopt;
  const TokenType type = vocabulary.type(id);
  if (vocabulary.has_types() && type != TokenType::kControl && type != TokenType::kUnknown) return std::nullopt;
  return id;
}

void add_end_markers(const Vocabulary& vocabulary, std::vector<TokenId>& ends) {
  const bool messages_end_apart = std::any_of(std::begin(kAnswerEnds), std::end(kAnswerEnds),
                                              [&](std::string_view text) { return has_control(vocabulary, text); });
  for (const std::string_view text : kEndMarkers) {
    if (text == kMessageEnd && messages_end_apart) continue;
    const TokenId id = vocabulary.find(text);
    if (is_control(vocabulary, id)) ends.push_back(id);
  }
}

}  // namespace

void promote_structural_tokens(Vocabulary& vocabulary) {
  for (const std::string_view text : kStructuralTexts) {
    const TokenId id = vocabulary.find(text);
    if (id == kNoToken || vocabulary.type(id) != TokenType::kUserDefined) continue;
    log_info("token {} '{}' is called user-defined by the file; it is treated as a control token", id, text);
    vocabulary.set_type(id, TokenType::kControl);
  }
}

Result<SpecialTokens> read_special_tokens(const gguf::Metadata& metadata, const Vocabulary& vocabulary,
                                          const SpecialDefaults& defaults) {
  SpecialTokens special;
  HC_ASSIGN(special.bos, read_id(metadata, "bos", vocabulary));
  HC_ASSIGN(special.eos, read_id(metadata, "eos", vocabulary));
  HC_ASSIGN(special.unk, read_id(metadata, "unknown", vocabulary));
  HC_ASSIGN(special.pad, read_id(metadata, "padding", vocabulary));
  HC_ASSIGN(const std::optional<TokenId> eot, read_id(metadata, "eot", vocabulary));
  HC_ASSIGN(const std::optional<TokenId> eom, read_id(metadata, "eom", vocabulary));
  if (!special.bos) special.bos = usable_default(vocabulary, defaults.bos);
  if (!special.eos) special.eos = usable_default(vocabulary, defaults.eos);
  if (!special.unk) special.unk = usable_default(vocabulary, defaults.unk);

  HC_ASSIGN(special.add_bos, metadata.get_bool("tokenizer.ggml.add_bos_token", defaults.add_bos));
  HC_ASSIGN(special.add_eos, metadata.get_bool("tokenizer.ggml.add_eos_token", false));
  const auto drop_if_absent = [](bool& add, const std::optional<TokenId>& id, const char* name) {
    if (!add || id) return;
    log_warning("the tokenizer asks for a {} token but names none; none is added", name);
    add = false;
  };
  drop_if_absent(special.add_bos, special.bos, "BOS");
  drop_if_absent(special.add_eos, special.eos, "EOS");

  std::vector<TokenId>& ends = special.end_of_generation;
  for (const std::optional<TokenId>& id : {special.eos, eot, eom}) {
    if (id) ends.push_back(*id);
  }
  add_end_markers(vocabulary, ends);
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return special;
}

}  // namespace honeycrisp::text
