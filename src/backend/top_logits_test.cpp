// The largest logits of a row against a sort of all, with everything that makes ranks hard to tell.
#include "backend/top_logits.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace honeycrisp::backend {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Kind {
  const char* name;
  float (*value)(size_t i, size_t count, std::mt19937& random);
};
float normal(std::mt19937& random) { return std::normal_distribution<float>(0, 4)(random); }
const Kind kKinds[] = {
    {"normal", [](size_t, size_t, std::mt19937& random) { return normal(random); }},
    {"ties", [](size_t, size_t, std::mt19937& random) { return std::round(normal(random)); }},
    {"equal", [](size_t, size_t, std::mt19937&) { return -1.5f; }},
    {"ascending", [](size_t i, size_t, std::mt19937&) { return float(i) - 70'000; }},
    {"descending", [](size_t i, size_t, std::mt19937&) { return 70'000 - float(i); }},
    {"zeros of both signs", [](size_t i, size_t, std::mt19937&) { return i % 3 == 0 ? 0.0f : -0.0f; }},
    {"banned", [](size_t, size_t, std::mt19937&) { return -kInf; }},
    {"all but the last banned", [](size_t i, size_t count, std::mt19937&) { return i + 1 == count ? -9.0f : -kInf; }},
    {"denormals", [](size_t i, size_t, std::mt19937&) { return float(i % 7) * 1e-45f; }},
    {"some unusable",
     [](size_t i, size_t, std::mt19937& random) {
       return i % 1000 == 3 ? kInf : i % 1000 == 7 ? kNan : i % 1000 == 8 ? -kNan : normal(random);
     }},
    {"one infinite, early", [](size_t i, size_t, std::mt19937& random) { return i == 0 ? kInf : normal(random); }},
    {"one NaN, late",
     [](size_t i, size_t count, std::mt19937& random) { return i + 2 == count ? kNan : normal(random); }},
    {"all NaN", [](size_t, size_t, std::mt19937&) { return kNan; }},
};

bool same_bits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

TEST(TopLogits, are_those_of_a_stable_sort) {
  std::mt19937 random(1);
  for (const Kind& kind : kKinds)
    for (const size_t count : {1, 2, 31, 32, 33, 64, 511, 512, 513, 1000, 151'936}) {
      std::vector<float> logits(count);
      for (size_t i = 0; i < count; ++i) logits[i] = kind.value(i, count, random);
      std::vector<int32_t> order(count);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        const float x = logits[size_t(a)], y = logits[size_t(b)];
        if (is_unusable(x) || is_unusable(y)) return is_unusable(x) && !is_unusable(y);
        return x > y;
      });
      const auto n_unusable = uint32_t(std::count_if(logits.begin(), logits.end(), is_unusable));
      for (const uint32_t n : {1u, 2u, 40u, 63u, 64u}) {
        const TopLogits top = top_logits(logits, n);
        const std::string which = std::string(kind.name) + ", " + std::to_string(count) + ", " + std::to_string(n);
        ASSERT_EQ(top.n, std::min<size_t>(n, count)) << which;
        ASSERT_EQ(top.n_unusable, n_unusable) << which;
        for (uint32_t i = 0; i < top.n; ++i) {
          ASSERT_EQ(top.tokens[i], order[i]) << which << ", rank " << i;
          ASSERT_TRUE(same_bits(top.logits[i], logits[size_t(order[i])])) << which << ", rank " << i;
        }
      }
    }
}

TEST(TopLogits, ranks_are_unlike_and_above_none) {
  EXPECT_GT(rank_of(-kInf, UINT32_MAX - 1), 0u);
  EXPECT_EQ(rank_of(0.0f, 7) >> 32, rank_of(-0.0f, 7) >> 32);
  EXPECT_GT(rank_of(1, 4), rank_of(1, 5));
  EXPECT_GT(rank_of(kNan, 9), rank_of(std::numeric_limits<float>::max(), 0));
  EXPECT_GT(rank_of(kNan, 3), rank_of(kInf, 4));
  EXPECT_GT(rank_of(kInf, 3), rank_of(kNan, 4));
  EXPECT_EQ(token_of(rank_of(-2.5f, 151'935)), 151'935u);
}

}  // namespace
}  // namespace honeycrisp::backend
