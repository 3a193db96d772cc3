// What bench asks of the device: ceilings, and the time of each step of the program, which changes no bit.
#include "cuda/cuda_test.h"

#include <numeric>

namespace honeycrisp::testing {
namespace {

using quant::Format;
using test_support::TinyProgram;

TEST_F(OnCuda, ceilings_are_measured_with_few_weights_too) {
  const TinyProgram t = one_layer(Format::kQ4_0);
  const auto executor = compile(backend::cuda_backend(), t.program, CacheType::kF16);
  ASSERT_TRUE(executor);
  const auto ceilings = executor->measure_ceilings(1000);
  ASSERT_TRUE(ceilings.has_value()) << ceilings.error().message;
  EXPECT_GT(ceilings->read_bytes_per_second, 1e9);
  EXPECT_GT(ceilings->operations_per_second, ceilings->read_bytes_per_second);
  EXPECT_EQ(ceilings->arithmetic, "f16, tensor cores");
}

TEST_F(OnCuda, every_step_of_the_program_has_its_time) {
  for (const Format format : {Format::kQ4_0, Format::kF32}) {  // persistent, and launched one by one
    const TinyProgram t = one_layer(format);
    const auto executor = compile(backend::cuda_backend(), t.program, CacheType::kF16);
    ASSERT_TRUE(executor);
    const std::vector<int32_t> tokens = some_tokens(11, TinyProgram::kVocabulary);
    for (const Role role : kRoles)
      for (const size_t chunk : {1, 11}) {
        SCOPED_TRACE(std::string(quant::to_string(format)) + ", " + name_of(role) + ", " + std::to_string(chunk));
        const std::vector<float> alone = all_logits(*executor, t.program, tokens, chunk, role);
        std::vector<double> seconds(t.program.steps.size(), 0);
        ASSERT_TRUE(executor->profile(seconds.data()).has_value());
        EXPECT_TRUE(same_bits(all_logits(*executor, t.program, tokens, chunk, role), alone));
        for (size_t i = 0; i < seconds.size(); ++i) {
          EXPECT_GE(seconds[i], 0) << t.program.steps[i].label;
          EXPECT_LT(seconds[i], 10) << t.program.steps[i].label;
        }
        EXPECT_GT(std::accumulate(seconds.begin(), seconds.end(), 0.0), 0);
        ASSERT_TRUE(executor->profile(nullptr).has_value());
        const std::vector<double> before = seconds;
        EXPECT_TRUE(same_bits(all_logits(*executor, t.program, tokens, chunk, role), alone));
        EXPECT_EQ(seconds, before);
      }
  }
}

}  // namespace
}  // namespace honeycrisp::testing
