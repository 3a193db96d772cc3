// See honeycrisp/generate.h.
#include "base/result.h"
#include "base/stopwatch.h"
#include "engine/internals.h"
#include "engine/stop_strings.h"
#include <honeycrisp/generate.h>

#include <algorithm>
#include <limits>

namespace honeycrisp {
namespace {

double rate(double tokens, double seconds) { return tokens > 0 && seconds > 0 ? tokens / seconds : 0; }

/// Tokens in, certain text out: bytes → characters → stop strings → the caller.
class TextSink {
 public:
  TextSink(const text::Tokenizer& tokenizer, engine::StopStrings stop, const GenerateOptions& options, Generation& into)
      : tokenizer_(tokenizer), stop_(std::move(stop)), options_(options), into_(into) {}

  /// False if the caller wants no more.
  bool push(Token token) { return emit(stop_.push(utf8_.push(tokenizer_.token_bytes(token, options_.show_special)))); }
  bool finish() {
    const bool wants_more = emit(stop_.push(utf8_.finish()));
    return stopped() || !wants_more || emit(stop_.finish());
  }
  bool stopped() const { return !stop_.matched().empty(); }
  const std::string& stop_string() const { return stop_.matched(); }

 private:
  bool emit(const std::string& piece) {
    if (piece.empty()) return true;
    into_.text += piece;
    return !options_.on_text || options_.on_text(piece);
  }

  const text::Tokenizer& tokenizer_;
  text::Utf8Stream utf8_;
  engine::StopStrings stop_;
  const GenerateOptions& options_;
  Generation& into_;
};

/// The sampler of this generation, knowing what the session holds.
Result<Sampler> make_sampler(const Engine& engine, SamplingOptions sampling, bool ignore_eos,
                             std::span<const Token> prompt) {
  if (ignore_eos) {
    for (const Token token : engine.end_of_generation()) {
      if (uint32_t(token) < engine.info().vocabulary)
        sampling.logit_bias.emplace_back(token, -std::numeric_limits<float>::infinity());
    }
  }
  HC_ASSIGN(Sampler sampler, Sampler::create(std::move(sampling), engine.info().vocabulary));
  const size_t n = std::min(prompt.size(), size_t(sampler.options().repeat_last_n));
  for (const Token token : prompt.last(n)) sampler.accept(token);
  return sampler;
}

Result<Token> sample(Sampler& sampler, const Session& session) {
  return session.logits().empty() ? sampler.sample(session.top_logits()) : sampler.sample(session.logits());
}

/// The tokens after the prompt. Appends to `result`; the session holds the prompt.
Result<FinishReason> run(const Engine& engine, Session& session, Sampler& sampler, const GenerateOptions& options,
                         TextSink& sink, Generation& result) {
  const uint32_t context = engine.info().context;
  while (true) {
    if (options.max_tokens && result.tokens.size() >= *options.max_tokens) return FinishReason::kLength;
    if (options.should_stop && options.should_stop()) return FinishReason::kCancelled;
    HC_ASSIGN(const Token token, sample(sampler, session));
    if (engine.is_end_of_generation(token)) return FinishReason::kStop;
    sampler.accept(token);
    result.tokens.push_back(token);
    if (!sink.push(token)) return FinishReason::kCancelled;
    if (sink.stopped()) return FinishReason::kStop;
    if (options.max_tokens && result.tokens.size() >= *options.max_tokens) return FinishReason::kLength;
    if (session.position() >= context) return FinishReason::kContextFull;
    // With one logit there is one choice, the largest.
    uint32_t ahead = sampler.n_needed() == 1 ? honeycrisp::engine::kAhead : 0;
    if (options.max_tokens) ahead = std::min(ahead, *options.max_tokens - uint32_t(result.tokens.size()) - 1);
    HC_TRY(session.decode(token, sampler.n_needed(), ahead));
    ++result.decoded_tokens;
  }
}

}  // namespace

const char* to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kContextFull: return "context_full";
    case FinishReason::kCancelled: return "cancelled";
  }
  return "unknown";
}

double Generation::prefill_tokens_per_second() const { return rate(prefilled_tokens, prefill_seconds); }
double Generation::decode_tokens_per_second() const { return rate(decoded_tokens, decode_seconds); }

namespace {

/// What of a prompt is yet to be computed, after the session went back to the beginning that it shares with it.
struct Missing {
  std::vector<Token> tokens;  // a copy: the prompt may be what the session holds
  uint32_t reused = 0;
};

/// `n_top`: of the largest logits that are needed of the last token, as in Session::append().
Result<Missing> keep_common(Session& session, std::span<const Token> prompt, uint32_t n_top) {
  if (prompt.empty()) return invalid("the prompt holds no tokens");
  const std::span<const Token> held = session.tokens();
  size_t common = size_t(std::mismatch(held.begin(), held.end(), prompt.begin(), prompt.end()).first - held.begin());
  const bool has_logits = !session.logits().empty() || (n_top != 0 && session.top_logits().n >= n_top);
  const bool complete = common == prompt.size() && held.size() == common && has_logits;
  if (!complete) common = std::min(common, prompt.size() - 1);
  Missing missing{.tokens = {prompt.begin() + ptrdiff_t(common), prompt.end()}};
  HC_TRY(session.rewind(uint32_t(common)));
  missing.reused = session.computed();
  return missing;
}

}  // namespace

Result<uint32_t> set_prompt(Session& session, std::span<const Token> prompt, const std::function<bool()>& should_stop) {
  HC_ASSIGN(const Missing missing, keep_common(session, prompt, 0));
  HC_TRY(session.append(missing.tokens, should_stop));
  return missing.reused;
}

Result<Generation> generate(const Engine& engine, Session& session, std::span<const Token> prompt,
                            const SamplingOptions& sampling, const GenerateOptions& options) {
  if (prompt.size() >= engine.info().context)
    return fail(ErrorCode::kContextFull, "a prompt of {} tokens leaves no position in a context of {}", prompt.size(),
                engine.info().context);
  HC_ASSIGN(engine::StopStrings stop, engine::StopStrings::create(options.stop));
  HC_ASSIGN(Sampler sampler, make_sampler(engine, sampling, options.ignore_eos, prompt));

  Generation result;
  result.prompt_tokens = uint32_t(prompt.size());
  const Stopwatch prefill;
  HC_ASSIGN(const Missing missing, keep_common(session, prompt, sampler.n_needed()));
  std::function<bool()> watch = options.should_stop;
  if (options.on_prompt)
    watch = [&] {
      options.on_prompt(session.computed(), session.position());
      return options.should_stop && options.should_stop();
    };
  const Result<void> computed = session.append(missing.tokens, watch, sampler.n_needed());
  result.prefill_seconds = prefill.seconds();
  result.reused_tokens = missing.reused;
  result.prefilled_tokens = session.computed() - std::min(session.computed(), missing.reused);
  if (!computed) {
    if (computed.error().code != ErrorCode::kCancelled) return tl::unexpected(computed.error());
    result.finish_reason = FinishReason::kCancelled;
    return result;
  }

  TextSink sink(engine.internals().tokenizer, std::move(stop), options, result);
  const Stopwatch decode;
  HC_ASSIGN(result.finish_reason, run(engine, session, sampler, options, sink, result));
  result.decode_seconds = decode.seconds();
  if (result.finish_reason != FinishReason::kCancelled && !sink.finish())
    result.finish_reason = FinishReason::kCancelled;
  if (sink.stopped()) {
    result.finish_reason = FinishReason::kStop;
    result.stop_string = sink.stop_string();
  }
  return result;
}

}  // namespace honeycrisp
