// Golden families on the device, in both roles: near transformers' f64 logits, and the same bits in any chunks.
#include "cuda/cuda_test.h"
#include "gguf/file.h"
#include "golden/runner.h"
#include "model/model.h"
#include "support/golden_families.h"

#include <algorithm>

namespace honeycrisp::testing {
namespace {

using test_support::golden_path;
using test_support::GoldenFamily;

// Generated rows round activations to 22 bits. Prompt rows round both operands to 16, which the deepest families carry
// up to 3e-4 of the logits (others: 2e-5); what that does to the answer is bounded by the divergence.
constexpr double kGeneratedBar = 5e-5, kPromptBar = 1e-3, kMeanKlBar = 1e-5;
constexpr size_t kChunks[] = {1, 2, 3, 7, 512};

// KL(expected || ours), mean over the positions.
double mean_divergence(const std::vector<float>& expected, const std::vector<float>& ours, size_t vocabulary) {
  const auto log_sum_exp = [&](const float* logits) {
    const double largest = *std::max_element(logits, logits + vocabulary);
    double sum = 0;
    for (size_t i = 0; i < vocabulary; ++i) sum += std::exp(double(logits[i]) - largest);
    return largest + std::log(sum);
  };
  double kl = 0;
  for (size_t at = 0; at < expected.size(); at += vocabulary) {
    const double p_sum = log_sum_exp(expected.data() + at), q_sum = log_sum_exp(ours.data() + at);
    for (size_t i = at; i < at + vocabulary; ++i) {
      const double log_p = double(expected[i]) - p_sum, log_q = double(ours[i]) - q_sum;
      kl += std::exp(log_p) * (log_p - log_q);
    }
  }
  return kl / (double(expected.size()) / double(vocabulary));
}

class CudaFamilies : public OnCuda, public ::testing::WithParamInterface<GoldenFamily> {};

TEST_P(CudaFamilies, logits_agree_with_transformers_and_chunks_have_the_same_bits) {
  const std::string name = GetParam().name;
  auto file = gguf::File::open(golden_path(name, ".gguf"));
  ASSERT_TRUE(file.has_value()) << file.error().message;
  auto model = model::load(*file, {.context = GetParam().context});
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const std::vector<int32_t> tokens = read_ids(golden_path(name, ".tokens.txt"));
  const std::vector<float> expected = read_floats(golden_path(name, ".logits.f32"));
  const auto executor = compile(backend::cuda_backend(), model->program, CacheType::kF32);
  ASSERT_TRUE(executor);
  for (Role role : kRoles) {
    const std::vector<float> whole = all_logits(*executor, model->program, tokens, 512, role);
    const double error = relative_error(whole, expected);
    const double kl = mean_divergence(expected, whole, model->program.vocabulary);
    std::printf("%s, %s: relative error %.2e, mean KL %.2e\n", name.c_str(), name_of(role), error, kl);
    EXPECT_LT(error, role == Role::kPrompt ? kPromptBar : kGeneratedBar) << name_of(role);
    EXPECT_LT(kl, kMeanKlBar) << name_of(role);
    for (size_t chunk : kChunks)
      EXPECT_TRUE(same_bits(all_logits(*executor, model->program, tokens, chunk, role), whole))
          << name_of(role) << ", chunks of " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaFamilies, ::testing::ValuesIn(test_support::kGoldenFamilies),
                         [](const auto& tested) { return test_support::test_name(tested.param.name); });

}  // namespace
}  // namespace honeycrisp::testing
