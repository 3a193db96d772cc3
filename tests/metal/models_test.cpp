// Whole models through the Metal host and kernels on the software device: the greedy tokens that `reference` gives
// (models_test.cpp of golden/ shows that it reproduces them), and none that the checking device reports. Prompts of
// many lengths on a small one.
#include "golden/model_prompts.h"
#include "golden/runner.h"
#include "support/golden_families.h"
#include "support/sequence_logits.h"

#include <algorithm>
#include <cstdlib>

namespace honeycrisp::testing {
namespace {

constexpr size_t kChunk = 64;
// A prompt of hundreds of tokens takes minutes here; many lengths are tried on a small model below.
constexpr size_t kLongestPrompt = 64;

int32_t largest(std::span<const float> logits) {
  return int32_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

/// What the backend metal-soft reads from the environment, for the time of a test.
class Checking {
 public:
  Checking() { setenv("HONEYCRISP_METAL_CHECK", "1", 1); }
  ~Checking() { unsetenv("HONEYCRISP_METAL_CHECK"); }
};

class MetalModels : public ::testing::TestWithParam<GoldenModel> {
 protected:
  void SetUp() override {
    path_ = model_path(GetParam());
    if (path_.empty()) GTEST_SKIP() << how_to_get(GetParam());
    for (GoldenPrompt& p : read_prompts(GetParam().golden))
      if (p.tokens.size() <= kLongestPrompt) prompts_.push_back(std::move(p));
    ASSERT_FALSE(prompts_.empty());
  }

  std::string path_;
  std::vector<GoldenPrompt> prompts_;
};

TEST_P(MetalModels, reproduce_greedy_continuations) {
  constexpr size_t kTokens = 16;
  Runner runner(path_, "metal-soft", f32_cache());
  ASSERT_TRUE(runner.ok());
  for (const GoldenPrompt& prompt : prompts_) {
    const size_t n = std::min(kTokens, prompt.greedy.size());
    const std::vector<int32_t> expected(prompt.greedy.begin(), prompt.greedy.begin() + ptrdiff_t(n));
    EXPECT_EQ(runner.greedy(prompt.tokens, n, kChunk), expected) << "prompt of " << prompt.tokens.size() << " tokens";
  }
}

TEST_P(MetalModels, nothing_is_reported_while_checking) {
  const Checking checking;
  Runner runner(path_, "metal-soft", f32_cache());
  ASSERT_TRUE(runner.ok());
  // The start of the prompt, as a prompt; then two generated tokens. A report fails the step, and so the test.
  std::vector<int32_t> tokens = prompts_[0].tokens;
  tokens.resize(4);
  EXPECT_EQ(runner.greedy(tokens, 3, kChunk).size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(All, MetalModels, ::testing::ValuesIn(kGoldenModels),
                         [](const auto& tested) { return std::string(tested.param.golden); });

TEST(MetalPrompts, of_any_length_give_the_same_next_token_as_one_row_at_a_time) {
  constexpr uint32_t kLongest = 525;
  Runner runner(test_support::golden_path("llama", ".gguf"), "metal-soft", {});
  ASSERT_TRUE(runner.ok());
  std::vector<int32_t> tokens, one_by_one;
  for (uint32_t i = 0; i < kLongest; ++i) {
    tokens.push_back(int32_t(i * i % 251 % runner.vocabulary()));
    one_by_one.push_back(largest(runner.append({tokens.back()}, 1, Role::kGenerated)));
  }
  std::vector<uint32_t> lengths;
  for (uint32_t n = 1; n <= 70; ++n) lengths.push_back(n);
  for (uint32_t n = 505; n <= kLongest; ++n) lengths.push_back(n);
  std::vector<int32_t> next;  // of each length
  for (const uint32_t n : lengths) {
    runner.reset();
    next.push_back(largest(runner.append({tokens.begin(), tokens.begin() + n}, 512)));
    EXPECT_EQ(next.back(), one_by_one[n - 1]) << "prompt of " << n;
  }
  std::sort(next.begin(), next.end());
  EXPECT_GT(std::unique(next.begin(), next.end()) - next.begin(), 5) << "the prompts are too much alike";
}

}  // namespace
}  // namespace honeycrisp::testing
