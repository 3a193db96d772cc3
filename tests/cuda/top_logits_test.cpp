// The largest logits as the device finds them: exactly those of a search in all of them on the host, after graphs,
// after the persistent kernel and after prompts, in batches that mix what rows want.
#include "support/top_logits.h"

#include "cuda/cuda_test.h"
#include "support/op_cases.h"

namespace honeycrisp::testing {
namespace {

class CudaTopLogits : public OnCuda {};

// The slices of a row of 300,001 give more candidates than a slice has values.
TEST_F(CudaTopLogits, rows_are_those_of_all_their_logits) {
  for (const uint32_t vocabulary : {37u, 4096u, 4097u, 9001u})
    expect_top_logits_of_models(backend::cuda_backend(), vocabulary, {1, 5, 8, 11});
  for (const uint32_t vocabulary : {151'936u, 300'001u})
    expect_top_logits_of_models(backend::cuda_backend(), vocabulary, {8});
}

TEST_F(CudaTopLogits, follow_the_persistent_kernel) {
  test_support::TinyProgram t(512);
  t.only_packed = true;
  t.attention([](auto&, auto&) {});
  t.finish();
  const auto executor = compile(backend::cuda_backend(), t.program, CacheType::kF16);
  ASSERT_TRUE(executor);
  EXPECT_TRUE(is_persistent(*executor)) << reasons(*executor);
  for (const uint32_t n : {1u, 2u, 8u, 9u, 20u}) {
    const std::vector<int32_t> tokens = some_tokens(n, t.program.vocabulary);
    std::vector<Role> roles(n, Role::kGenerated);
    expect_top_logits(*executor, t.program, t.program.vocabulary, tokens, roles);
    std::fill_n(roles.begin(), n / 2, Role::kPrompt);
    expect_top_logits(*executor, t.program, t.program.vocabulary, tokens, roles);
  }
}

// Steps in turns, so that neither the counters nor the results of one are left for the next.
TEST_F(CudaTopLogits, steps_of_any_wants_follow_each_other) {
  const auto models = logits_models(20'011);
  const auto executor = compile(backend::cuda_backend(), models[0]->program, CacheType::kF16, 4);
  ASSERT_TRUE(executor);
  for (int32_t i = 0; i < 200; ++i) {
    const std::vector<int32_t> tokens = {i % 8};
    const std::vector<Role> roles = {i % 3 == 0 ? Role::kPrompt : Role::kGenerated};
    std::vector<float> logits(20'011);
    std::vector<TopLogits> top(1);
    ASSERT_TRUE(step_of_wants(*executor, models[0]->program, tokens, roles, std::vector{0}, logits, {}).has_value());
    const int k = 1 + i % 64;
    ASSERT_TRUE(step_of_wants(*executor, models[0]->program, tokens, roles, std::vector{k}, {}, top).has_value());
    const TopLogits expected = backend::top_logits(logits, uint32_t(k));
    ASSERT_EQ(top[0].n_unusable, expected.n_unusable);
    ASSERT_EQ(top[0].tokens, expected.tokens) << i;
  }
}

}  // namespace
}  // namespace honeycrisp::testing
