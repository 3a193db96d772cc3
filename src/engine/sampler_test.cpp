// Sampling: edges of every option, ties, determinism, the cut of top_k and top_p against a plain sort, and the same
// choices from the largest logits alone.
#include "backend/top_logits.h"
#include "engine/portable_math.h"
#include <honeycrisp/sampling.h>

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <numeric>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <set>

namespace honeycrisp {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
const std::vector<float> kLogits = {0.5f, 3.0f, -1.0f, 3.0f, 2.5f, -kInf};

/// Everything off: draws from softmax(logits).
SamplingOptions plain(uint64_t seed = 1) {
  return {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = seed};
}
Token sample(const SamplingOptions& options, const std::vector<float>& logits = kLogits) {
  return Sampler::create(options, logits.size()).value().sample(logits).value();
}
std::set<Token> survivors(SamplingOptions options, const std::vector<float>& logits, int draws = 2000) {
  options.temperature = 1e9f;  // all that survive are equally likely
  Sampler sampler = Sampler::create(options, logits.size()).value();
  std::set<Token> seen;
  for (int i = 0; i < draws; ++i) seen.insert(sampler.sample(logits).value());
  return seen;
}

TEST(PortableExp, agrees_with_the_c_library) {
  for (double x = 0; x > -708; x -= 0.0137) {
    const double expected = std::exp(x);
    EXPECT_NEAR(engine::portable_exp(x), expected, expected * 1e-15) << x;
  }
  EXPECT_EQ(engine::portable_exp(0), 1.0);
  EXPECT_EQ(engine::portable_exp(-0.0), 1.0);
  EXPECT_EQ(engine::portable_exp(-709), 0.0);
  EXPECT_EQ(engine::portable_exp(-1e300), 0.0);
  EXPECT_EQ(engine::portable_exp(-std::numeric_limits<double>::infinity()), 0.0);
}

TEST(Sampler, every_combination_of_extremes_gives_a_possible_token) {
  for (const float temperature : {0.0f, 1e-9f, 1.0f, 1e9f, 3e38f})
    for (const float top_p : {0.0f, 1e-9f, 1.0f})
      for (const int32_t top_k : {-1, 0, 1, 1'000'000'000})
        for (const float min_p : {0.0f, 1.0f}) {
          SamplingOptions options = plain();
          options.temperature = temperature;
          options.top_p = top_p;
          options.top_k = top_k;
          options.min_p = min_p;
          const Token token = sample(options);
          EXPECT_TRUE(token >= 0 && token < 5) << token;
          const bool greedy = temperature < kGreedyTemperature || top_p < 1 || top_k == 1;
          EXPECT_TRUE(!greedy || token == 1) << token;
          EXPECT_TRUE(min_p < 1 || token == 1 || token == 3) << token;
        }
}

TEST(Sampler, options_out_of_range_are_refused_by_name) {
  const auto message = [](auto&& change) {
    SamplingOptions options;
    change(options);
    const Result<void> result = validate(options, 10);
    return result ? std::string("accepted") : result.error().message;
  };
  for (const float bad : {kNan, kInf, -kInf, -1.0f}) {
    EXPECT_TRUE(message([&](auto& o) { o.temperature = bad; }).starts_with("temperature must be")) << bad;
    EXPECT_TRUE(message([&](auto& o) { o.top_p = bad; }).starts_with("top_p must be")) << bad;
    EXPECT_TRUE(message([&](auto& o) { o.min_p = bad; }).starts_with("min_p must be")) << bad;
    EXPECT_TRUE(message([&](auto& o) { o.repeat_penalty = bad; }).starts_with("repeat_penalty must be")) << bad;
  }
  EXPECT_TRUE(message([](auto& o) { o.top_p = 1.5f; }).starts_with("top_p must be"));
  EXPECT_TRUE(message([](auto& o) { o.repeat_penalty = 0; }).starts_with("repeat_penalty must be"));
  EXPECT_TRUE(message([](auto& o) { o.repeat_last_n = -1; }).starts_with("repeat_last_n must"));
  for (const Token bad : {-1, 10, INT32_MAX})
    EXPECT_TRUE(message([&](auto& o) { o.logit_bias = {{bad, 1.0f}}; }).starts_with("logit_bias names token"));
  for (const float bad : {kNan, kInf})
    EXPECT_TRUE(message([&](auto& o) { o.logit_bias = {{1, bad}}; }).starts_with("logit_bias of token 1"));
  EXPECT_EQ(message([](auto& o) { o.logit_bias = {{1, -kInf}}; }), "accepted");
}

TEST(Sampler, logits_that_are_no_numbers_are_an_error_not_token_0) {
  for (const float temperature : {0.0f, 1.0f}) {
    SamplingOptions options = plain();
    options.temperature = temperature;
    Sampler sampler = Sampler::create(options, 3).value();
    const Error error = sampler.sample(std::vector{1.0f, kNan, 2.0f}).error();
    EXPECT_EQ(error.code, ErrorCode::kInternal);
    EXPECT_NE(error.message.find("1 of 3 logits are not numbers or infinite (token 1's is nan)"), std::string::npos)
        << error.message;
    EXPECT_EQ(sampler.sample(std::vector{kNan, kNan, kNan}).error().code, ErrorCode::kInternal);
    EXPECT_EQ(sampler.sample(std::vector{1.0f, kInf, 2.0f}).error().code, ErrorCode::kInternal);
    EXPECT_EQ(sampler.sample(std::vector{-kInf, -kInf, -kInf}).error().code, ErrorCode::kInvalidInput);
    EXPECT_EQ(sampler.sample(std::vector{1.0f}).error().code, ErrorCode::kInvalidInput);
    EXPECT_EQ(sampler.sample(std::vector{-kInf, -kInf, 0.0f}).value(), 2);
  }
}

TEST(Sampler, a_bias_adds_bans_and_never_overflows) {
  SamplingOptions options = plain();
  options.temperature = 0;
  options.logit_bias = {{1, -kInf}, {2, 3.9f}};
  EXPECT_EQ(sample(options), 3);
  options.logit_bias = {{2, 4.1f}};
  EXPECT_EQ(sample(options), 2);
  options.logit_bias = {{2, 3e38f}, {2, 3e38f}};
  EXPECT_EQ(sample(options), 2);
  options.logit_bias.clear();
  for (Token t = 0; t < 6; ++t) options.logit_bias.emplace_back(t, -kInf);
  EXPECT_EQ(Sampler::create(options, 6).value().sample(kLogits).error().code, ErrorCode::kInvalidInput);
}

TEST(Sampler, the_repeat_penalty_counts_only_the_last_n) {
  SamplingOptions options = plain();
  options.temperature = 0;
  options.repeat_penalty = 2;
  options.repeat_last_n = 2;
  Sampler sampler = Sampler::create(options, 6).value();
  for (const Token t : {1, 3, 1}) sampler.accept(t);
  EXPECT_EQ(sampler.sample(kLogits).value(), 4);  // 3 → 1.5 for both 1 and 3
  sampler.accept(4);                              // the window is 1, 4
  EXPECT_EQ(sampler.sample(kLogits).value(), 3);
  sampler.accept(-1);  // ignored
  sampler.accept(99);
  EXPECT_EQ(sampler.sample(kLogits).value(), 3);
}

TEST(Sampler, top_k_and_top_p_and_min_p_keep_the_best) {
  SamplingOptions options = plain();
  options.top_k = 3;
  EXPECT_EQ(survivors(options, kLogits), (std::set<Token>{1, 3, 4}));
  options.top_k = 1;  // of the tie the lowest id
  EXPECT_EQ(survivors(options, kLogits), (std::set<Token>{1}));
  options = plain();
  options.top_p = 0.7f;  // p ≈ .030 .366 .007 .366 .222: the two best reach it
  EXPECT_EQ(survivors(options, kLogits), (std::set<Token>{1, 3}));
  options.top_p = 0.9f;
  EXPECT_EQ(survivors(options, kLogits), (std::set<Token>{1, 3, 4}));
  options = plain();
  options.min_p = 0.5f;  // e^-0.5 = .61, e^-2.5 = .08
  EXPECT_EQ(survivors(options, kLogits), (std::set<Token>{1, 3, 4}));
}

TEST(Sampler, draws_follow_the_softmax) {
  Sampler sampler = Sampler::create(plain(42), kLogits.size()).value();
  constexpr int kDraws = 20000;
  std::map<Token, int> counts;
  for (int i = 0; i < kDraws; ++i) ++counts[sampler.sample(kLogits).value()];
  double mass = 0;
  for (const float x : kLogits) mass += std::exp(double(x));
  for (Token t = 0; t < 6; ++t) {
    const double p = std::exp(double(kLogits[size_t(t)])) / mass;
    EXPECT_NEAR(double(counts[t]) / kDraws, p, 4 * std::sqrt(p * (1 - p) / kDraws)) << t;
  }
}

TEST(Sampler, a_seed_gives_the_same_tokens_on_every_platform) {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = float(i * 7919 % 1000) / 100;
  Sampler sampler = Sampler::create(plain(1234), logits.size()).value();
  std::vector<Token> tokens;
  for (int i = 0; i < 8; ++i) tokens.push_back(sampler.sample(logits).value());
  EXPECT_EQ(tokens, (std::vector<Token>{50, 852, 692, 877, 103, 891, 457, 210}));
}

TEST(Sampler, tells_how_many_of_the_largest_logits_it_needs) {
  const auto needed = [](auto&& change) {
    SamplingOptions options;
    change(options);
    return Sampler::create(options, 1000).value().n_needed();
  };
  EXPECT_EQ(needed([](auto&) {}), 40u);
  EXPECT_EQ(needed([](auto& o) { o.top_k = 1; }), 1u);
  EXPECT_EQ(needed([](auto& o) { o.top_k = kMostTopLogits; }), kMostTopLogits);
  EXPECT_EQ(needed([](auto& o) { o.temperature = 0, o.top_k = 0; }), 1u);
  EXPECT_EQ(needed([](auto& o) { o.temperature = 0, o.top_k = 500; }), 1u);
  EXPECT_EQ(needed([](auto& o) { o.repeat_penalty = 1.1f, o.repeat_last_n = 0; }), 40u);
  // All logits: a long tail, or what changes logits.
  EXPECT_EQ(needed([](auto& o) { o.top_k = kMostTopLogits + 1; }), 0u);
  for (const int32_t off : {0, -1, INT32_MIN, INT32_MAX}) EXPECT_EQ(needed([&](auto& o) { o.top_k = off; }), 0u);
  EXPECT_EQ(needed([](auto& o) { o.repeat_penalty = 1.1f; }), 0u);
  EXPECT_EQ(needed([](auto& o) { o.temperature = 0, o.logit_bias = {{3, 1.0f}}; }), 0u);
}

TEST(Sampler, refuses_fewer_of_the_largest_logits_than_it_needs) {
  Sampler sampler = Sampler::create({.top_k = 5}, 6).value();
  EXPECT_EQ(sampler.sample(backend::top_logits(kLogits, 4)).error().message,
            "the sampler needs the 5 largest logits, not 4");
  EXPECT_EQ(sampler.sample(TopLogits{}).error().code, ErrorCode::kInvalidInput);
  EXPECT_TRUE(sampler.sample(backend::top_logits(kLogits, 5)));
  EXPECT_TRUE(sampler.sample(backend::top_logits(kLogits, 64))) << "more do no harm";
  Sampler all = Sampler::create({.top_k = 0}, 6).value();
  EXPECT_EQ(all.sample(backend::top_logits(kLogits, 6)).error().message,
            "these sampling options need all 6 logits: compute the last token without n_top");
}

/// The same token, or the same error.
::testing::AssertionResult same_choice(const Result<Token>& of_all, const Result<Token>& of_top) {
  if (of_all.has_value() != of_top.has_value())
    return ::testing::AssertionFailure() << "one fails: " << (of_all ? of_top : of_all).error().message;
  if (of_all && *of_all != *of_top) return ::testing::AssertionFailure() << *of_all << " and " << *of_top;
  if (!of_all && (of_all.error().code != of_top.error().code || of_all.error().message != of_top.error().message))
    return ::testing::AssertionFailure() << of_all.error().message << " and " << of_top.error().message;
  return ::testing::AssertionSuccess();
}

RC_GTEST_PROP(SamplerModel, the_largest_logits_give_the_tokens_that_all_of_them_give, ()) {
  const auto size = size_t(*rc::gen::element(1, 2, 5, 40, 63, 64, 65, 200, 3000));
  const float steps = *rc::gen::element(1.0f, 8.0f, 4096.0f);  // few values are many ties
  const auto special = *rc::gen::element(0, 1, 2, 3, 4, 5);
  uint64_t state = *rc::gen::arbitrary<uint64_t>();
  std::vector<float> logits(size);
  for (float& x : logits) {
    state = state * 6364136223846793005 + 1442695040888963407;
    x = std::round(float(int64_t(state >> 40) - (1 << 23)) / float(1 << 20) * steps) / steps;
    const uint32_t die = uint32_t(state >> 33) % 16;
    if (special == 1 && die < 8) x = -kInf;
    if (special == 2 && die < 2) x = die % 2 == 0 ? kNan : kInf;
    if (special == 3) x = -kInf;
    if (special == 4) x = die < 8 ? -0.0f : 0.0f;
    if (special == 5 && die < 2) x = std::numeric_limits<float>::max() * (die == 0 ? 1.0f : -1.0f);
  }
  SamplingOptions options;
  options.temperature = *rc::gen::element(0.0f, 1e-6f, 1e-5f, 0.3f, 1.0f, 30.0f, 3e38f);
  options.top_k = *rc::gen::element(1, 2, 3, 40, 63, 64);
  options.top_p = *rc::gen::element(0.0f, 0.1f, 0.5f, 0.95f, 1.0f);
  options.min_p = *rc::gen::element(0.0f, 0.05f, 0.5f, 1.0f);
  options.seed = *rc::gen::arbitrary<uint64_t>();
  Sampler all = Sampler::create(options, size).value(), top = all, more = all;
  for (int draw = 0; draw < 20; ++draw) {
    const Result<Token> expected = all.sample(logits);
    RC_ASSERT(bool(same_choice(expected, top.sample(backend::top_logits(logits, top.n_needed())))));
    RC_ASSERT(bool(same_choice(expected, more.sample(backend::top_logits(logits, kMostTopLogits)))));
  }
}

RC_GTEST_PROP(SamplerModel, the_survivors_of_top_k_and_top_p_are_those_of_a_sort, ()) {
  const auto levels =
      *rc::gen::container<std::vector<int>>(*rc::gen::inRange<size_t>(1, 13), rc::gen::inRange(-30, 30));
  std::vector<float> logits;
  for (const int level : levels) logits.push_back(float(level) / 8);
  SamplingOptions options = plain();
  options.top_k = *rc::gen::inRange(0, 14);
  options.top_p = float(*rc::gen::inRange(0, 101)) / 100;

  std::vector<Token> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](Token a, Token b) {
    const float x = logits[size_t(a)], y = logits[size_t(b)];
    return x != y ? x > y : a < b;
  });
  if (options.top_k > 0) order.resize(std::min(order.size(), size_t(options.top_k)));
  double mass = 0, sum = 0;
  for (const Token t : order) mass += std::exp(double(logits[size_t(t)]));
  std::set<Token> at_least, at_most;  // they differ by what is within rounding of the target
  for (const Token t : order) {
    if (at_least.empty() || sum < mass * double(options.top_p) * (1 - 1e-12)) at_least.insert(t);
    if (at_most.empty() || sum < mass * double(options.top_p) * (1 + 1e-12)) at_most.insert(t);
    sum += std::exp(double(logits[size_t(t)]));
  }
  const std::set<Token> seen = survivors(options, logits, 500);
  RC_ASSERT(std::includes(at_most.begin(), at_most.end(), seen.begin(), seen.end()));
  RC_ASSERT(std::includes(seen.begin(), seen.end(), at_least.begin(), at_least.end()));
}

}  // namespace
}  // namespace honeycrisp
