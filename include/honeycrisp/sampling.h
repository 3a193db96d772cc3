// How the next token is chosen from a row of logits.
#pragma once

#include "honeycrisp/result.h"
#include "honeycrisp/top_logits.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace honeycrisp {

using Token = int32_t;

/// Applied in this order: logit_bias → repeat_penalty → [temperature below kGreedyTemperature: argmax] → top_k → top_p
/// → min_p → temperature → draw. top_p and min_p look at probabilities before temperature: p = softmax(logits), over
/// what top_k left. The best token always survives. Ties go to the lowest id.
struct SamplingOptions {
  float temperature = 0.8f;     // ≥ 0; 0: greedy
  int32_t top_k = 40;           // ≤ 0 or ≥ vocabulary: off
  float top_p = 0.95f;          // 0..1; 1: off; keeps the fewest best tokens whose p sum to at least top_p
  float min_p = 0.05f;          // 0..1; 0: off; keeps tokens with p ≥ min_p · p_best
  float repeat_penalty = 1.0f;  // > 0; 1: off; > 1 lowers tokens among the last repeat_last_n (arXiv:1909.05858, 4.1)
  int32_t repeat_last_n = 64;   // ≥ 0
  uint64_t seed = 0;            // the whole of a sequence's randomness: the same seed gives the same tokens everywhere
  std::vector<std::pair<Token, float>> logit_bias = {};  // added to the logit; −infinity bans the token
};

/// Temperatures below this choose the best token, whatever the other options say.
inline constexpr float kGreedyTemperature = 1e-5f;

/// Checks ranges (NaN, infinities, negative numbers, ids outside the vocabulary). An error names the option.
Result<void> validate(const SamplingOptions& options, size_t vocabulary);

/// One sequence's sampler, with its own random generator. Integer and plain IEEE arithmetic only: the same tokens from
/// the same logits on every platform. Not thread safe.
class Sampler {
 public:
  static Result<Sampler> create(SamplingOptions options, size_t vocabulary);

  /// Chooses from logits [vocabulary]. Errors: another number of logits; one is NaN or +infinity; all are −infinity
  /// (or banned).
  Result<Token> sample(std::span<const float> logits);
  /// How many of the largest logits are all that sample() needs with these options; 0: it needs all logits.
  uint32_t n_needed() const;
  /// The same choice from the largest logits, at least n_needed() of them where that is not 0: the same tokens, errors
  /// and use of the random generator. Error: fewer than it needs.
  Result<Token> sample(const TopLogits& top);
  /// Records a token that the sequence now holds (prompt or generated), for the repeat penalty.
  void accept(Token token);

  const SamplingOptions& options() const { return options_; }

 private:
  /// The tokens still in the running, in order of id.
  struct Pool {
    std::span<const float> logits;
    std::span<const Token> tokens;  // empty: all, logits[i] is token i's
  };
  struct Cut {
    uint32_t key = 0;   // order of the lowest logit that is in
    uint32_t ties = 0;  // how many tokens of that logit are
  };
  struct Bin {
    double weight = 0;
    uint32_t count = 0;
  };
  Result<Token> choose(float best);
  std::span<const float> adjust(std::span<const float> logits);
  void weigh(float best, double scale);
  Cut find_cut(std::span<const double> weights, double mass);
  void keep(Cut cut);
  template <class Predicate>
  void keep_if(const Predicate& stays);
  Token draw();
  uint64_t next_random();

  SamplingOptions options_;
  size_t vocabulary_ = 0;
  std::array<uint64_t, 4> random_ = {};
  std::vector<Token> recent_;  // ring of the last repeat_last_n tokens
  size_t recent_at_ = 0;
  std::unordered_map<Token, uint32_t> recent_counts_;
  // Scratch of sample(), kept so that a warm sampler allocates nothing.
  std::vector<float> adjusted_;  // [vocabulary] logits after bias and penalty
  Pool pool_;
  std::vector<float> kept_logits_;
  std::vector<Token> kept_tokens_;
  std::vector<double> weights_;  // [pool]
  std::vector<Bin> bins_;
};

}  // namespace honeycrisp
