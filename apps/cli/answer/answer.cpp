#include "cli/answer/answer.h"

#include "cli/term/interrupt.h"
#include "cli/term/messages.h"
#include "cli/term/progress.h"
#include "engine/internals.h"

#include <fmt/format.h>
#include <optional>

namespace honeycrisp::cli {

Result<Generation> stream_answer(const Engine& engine, Session& session, std::span<const Token> prompt,
                                 const SamplingOptions& sampling, const AnswerOptions& options, Output& out) {
  Result<void> written;
  GenerateOptions generate_options;
  if (options.most_tokens >= 0) generate_options.max_tokens = uint32_t(options.most_tokens);
  generate_options.stop = options.stops;
  generate_options.ignore_eos = options.ignore_eos;
  generate_options.should_stop = [] { return interrupt_requested(); };
  std::optional<ProgressBar> bar;  // of a prompt that takes long
  bar.emplace("prompt", ProgressBar::Rate::kNone, std::chrono::milliseconds(1000));
  generate_options.on_prompt = [&](uint32_t done, uint32_t total) { bar->update(done, total); };
  generate_options.on_text = [&](std::string_view piece) {
    bar.reset();
    written = out.write_untrusted(piece);
    return written.has_value();
  };
  Result<Generation> generation = generate(engine, session, prompt, sampling, generate_options);
  bar.reset();
  if (!written) return tl::unexpected<Error>(written.error());
  if (out.terminal() && generation && !generation->text.empty() && !generation->text.ends_with('\n'))
    HC_TRY(out.write("\n"));
  if (!generation && generation.error().code == ErrorCode::kContextFull)
    generation.error().message += "; give more with -c, or shorten the prompt";
  return generation;
}

std::vector<std::string> speed_lines(const Generation& generation, const Engine& engine, SpeedLimit& limit) {
  const auto tokens = [](uint64_t n) { return fmt::format("{} {}", n, n == 1 ? "token" : "tokens"); };
  std::string text = fmt::format("prefill {}, {:.1f} tok/s", tokens(generation.prefilled_tokens),
                                 generation.prefill_tokens_per_second());
  const double rate = generation.decode_tokens_per_second();
  if (rate == 0) return {text};
  text += fmt::format("; decode {}, {:.1f} tok/s", tokens(generation.decoded_tokens), rate);
  const uint64_t weights = engine.info().weight_bytes_per_token;
  const double read = rate * double(weights);
  if (!limit.measured) {
    limit.measured = true;
    const auto ceilings = engine.internals().executor.measure_ceilings(weights);
    if (ceilings) limit.bytes_per_second = ceilings->read_bytes_per_second;
  }
  std::string share = fmt::format("{:.1f} GB/s of weights", read / 1e9);
  if (limit.bytes_per_second != 0)
    share += fmt::format(", {:.0f} % of {:.1f} GB/s measured{}", 100 * read / limit.bytes_per_second,
                         limit.bytes_per_second / 1e9,
                         read > limit.bytes_per_second ? " (a cache, or others were busy)" : "");
  return {text, share};
}

void print_finish_note(const Generation& generation, const ModelInfo& info) {
  if (generation.finish_reason == FinishReason::kContextFull)
    print_note(
        fmt::format("The answer ends here because the context of {} positions is full (-c gives more)", info.context));
}

}  // namespace honeycrisp::cli
