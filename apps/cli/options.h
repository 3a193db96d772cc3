// Options that several subcommands share, each described once: the model, how it is loaded, how tokens are sampled.
#pragma once

#include "base/result.h"
#include "cli/command.h"
#include <honeycrisp/engine.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace honeycrisp::cli {

/// Which model, and how it is loaded.
struct ModelOptions {
  std::optional<std::string> model;  // -m
  std::string backend = "auto";
  std::string kv_type = "f16";
  bool fast_activations = false;
  int64_t context = 0;  // 0: not given
  int64_t threads = 0;
  bool no_mmap = false;
  bool verbose = false;
};

void add_model_option(CommandLine& line, ModelOptions& options);    // -m, where the default model stands in for it
void add_backend_option(CommandLine& line, ModelOptions& options);  // and how exactly it computes
void add_kv_type_option(CommandLine& line, ModelOptions& options);
void add_context_option(CommandLine& line, ModelOptions& options);
void add_loading_options(CommandLine& line, ModelOptions& options);  // threads, mmap, verbose

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

void add_answer_options(CommandLine& line, AnswerOptions& options);
/// Picks the seed if none was given. Errors name the option.
Result<SamplingOptions> sampling_options(AnswerOptions& options);

/// "ID:BIAS", "ID=BIAS", "ID+BIAS" or "ID-BIAS"; BIAS may be inf.
Result<std::pair<Token, float>> parse_logit_bias(const std::string& text);

}  // namespace honeycrisp::cli
