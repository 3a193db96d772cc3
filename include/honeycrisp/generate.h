// The loop from a prompt to an answer: compute the prompt, choose tokens, turn them into text, know when to end.
#pragma once

#include "honeycrisp/engine.h"
#include "honeycrisp/result.h"
#include "honeycrisp/sampling.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace honeycrisp {

struct GenerateOptions {
  std::optional<uint32_t> max_tokens;  // absent: until the context is full
  std::vector<std::string> stop;       // UTF-8, none empty; the text ends before the first that is completed
  bool ignore_eos = false;             // bans every end-of-generation token
  bool show_special = false;           // control tokens appear in the text (the end token never does)

  /// Called with each piece of text as it becomes certain: valid UTF-8, never part of a stop string. False cancels.
  std::function<bool(std::string_view piece)> on_text;
  /// Told about four times a second, while the prompt is computed, how many of its tokens are.
  std::function<void(uint32_t computed, uint32_t total)> on_prompt;
  /// Asked before each chunk of the prompt and before each token. True cancels.
  std::function<bool()> should_stop;
};

enum class FinishReason {
  kStop,         // an end-of-generation token or a stop string
  kLength,       // max_tokens
  kContextFull,  // no position is left for another token
  kCancelled,    // on_text or should_stop asked for it
};
/// "stop", "length", "context_full", "cancelled".
const char* to_string(FinishReason reason);

struct Generation {
  FinishReason finish_reason = FinishReason::kStop;
  std::string text;           // all pieces together
  std::vector<Token> tokens;  // chosen, without the end token
  std::string stop_string;    // the one that ended it, if one did

  uint32_t prompt_tokens = 0;
  uint32_t reused_tokens = 0;     // of the prompt: what the session held, as far as it was not computed again
  uint32_t prefilled_tokens = 0;  // of the prompt: computed; the rest unless it was cancelled
  double prefill_seconds = 0;     // for prefilled_tokens
  uint32_t decoded_tokens = 0;    // computed one by one; the last chosen token is not
  double decode_seconds = 0;      // for them, choosing and text included

  double prefill_tokens_per_second() const;  // 0 without tokens
  double decode_tokens_per_second() const;
};

/// Makes the session hold exactly `prompt`: keeps the longest common beginning, computes the rest, at least the last
/// token unless the session's logits already belong to it. Returns how many tokens were kept and not computed again
/// (see Session::computed()). Errors: an empty prompt; otherwise those of Session::append(), after which the session
/// holds the common beginning.
Result<uint32_t> set_prompt(Session& session, std::span<const Token> prompt,
                            const std::function<bool()>& should_stop = {});

/// set_prompt(), then one token after another until something ends it. The session then holds the prompt and all
/// tokens but, at most, the last. Errors: kContextFull with both numbers if the prompt leaves no position for a token;
/// options out of range (named); those of Session::append() and Sampler::sample(). Cancelling is not an error.
Result<Generation> generate(const Engine& engine, Session& session, std::span<const Token> prompt,
                            const SamplingOptions& sampling, const GenerateOptions& options = {});

}  // namespace honeycrisp
