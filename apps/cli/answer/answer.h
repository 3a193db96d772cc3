// One answer, streamed to stdout as it comes, and the line about its speed. Used by run and chat.
#pragma once

#include "base/result.h"
#include "cli/options.h"
#include "cli/term/terminal.h"
#include <honeycrisp/generate.h>

#include <span>
#include <string>
#include <vector>

namespace honeycrisp::cli {

/// Generates and prints. Ctrl-C (inside an InterruptScope) ends it with FinishReason::kCancelled, which is no error. A
/// reader of stdout that has left is the silent error of Output.
Result<Generation> stream_answer(const Engine& engine, Session& session, std::span<const Token> prompt,
                                 const SamplingOptions& sampling, const AnswerOptions& options, Output& out);

/// What the speed of an answer is compared with.
struct SpeedLimit {
  bool measured = false;        // when first needed
  double bytes_per_second = 0;  // 0: the backend cannot measure it
};

/// "prefill 12 tokens, 340 tok/s; decode 64 tokens, 58.1 tok/s" and, where it is known, "4.9 GB/s of weights, 41 % of
/// 12.0 GB/s measured". No session of the engine may be computing.
std::vector<std::string> speed_lines(const Generation& generation, const Engine& engine, SpeedLimit& limit);

/// A note on stderr if the answer was ended by something other than the model or the user.
void print_finish_note(const Generation& generation, const ModelInfo& info);

}  // namespace honeycrisp::cli
