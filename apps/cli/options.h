// Options that several subcommands share, each described once: numbers with ranges, choices, the model, how it is
// loaded, how tokens are sampled. The type name of an option (FILE, MODEL, or its choices joined by |) is also what
// shell completion goes by. Knows nothing of what the values are used for.
#pragma once

#include "base/result.h"
#include <honeycrisp/engine.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace honeycrisp::cli {

inline constexpr const char* kTypeFile = "FILE";
inline constexpr const char* kTypeModel = "MODEL";

/// A whole number in [least, most]; the help shows `value` as it is now as the default if `show_default`.
CLI::Option* add_integer(CLI::App& app, const std::string& names, int64_t& value, int64_t least, int64_t most,
                         const std::string& description, const std::string& default_text);
/// A finite decimal number in [least, most].
CLI::Option* add_decimal(CLI::App& app, const std::string& names, double& value, double least, double most,
                         const std::string& description, const std::string& default_text);
/// One of `choices`.
CLI::Option* add_choice(CLI::App& app, const std::string& names, std::string& value,
                        const std::vector<std::string>& choices, const std::string& description,
                        const std::string& default_text);
CLI::Option* add_text(CLI::App& app, const std::string& names, std::optional<std::string>& value, const char* type_name,
                      const std::string& description);

/// Which model, and how it is loaded.
struct ModelOptions {
  std::optional<std::string> model;  // -m
  std::string backend = "auto";
  std::string kv_type = "f16";
  int64_t context = 0;  // 0: not given
  int64_t threads = 0;
  bool no_mmap = false;
  bool verbose = false;
};

void add_model_option(CLI::App& app, ModelOptions& options);  // -m, where the default model stands in for it
void add_backend_option(CLI::App& app, ModelOptions& options);
void add_kv_type_option(CLI::App& app, ModelOptions& options);
void add_context_option(CLI::App& app, ModelOptions& options);
void add_loading_options(CLI::App& app, ModelOptions& options);  // threads, mmap, verbose

/// Loads with a progress bar that appears if it takes long.
Result<std::shared_ptr<Engine>> load_engine(const std::string& path, const ModelOptions& options, uint32_t chunk,
                                            uint32_t sessions);

/// How an answer is made: sampling, and when it ends.
struct AnswerOptions {
  double temperature = 0.8, top_p = 0.95, min_p = 0.05, repeat_penalty = 1.0;
  int64_t top_k = 40, repeat_last_n = 64;
  std::optional<std::string> seed;  // unset: a random one
  std::vector<std::string> logit_bias;
  int64_t most_tokens = -1;  // −1: no limit but the context
  std::vector<std::string> stops;
  bool ignore_eos = false;
  uint64_t chosen_seed = 0;  // filled in by sampling_options()
};

void add_answer_options(CLI::App& app, AnswerOptions& options);
/// Picks the seed if none was given. Errors name the option.
Result<SamplingOptions> sampling_options(AnswerOptions& options);

/// "ID:BIAS", "ID=BIAS", "ID+BIAS" or "ID-BIAS"; BIAS may be inf.
Result<std::pair<Token, float>> parse_logit_bias(const std::string& text);

}  // namespace honeycrisp::cli
