// Golden families on the device, in both roles: near transformers' f64 logits, and the same bits in any chunks.
#include "cuda/cuda_test.h"
#include "golden/runner.h"
#include "gguf/file.h"
#include "model/model.h"

#include <algorithm>

namespace honeycrisp::testing {
namespace {

constexpr const char* kFamilies[] = {"llama",  "llama3-rope", "mistral", "qwen2",   "qwen3",
                                     "gemma2", "gemma3",      "gemma4",  "gemma4-e"};
constexpr double kBar = 5e-5;
constexpr size_t kChunks[] = {1, 2, 3, 7, 512};

class CudaFamilies : public OnCuda, public ::testing::WithParamInterface<const char*> {};

TEST_P(CudaFamilies, logits_agree_with_transformers_and_chunks_have_the_same_bits) {
  const std::string stem = std::string(HONEYCRISP_TEST_DATA) + "/families/" + GetParam();
  auto file = gguf::File::open(stem + ".gguf");
  ASSERT_TRUE(file.has_value()) << file.error().message;
  auto model = model::load(*file);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const std::vector<int32_t> tokens = read_ids(stem + ".tokens.txt");
  const std::vector<float> expected = read_floats(stem + ".logits.f32");
  const auto executor = compile(backend::cuda_backend(), model->program, CacheType::kF32);
  ASSERT_TRUE(executor);
  for (Role role : kRoles) {
    const std::vector<float> whole = all_logits(*executor, model->program, tokens, 512, role);
    const double error = relative_error(whole, expected);
    std::printf("%s, %s: relative error %.2e\n", GetParam(), name_of(role), error);
    EXPECT_LT(error, kBar) << name_of(role);
    for (size_t chunk : kChunks)
      EXPECT_TRUE(same_bits(all_logits(*executor, model->program, tokens, chunk, role), whole))
          << name_of(role) << ", chunks of " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaFamilies, ::testing::ValuesIn(kFamilies), [](const auto& param_info) {
  std::string name = param_info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace honeycrisp::testing
