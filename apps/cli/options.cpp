#include "cli/options.h"

#include "base/text_escape.h"
#include "cli/models/paths.h"
#include "cli/number.h"
#include "cli/term/messages.h"
#include "cli/term/progress.h"

#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <random>

namespace honeycrisp::cli {
namespace {

constexpr const char* kModelHeading = "Model";
constexpr int64_t kMostThreads = 1024;
constexpr int64_t kMostContext = int64_t(1) << 24;  // positions; more than any model, and its arithmetic stays small

std::string shown(const std::string& text) { return "\"" + escape_for_display(text, 60) + "\""; }

}  // namespace

void add_model_option(CommandLine& line, ModelOptions& options) {
  line.heading(kModelHeading);
  line.text("-m,--model", options.model, kTypeModel,
            "A GGUF file (any file of a split model) or the name of a pulled model; without it the default model, "
            "smollm2, is used and fetched the first time");
}

void add_backend_option(CommandLine& line, ModelOptions& options) {
  line.heading(kModelHeading);
  std::vector<std::string> names = {"auto"};
  for (std::string& name : backend_names()) names.push_back(std::move(name));
  line.choice("--backend", options.backend, names,
              "What computes; auto: a GPU if there is one that can run the model, else the CPU");
  line.flag("--fast-activations", options.fast_activations,
            "Round activations to 8 bits instead of 14: quicker prompts, answers a little off the model's (CPU only)");
}

void add_kv_type_option(CommandLine& line, ModelOptions& options) {
  line.heading(kModelHeading);
  line.choice("--kv-type", options.kv_type, {"f16", "f32", "q8_0"}, "Type of the cached keys and values");
}

void add_context_option(CommandLine& line, ModelOptions& options) {
  line.heading(kModelHeading);
  line.integer("-c,--context", options.context, 1, kMostContext,
               "Positions of context, prompt and answer together [the model's own, at most 8192]; memory is "
               "taken as they fill",
               "");
}

void add_loading_options(CommandLine& line, ModelOptions& options) {
  line.heading(kModelHeading);
  line.integer("-t,--threads", options.threads, 1, kMostThreads, "Threads that compute [physical cores available]", "");
  line.flag("--no-mmap", options.no_mmap, "Read the file into memory instead of mapping it");
  line.flag("-v,--verbose", options.verbose,
            "Say more on stderr: what runs, on which backend, and notes about the file");
}

Result<std::shared_ptr<Engine>> load_engine(const std::string& path, const ModelOptions& options, uint32_t chunk,
                                            uint32_t sessions) {
  set_verbose(options.verbose);
  ProgressBar bar("loading", ProgressBar::Rate::kNone, std::chrono::milliseconds(300));
  EngineOptions engine;
  engine.backend = options.backend;
  engine.context = uint32_t(options.context);
  HC_ASSIGN(engine.kv_type, parse_kv_type(options.kv_type));
  engine.fast_activations = options.fast_activations;
  engine.threads = uint32_t(options.threads);
  engine.chunk = chunk;
  engine.mmap = !options.no_mmap;
  engine.max_sessions = sessions;
  if (const auto folder = kernel_folder()) engine.kernel_folder = *folder;  // without one nothing is kept
  engine.progress = [&bar](uint64_t done, uint64_t total) { bar.update(done, total); };
  HC_ASSIGN(std::shared_ptr<Engine> loaded, Engine::load(path, engine));
  const ModelInfo& info = loaded->info();
  if (options.verbose)
    print_note(fmt::format("{}: {}, {}; context {}; on {}", info.path, info.architecture, info.quantization,
                           info.context, info.backend));
  return loaded;
}

void add_answer_options(CommandLine& line, AnswerOptions& options) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  line.heading("Answer");
  line.integer("-n,--max-tokens", options.most_tokens, 0, kMost,
               "Tokens to answer with at most [until the answer or the context ends]", "");
  line.texts("--stop", options.stops, "TEXT", "End the answer before this text (repeatable)",
             [](const std::string& text) { return text.empty() ? "the text is empty" : ""; });
  line.flag("--ignore-eos", options.ignore_eos, "Do not let the model end the answer; needs -n or fills the context");
  line.heading("Sampling");
  line.decimal("--temp", options.temperature, 0, 1e9, "Temperature; 0: always the likeliest token", "0.8");
  line.integer("--top-k", options.top_k, -1, kMost, "Only the K likeliest tokens; 0 or -1: off", "40");
  line.decimal("--top-p", options.top_p, 0, 1, "Only the likeliest tokens that reach this probability; 1: off", "0.95");
  line.decimal("--min-p", options.min_p, 0, 1, "Only tokens this likely relative to the likeliest; 0: off", "0.05");
  line.decimal("--repeat-penalty", options.repeat_penalty, 0.01, 100, "Make recent tokens less likely; 1: off", "1");
  line.integer("--repeat-last-n", options.repeat_last_n, 0, kMost, "Tokens that the penalty looks back on", "64");
  line.text("--seed", options.seed, "N", "Whole number; the same seed gives the same answer [random]",
            CommandLine::Need::kOptional, [](const std::string& text) {
              return parse_number<uint64_t>(text) ? "" : shown(text) + " is not a whole number from 0 to 2^64-1";
            });
  line.texts("--logit-bias", options.logit_bias, "ID:BIAS", "Add BIAS to a token's logit; -inf forbids it (repeatable)",
             [](const std::string& text) {
               const auto parsed = parse_logit_bias(text);
               return parsed ? std::string() : parsed.error().message;
             });
}

Result<std::pair<Token, float>> parse_logit_bias(const std::string& text) {
  const size_t split = text.find_first_of(":=+-", 1);
  const auto fail_form = [&] { return invalid("{} is not of the form ID:BIAS, e.g. 42:-inf or 42:1.5", shown(text)); };
  if (split == std::string::npos) return fail_form();
  const auto id = parse_number<Token>(text.substr(0, split));
  const bool sign_is_separator = text[split] == '+' || text[split] == '-';
  const auto bias = parse_number<float>(text.substr(sign_is_separator ? split : split + 1));
  if (!id || *id < 0 || !bias || std::isnan(*bias)) return fail_form();
  if (*bias == std::numeric_limits<float>::infinity())
    return invalid("{}: the bias may be -inf, not +inf", shown(text));
  return std::pair(*id, *bias);
}

Result<SamplingOptions> sampling_options(AnswerOptions& options) {
  SamplingOptions sampling;
  sampling.temperature = float(options.temperature);
  sampling.top_k = int32_t(options.top_k);
  sampling.top_p = float(options.top_p);
  sampling.min_p = float(options.min_p);
  sampling.repeat_penalty = float(options.repeat_penalty);
  sampling.repeat_last_n = int32_t(options.repeat_last_n);
  std::random_device entropy;
  // 32 bits: a number that is easily typed again.
  options.chosen_seed = options.seed ? *parse_number<uint64_t>(*options.seed) : entropy();
  sampling.seed = options.chosen_seed;
  for (const std::string& text : options.logit_bias) {
    HC_ASSIGN(const auto bias, parse_logit_bias(text));
    sampling.logit_bias.push_back(bias);
  }
  return sampling;
}

}  // namespace honeycrisp::cli
