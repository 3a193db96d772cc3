// Two real models against the f32 arithmetic of others on the same dequantized weights (tests/data/README.md): greedy
// continuations token by token, and the KL divergence of every prompt position, in both roles.
#include "cuda/cuda_test.h"
#include "golden/model_prompts.h"
#include "golden/runner.h"

#include <algorithm>

namespace honeycrisp::testing {
namespace {

constexpr double kMeanKlBar = 1e-5;
constexpr size_t kChunk = 64;

class CudaModels : public OnCuda, public ::testing::WithParamInterface<GoldenModel> {
 protected:
  void SetUp() override {
    OnCuda::SetUp();
    if (IsSkipped()) return;
    path_ = model_path(GetParam());
    if (path_.empty()) GTEST_SKIP() << how_to_get(GetParam());
    prompts_ = read_prompts(GetParam().golden);
    ASSERT_FALSE(prompts_.empty());
  }
  std::string path_;
  std::vector<GoldenPrompt> prompts_;
};

TEST_P(CudaModels, reproduce_greedy_continuations) {
  Runner runner(path_, "cuda", f32_cache());
  ASSERT_TRUE(runner.ok());
  for (const GoldenPrompt& prompt : prompts_)
    EXPECT_EQ(runner.greedy(prompt.tokens, prompt.greedy.size(), kChunk), prompt.greedy)
        << "prompt of " << prompt.tokens.size() << " tokens";
}

TEST_P(CudaModels, stay_near_the_f32_model) {
  for (const Role role : kRoles) {
    Runner runner(path_, "cuda", f32_cache());
    ASSERT_TRUE(runner.ok());
    double sum = 0, largest = 0;
    size_t positions = 0, same_top = 0;
    for (const GoldenPrompt& prompt : prompts_)
      runner.for_each_position(
          prompt.tokens, kChunk,
          [&](size_t position, std::span<const float> logits) {
            const double kl = divergence(prompt, position, logits);
            sum += kl;
            largest = std::max(largest, kl);
            same_top += std::max_element(logits.begin(), logits.end()) - logits.begin() == prompt.top_ids[position][0];
            ++positions;
          },
          role);
    std::printf("%s, %s: %zu positions, mean KL %.2e, max %.2e, top-1 agreement %.4f\n", GetParam().golden,
                name_of(role), positions, sum / double(positions), largest, double(same_top) / double(positions));
    EXPECT_LT(sum / double(positions), kMeanKlBar) << name_of(role);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaModels, ::testing::ValuesIn(kGoldenModels),
                         [](const auto& param_info) { return std::string(param_info.param.golden); });

}  // namespace
}  // namespace honeycrisp::testing
