// See honeycrisp/sampling.h. No step sorts the vocabulary: the cut of top_k and top_p is found by counting digits of
// the logits' bit patterns, three linear passes whatever the values are. What is left stays in order of id, so that
// sums are taken in one fixed order.
#include "base/result.h"
#include "engine/portable_math.h"
#include <honeycrisp/sampling.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

namespace honeycrisp {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

/// Orders floats as unsigned integers: a < b exactly if key(a) < key(b). −0 and +0 have one key. No NaN.
uint32_t order_key(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value == 0 ? 0.0f : value);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct Extremes {
  float best = -kInfinity;
  bool broken = false;  // a NaN or +infinity
};

Extremes scan(std::span<const float> logits) {
  Extremes result;
  for (const float x : logits) {
    result.broken |= !(x <= kLargest);
    result.best = x > result.best ? x : result.best;
  }
  return result;
}

/// `first`: the lowest id of them, with the logit `value`.
tl::unexpected<Error> broken_logits(size_t n_broken, size_t vocabulary, Token first, float value) {
  return fail(ErrorCode::kInternal,
              "the model's result is unusable: {} of {} logits are not numbers or infinite (token {}'s is {}). Its "
              "weights are damaged, or this backend computes them wrongly: try another copy or another backend",
              n_broken, vocabulary, first, value);
}

tl::unexpected<Error> broken_logits(std::span<const float> logits) {
  const auto is_broken = [](float x) { return !(x <= kLargest); };
  const auto first = std::find_if(logits.begin(), logits.end(), is_broken);
  return broken_logits(size_t(std::count_if(logits.begin(), logits.end(), is_broken)), logits.size(),
                       Token(first - logits.begin()), *first);
}

tl::unexpected<Error> all_banned() { return invalid("no token may be chosen: every logit is -infinity"); }

Token argmax(std::span<const float> logits, float best) {
  return Token(std::find(logits.begin(), logits.end(), best) - logits.begin());
}

double sum(std::span<const double> values) {
  double total = 0;
  for (const double x : values) total += x;
  return total;
}

/// splitmix64 (Steele, Lea and Flood, 2014): spreads a seed over a generator's state.
uint64_t splitmix64(uint64_t& state) {
  uint64_t z = state += 0x9E3779B97F4A7C15;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
  z = (z ^ z >> 27) * 0x94D049BB133111EB;
  return z ^ z >> 31;
}

Result<void> check_range(const char* name, float value, float low, float high) {
  if (value >= low && value <= high) return {};  // false for NaN
  if (high == kLargest) return invalid("{} must be a finite number of at least {}, not {}", name, low, value);
  return invalid("{} must be between {} and {}, not {}", name, low, high, value);
}

}  // namespace

Result<void> validate(const SamplingOptions& options, size_t vocabulary) {
  HC_TRY(check_range("temperature", options.temperature, 0, kLargest));
  HC_TRY(check_range("top_p", options.top_p, 0, 1));
  HC_TRY(check_range("min_p", options.min_p, 0, 1));
  HC_TRY(check_range("repeat_penalty", options.repeat_penalty, 0, kLargest));
  if (options.repeat_penalty == 0) return invalid("repeat_penalty must be greater than 0 (1 turns it off)");
  if (options.repeat_last_n < 0) return invalid("repeat_last_n must not be negative, not {}", options.repeat_last_n);
  for (const auto& [token, bias] : options.logit_bias) {
    if (token < 0 || size_t(token) >= vocabulary)
      return invalid("logit_bias names token {}, but the vocabulary has {} tokens", token, vocabulary);
    if (!(bias <= kLargest)) return invalid("logit_bias of token {} must be finite or -infinity, not {}", token, bias);
  }
  return {};
}

Result<Sampler> Sampler::create(SamplingOptions options, size_t vocabulary) {
  HC_TRY(validate(options, vocabulary));
  Sampler sampler;
  uint64_t seed = options.seed;
  for (uint64_t& word : sampler.random_) word = splitmix64(seed);
  sampler.options_ = std::move(options);
  sampler.vocabulary_ = vocabulary;
  return sampler;
}

Result<Token> Sampler::sample(std::span<const float> logits) {
  if (logits.size() != vocabulary_) return invalid("the sampler expects {} logits, not {}", vocabulary_, logits.size());
  if (scan(logits).broken) return broken_logits(logits);
  logits = adjust(logits);
  const float best = scan(logits).best;
  if (best == -kInfinity) return all_banned();
  if (options_.temperature < kGreedyTemperature) return argmax(logits, best);

  pool_ = {.logits = logits};
  if (options_.top_k > 0 && size_t(options_.top_k) < logits.size()) keep(find_cut({}, options_.top_k));
  return choose(best);
}

