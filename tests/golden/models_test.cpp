// Two real models against the f32 arithmetic of others on the same dequantized weights (tests/data/README.md): greedy
// continuations token by token, and the KL divergence of every prompt position.
#include "golden/model_prompts.h"
#include "runner.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace honeycrisp::testing {
namespace {

// The most that activations of 14 bits may cost, and what rounding keys and values to f16 adds.
constexpr struct {
  backend::CacheType type;
  double mean_kl;
} kBars[] = {{backend::CacheType::kF32, 5e-6}, {backend::CacheType::kF16, 2e-5}};
constexpr size_t kChunk = 64;

class GoldenModels : public ::testing::TestWithParam<GoldenModel> {
 protected:
  void SetUp() override {
    path_ = model_path(GetParam());
    if (path_.empty()) GTEST_SKIP() << how_to_get(GetParam());
    prompts_ = read_prompts(GetParam().golden);
    ASSERT_FALSE(prompts_.empty());
  }

  void expect_greedy_continuations(const std::string& backend) {
    Runner runner(path_, backend, f32_cache());
    ASSERT_TRUE(runner.ok());
    for (const GoldenPrompt& prompt : prompts_)
      EXPECT_EQ(runner.greedy(prompt.tokens, prompt.greedy.size(), kChunk), prompt.greedy)
          << "prompt of " << prompt.tokens.size() << " tokens";
  }

  std::string path_;
  std::vector<GoldenPrompt> prompts_;
};

TEST_P(GoldenModels, reference_reproduces_greedy_continuations) { expect_greedy_continuations("reference"); }
TEST_P(GoldenModels, cpu_reproduces_greedy_continuations) { expect_greedy_continuations("cpu"); }

TEST_P(GoldenModels, cpu_stays_near_the_f32_model) {
  for (const auto& bar : kBars) {
    backend::CompileOptions options = f32_cache();
    options.cache_type = bar.type;
    Runner runner(path_, "cpu", options);
    ASSERT_TRUE(runner.ok());
    double sum = 0, largest = 0;
    size_t positions = 0, same_top = 0;
    for (const GoldenPrompt& prompt : prompts_) {
      runner.for_each_position(prompt.tokens, kChunk, [&](size_t position, std::span<const float> logits) {
        const double kl = divergence(prompt, position, logits);
        sum += kl;
        largest = std::max(largest, kl);
        same_top += std::max_element(logits.begin(), logits.end()) - logits.begin() == prompt.top_ids[position][0];
        ++positions;
      });
    }
    std::printf(
        "%s, %s cache: %zu positions, mean KL %.2e, max %.2e, top-1 agreement %.4f (8-bit activations: mean KL %.0e)\n",
        GetParam().golden, std::string(to_string(bar.type)).c_str(), positions, sum / double(positions), largest,
        double(same_top) / double(positions), GetParam().llama_cpp_kl);
    EXPECT_LT(sum / double(positions), bar.mean_kl);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenModels, ::testing::ValuesIn(kGoldenModels),
                         [](const auto& param_info) { return std::string(param_info.param.golden); });

}  // namespace
}  // namespace honeycrisp::testing
