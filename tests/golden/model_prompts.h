// The prompts of tests/data/models: their tokens, and what the f32 arithmetic of others made of them
// (tests/data/README.md).
#pragma once

#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <vector>

namespace honeycrisp::testing {

struct GoldenModel {
  const char* golden;   // tests/data/models/<golden>.json
  const char* file;     // in HONEYCRISP_MODEL_DIR
  double llama_cpp_kl;  // what 8-bit activations give, for comparison

  friend void PrintTo(const GoldenModel& model, std::ostream* out) { *out << model.golden; }
};
inline constexpr GoldenModel kGoldenModels[] = {
    {"smollm2", "smollm2-135m-instruct-q4_1.gguf", 5e-3},
    {"gemma3", "gemma3-270m-q4_k_m.gguf", 8e-3},
};

struct GoldenPrompt {
  std::vector<int32_t> tokens, greedy;
  std::vector<double> logsumexp;                // [positions]
  std::vector<std::vector<int32_t>> top_ids;    // [positions][10]
  std::vector<std::vector<double>> top_logits;  // [positions][10]
};

std::vector<GoldenPrompt> read_prompts(const std::string& golden);

/// KL(golden ‖ ours) at a position, over the golden's ten best tokens and the rest as one.
double divergence(const GoldenPrompt& golden, size_t position, std::span<const float> logits);

/// Where the model's file is; empty if it is not there.
std::string model_path(const GoldenModel& model);
/// For GTEST_SKIP: how to get it.
std::string how_to_get(const GoldenModel& model);

}  // namespace honeycrisp::testing