uint32_t Sampler::n_needed() const {
  const bool penalizes = options_.repeat_penalty != 1 && options_.repeat_last_n != 0;
  if (penalizes || !options_.logit_bias.empty()) return 0;
  if (options_.temperature < kGreedyTemperature) return 1;
  return options_.top_k > 0 && uint32_t(options_.top_k) <= kMostTopLogits ? uint32_t(options_.top_k) : 0;
}

Result<Token> Sampler::sample(const TopLogits& top) {
  const size_t needed = std::min<size_t>(n_needed(), vocabulary_);
  if (needed == 0)
    return invalid("these sampling options need all {} logits: compute the last token without n_top", vocabulary_);
  if (top.n < needed) return invalid("the sampler needs the {} largest logits, not {}", needed, top.n);
  const float best = top.logits[0];
  if (top.n_unusable != 0) return broken_logits(top.n_unusable, vocabulary_, top.tokens[0], best);
  if (best == -kInfinity) return all_banned();
  if (options_.temperature < kGreedyTemperature) return top.tokens[0];

  // In order of id, as what is kept of all logits stands: sums are then taken in the same order.
  std::array<uint32_t, kMostTopLogits> ranks;
  const std::span by_id = std::span(ranks).first(needed);
  std::iota(by_id.begin(), by_id.end(), 0u);
  std::sort(by_id.begin(), by_id.end(), [&](uint32_t a, uint32_t b) { return top.tokens[a] < top.tokens[b]; });
  kept_logits_.resize(std::max(kept_logits_.size(), needed));
  kept_tokens_.resize(kept_logits_.size());
  for (size_t i = 0; i < needed; ++i) {
    kept_logits_[i] = top.logits[by_id[i]];
    kept_tokens_[i] = top.tokens[by_id[i]];
  }
  pool_ = {std::span(kept_logits_).first(needed), std::span(kept_tokens_).first(needed)};
  return choose(best);
}

/// Of the pool that top_k left.
Result<Token> Sampler::choose(float best) {
  if (options_.top_p < 1 || options_.min_p > 0) {
    weigh(best, 1);
    if (options_.top_p < 1) keep(find_cut(weights_, sum(weights_) * double(options_.top_p)));
    if (options_.min_p > 0) {
      weigh(best, 1);
      keep_if([&](size_t i) { return weights_[i] >= double(options_.min_p); });
    }
  }
  weigh(best, 1 / double(options_.temperature));
  return draw();
}

std::span<const float> Sampler::adjust(std::span<const float> logits) {
  if (options_.logit_bias.empty() && recent_counts_.empty()) return logits;
  adjusted_.assign(logits.begin(), logits.end());
  // Finite sums and products that overflow stay finite: a bias is a wish, not an error.
  for (const auto& [token, bias] : options_.logit_bias) {
    float& logit = adjusted_[size_t(token)];
    logit = bias == -kInfinity || logit == -kInfinity ? -kInfinity : std::clamp(logit + bias, -kLargest, kLargest);
  }
  for (const auto& [token, count] : recent_counts_) {
    float& logit = adjusted_[size_t(token)];
    if (logit == -kInfinity) continue;
    const float lowered = logit > 0 ? logit / options_.repeat_penalty : logit * options_.repeat_penalty;
    logit = std::clamp(lowered, -kLargest, kLargest);
  }
  return adjusted_;
}

/// Weights of the pool: exp((logit - best) · scale).
void Sampler::weigh(float best, double scale) {
  weights_.resize(pool_.logits.size());
  for (size_t i = 0; i < weights_.size(); ++i)
    weights_[i] = engine::portable_exp((double(pool_.logits[i]) - double(best)) * scale);
}

