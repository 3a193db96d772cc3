#include "cli/options.h"

#include "base/text_escape.h"
#include "cli/term/messages.h"
#include "cli/term/progress.h"

#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <random>

namespace honeycrisp::cli {
namespace {

constexpr const char* kModelGroup = "Model";
constexpr const char* kSamplingGroup = "Sampling";
constexpr int64_t kMostContext = int64_t(1) << 24;  // positions; more than any model, and its arithmetic stays small

template <class T>
std::optional<T> parse_whole(const std::string& text) {
  T value{};
  const char* begin = text.data();
  const char* end = begin + text.size();
  if (text.size() > 1 && *begin == '+' && begin[1] != '-') ++begin;
  const auto [stop, fault] = std::from_chars(begin, end, value);
  if (fault != std::errc() || stop != end || begin == end) return std::nullopt;
  return value;
}

std::string shown(const std::string& text) { return "\"" + escape_for_display(text, 60) + "\""; }

/// The last one given counts, as usual for command lines.
CLI::Option* finish(CLI::Option* option, const std::string& type_name, const std::string& default_text) {
  option->type_name(type_name)->take_last();
  if (!default_text.empty()) option->default_str(default_text);
  return option;
}

}  // namespace

CLI::Option* add_integer(CLI::App& app, const std::string& names, int64_t& value, int64_t least, int64_t most,
                         const std::string& description, const std::string& default_text) {
  const auto set = [&value, least, most, names](const std::string& text) {
    const auto parsed = parse_whole<int64_t>(text);
    if (!parsed || *parsed < least || *parsed > most)
      throw CLI::ValidationError(
          fmt::format("{}: {} is not a whole number from {} to {}", names, shown(text), least, most));
    value = *parsed;
  };
  return finish(app.add_option_function<std::string>(names, set, description), "N", default_text);
}

CLI::Option* add_decimal(CLI::App& app, const std::string& names, double& value, double least, double most,
                         const std::string& description, const std::string& default_text) {
  const auto set = [&value, least, most, names](const std::string& text) {
    const auto parsed = parse_whole<double>(text);
    if (!parsed || !std::isfinite(*parsed) || *parsed < least || *parsed > most)
      throw CLI::ValidationError(fmt::format("{}: {} is not a number from {} to {}", names, shown(text), least, most));
    value = *parsed;
  };
  return finish(app.add_option_function<std::string>(names, set, description), "X", default_text);
}

CLI::Option* add_choice(CLI::App& app, const std::string& names, std::string& value,
                        const std::vector<std::string>& choices, const std::string& description,
                        const std::string& default_text) {
  const std::string type_name = fmt::format("{}", fmt::join(choices, "|"));
  const auto set = [&value, choices, names, type_name](const std::string& text) {
    if (std::find(choices.begin(), choices.end(), text) == choices.end())
      throw CLI::ValidationError(fmt::format("{}: {} is not one of {}", names, shown(text), type_name));
    value = text;
  };
  return finish(app.add_option_function<std::string>(names, set, description), type_name, default_text);
}

CLI::Option* add_text(CLI::App& app, const std::string& names, std::optional<std::string>& value, const char* type_name,
                      const std::string& description) {
  return finish(app.add_option_function<std::string>(
                    names, [&value](const std::string& text) { value = text; }, description),
                type_name, "");
}

void add_model_option(CLI::App& app, ModelOptions& options) {
  add_text(
      app, "-m,--model", options.model, kTypeModel,
      "A GGUF file (any file of a split model) or the name of a pulled model; without it the default model, smollm2, "
      "is used and fetched the first time")
      ->group(kModelGroup);
}

void add_backend_option(CLI::App& app, ModelOptions& options) {
  std::vector<std::string> names = {"auto"};
  for (std::string& name : backend_names()) names.push_back(std::move(name));
  add_choice(app, "--backend", options.backend, names, "What computes", "auto")->group(kModelGroup);
}

void add_kv_type_option(CLI::App& app, ModelOptions& options) {
  add_choice(app, "--kv-type", options.kv_type, {"f16", "f32", "q8_0"}, "Type of the cached keys and values",
             options.kv_type)
      ->group(kModelGroup);
}

void add_context_option(CLI::App& app, ModelOptions& options) {
  add_integer(app, "-c,--context", options.context, 1, kMostContext,
              "Positions of context, prompt and answer together; memory is taken as they fill", "min(model, 8192)")
      ->group(kModelGroup);
}

void add_loading_options(CLI::App& app, ModelOptions& options) {
  add_integer(app, "-t,--threads", options.threads, 1, 1024, "Threads that compute", "physical cores available")
      ->group(kModelGroup);
  app.add_flag("--no-mmap", options.no_mmap, "Read the file into memory instead of mapping it")->group(kModelGroup);
  app.add_flag("-v,--verbose", options.verbose, "Say more on stderr: what was chosen and why")->group(kModelGroup);
}

Result<std::shared_ptr<Engine>> load_engine(const std::string& path, const ModelOptions& options, uint32_t chunk,
                                            uint32_t sessions) {
  set_verbose(options.verbose);
  ProgressBar bar("loading", ProgressBar::Rate::kNone, std::chrono::milliseconds(300));
  EngineOptions engine;
  engine.backend = options.backend;
  engine.context = uint32_t(options.context);
  HC_ASSIGN(engine.kv_type, parse_kv_type(options.kv_type));
  engine.threads = uint32_t(options.threads);
  engine.chunk = chunk;
  engine.mmap = !options.no_mmap;
  engine.max_sessions = sessions;
  engine.progress = [&bar](uint64_t done, uint64_t total) { bar.update(done, total); };
  return Engine::load(path, engine);
}

void add_answer_options(CLI::App& app, AnswerOptions& options) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  add_integer(app, "-n,--max-tokens", options.most_tokens, 0, kMost, "Tokens to answer with at most",
              "until the answer or the context ends");
  app.add_option("--stop", options.stops, "End the answer before this text (repeatable)")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app.add_flag("--ignore-eos", options.ignore_eos,
               "Do not let the model end the answer; needs -n or fills the context");
  add_decimal(app, "--temp", options.temperature, 0, 1e9, "Temperature; 0: always the likeliest token", "0.8")
      ->group(kSamplingGroup);
  add_integer(app, "--top-k", options.top_k, -1, kMost, "Only the K likeliest tokens; 0 or -1: off", "40")
      ->group(kSamplingGroup);
  add_decimal(app, "--top-p", options.top_p, 0, 1, "Only the likeliest tokens that reach this probability; 1: off",
              "0.95")
      ->group(kSamplingGroup);
  add_decimal(app, "--min-p", options.min_p, 0, 1, "Only tokens this likely relative to the likeliest; 0: off", "0.05")
      ->group(kSamplingGroup);
  add_decimal(app, "--repeat-penalty", options.repeat_penalty, 0.01, 100, "Make recent tokens less likely; 1: off", "1")
      ->group(kSamplingGroup);
  add_integer(app, "--repeat-last-n", options.repeat_last_n, 0, kMost, "Tokens that the penalty looks back on", "64")
      ->group(kSamplingGroup);
  add_text(app, "--seed", options.seed, "N", "Whole number; the same seed gives the same answer [random]")
      ->group(kSamplingGroup)
      ->check([](const std::string& text) {
        return parse_whole<uint64_t>(text) ? "" : "--seed: " + shown(text) + " is not a whole number from 0 to 2^64-1";
      });
  app.add_option("--logit-bias", options.logit_bias, "Add BIAS to a token's logit; -inf forbids it (repeatable)")
      ->type_name("ID:BIAS")
      ->allow_extra_args(false)
      ->group(kSamplingGroup)
      ->check([](const std::string& text) {
        const auto parsed = parse_logit_bias(text);
        return parsed ? std::string() : "--logit-bias: " + parsed.error().message;
      });
}

Result<std::pair<Token, float>> parse_logit_bias(const std::string& text) {
  const size_t split = text.find_first_of(":=+-", 1);
  const auto fail_form = [&] { return invalid("{} is not of the form ID:BIAS, e.g. 42:-inf or 42:1.5", shown(text)); };
  if (split == std::string::npos) return fail_form();
  const auto id = parse_whole<Token>(text.substr(0, split));
  const bool sign_is_separator = text[split] == '+' || text[split] == '-';
  const auto bias = parse_whole<float>(text.substr(sign_is_separator ? split : split + 1));
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
  options.chosen_seed = options.seed ? *parse_whole<uint64_t>(*options.seed) : entropy();
  sampling.seed = options.chosen_seed;
  for (const std::string& text : options.logit_bias) {
    HC_ASSIGN(const auto bias, parse_logit_bias(text));
    sampling.logit_bias.push_back(bias);
  }
  return sampling;
}

}  // namespace honeycrisp::cli
