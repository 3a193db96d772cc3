// How the next token is chosen from a row of logits.
#pragma once

#include "honeycrisp/result.h"

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace honeycrisp {

using Token = int32_t;

/// Applied in this order: logit_bias → repeat penalty → [temperature ≤ 0: argmax] → top_k → top_p → min_p →
/// temperature → draw. top_p and min_p look at probabilities before temperature. The best token always survives.
/// Ties go to the lowest id.
struct SamplingOptions {
  float temperature = 0.8f;     // ≤ 0 (or below 1e-5): greedy
  int32_t top_k = 40;           // ≤ 0 or ≥ vocabulary: off
  float top_p = 0.95f;          // ≥ 1: off
  float min_p = 0.05f;          // ≤ 0: off; keeps tokens with p ≥ min_p · p_best
  float repeat_penalty = 1.0f;  // 1: off; > 1 lowers tokens among the last repeat_last_n
  int32_t repeat_last_n = 64;
  uint64_t seed = 0;  // the whole of a sequence's randomness: the same seed gives the same tokens everywhere
  std::vector<std::pair<Token, float>> logit_bias;  // added to the logit; −infinity bans the token
};

/// Checks ranges (NaN, negative penalties, ids outside the vocabulary). An error names the option.
Result<void> validate(const SamplingOptions& options, size_t vocabulary);

/// One sequence's sampler, with its own random generator (the same on every platform). Not thread safe.
class Sampler {
 public:
  static Result<Sampler> create(SamplingOptions options, size_t vocabulary);

  /// Chooses from logits [vocabulary]. Error: no finite logit (NaN or all −infinity).
  Result<Token> sample(std::span<const float> logits);
  /// Records a token that the sequence now holds (prompt or generated), for the repeat penalty.
  void accept(Token token);

  const SamplingOptions& options() const { return options_; }

 private:
  SamplingOptions options_;
  size_t vocabulary_ = 0;
  uint64_t rng_[2] = {};
  std::vector<Token> recent_;  // ring of the last repeat_last_n
  size_t recent_at_ = 0;
  std::vector<std::pair<float, Token>> candidates_;
};

}  // namespace honeycrisp