/// Where the fewest members of the pool end, taken from the best down, whose weights sum to at least `mass`; at least
/// one. `weights` are equal where logits are; empty: all are 1.
Sampler::Cut Sampler::find_cut(std::span<const double> weights, double mass) {
  struct Digit {
    uint32_t shift, bits;
  };
  constexpr Digit kDigits[] = {{21, 11}, {10, 11}, {0, 10}};
  constexpr size_t kBins = 1 << 11, kWordBits = 64;
  bins_.resize(kBins);  // all empty: few logits fill few of them, and only those are looked at and emptied again
  Cut cut;
  uint32_t known = 0;  // bits of the cut's key that have been found
  double above = 0;    // weight of what is certainly in
  for (const Digit digit : kDigits) {
    const uint32_t digit_mask = (1u << digit.bits) - 1;
    std::array<uint64_t, kBins / kWordBits> filled = {};  // a bit per bin
    for (size_t i = 0; i < pool_.logits.size(); ++i) {
      const uint32_t key = order_key(pool_.logits[i]);
      if ((key & known) != cut.key) continue;
      const uint32_t b = key >> digit.shift & digit_mask;
      Bin& bin = bins_[b];
      bin.weight += weights.empty() ? 1 : weights[i];
      if (bin.count++ == 0) filled[b / kWordBits] |= uint64_t{1} << b % kWordBits;
    }
    uint32_t chosen = 0;  // rounding may leave the mass unreached: then the lowest bin that holds anything
    double reached = above;
    Bin lowest;
    bool is_found = false;
    for (size_t word = filled.size(); word-- > 0;)
      for (; filled[word] != 0; filled[word] &= ~std::bit_floor(filled[word])) {
        const auto b = uint32_t(word * kWordBits + size_t(std::bit_width(filled[word])) - 1);
        const Bin bin = std::exchange(bins_[b], {});
        if (is_found) continue;
        chosen = b;
        lowest = bin;
        above = reached;
        reached += bin.weight;
        is_found = reached >= mass;
      }
    cut.key |= chosen << digit.shift;
    known |= digit_mask << digit.shift;
    if (digit.shift == 0) {
      const double each = lowest.weight / lowest.count;
      for (cut.ties = 1; cut.ties < lowest.count && above + cut.ties * each < mass;) ++cut.ties;
    }
  }
  return cut;
}

/// Reduces the pool to its members above the cut and the first `ties` at it.
void Sampler::keep(Cut cut) {
  keep_if([&](size_t i) {
    const uint32_t key = order_key(pool_.logits[i]);
    return key > cut.key || (key == cut.key && cut.ties > 0 && cut.ties-- > 0);
  });
}

template <class Predicate>
void Sampler::keep_if(const Predicate& stays) {
  // Reads run ahead of writes, so the pool may already lie in kept_.
  const bool all_tokens = pool_.tokens.empty();
  const size_t n = pool_.logits.size();
  size_t n_kept = 0;
  kept_logits_.resize(std::max(kept_logits_.size(), all_tokens ? n : 0));
  kept_tokens_.resize(kept_logits_.size());
  for (size_t i = 0; i < n; ++i) {
    if (!stays(i)) continue;
    kept_tokens_[n_kept] = all_tokens ? Token(i) : pool_.tokens[i];
    kept_logits_[n_kept++] = pool_.logits[i];
  }
  pool_ = {std::span(kept_logits_).first(n_kept), std::span(kept_tokens_).first(n_kept)};
}

/// One of the pool in proportion to weights_, which are 0 for tokens that are banned or far too unlikely.
Token Sampler::draw() {
  const double uniform = double(next_random() >> 11) * 0x1p-53;  // [0, 1)
  double left = uniform * sum(weights_);
  size_t chosen = 0;
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] == 0) continue;
    chosen = i;
    left -= weights_[i];
    if (left < 0) break;
  }
  return pool_.tokens.empty() ? Token(chosen) : pool_.tokens[chosen];
}

void Sampler::accept(Token token) {
  if (options_.repeat_penalty == 1 || options_.repeat_last_n == 0) return;
  if (token < 0 || size_t(token) >= vocabulary_) return;
  ++recent_counts_[token];
  if (recent_.size() < size_t(options_.repeat_last_n)) {
    recent_.push_back(token);
    return;
  }
  const auto oldest = recent_counts_.find(recent_[recent_at_]);
  if (--oldest->second == 0) recent_counts_.erase(oldest);
  recent_[recent_at_] = token;
  recent_at_ = (recent_at_ + 1) % recent_.size();
}

/// xoshiro256** (Blackman and Vigna, 2018).
uint64_t Sampler::next_random() {
  auto& s = random_;
  const uint64_t result = std::rotl(s[1] * 5, 7) * 9;
  const uint64_t t = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= t;
  s[3] = std::rotl(s[3], 45);
  return result;
}

}  // namespace honeycrisp
