// Logits of every family against those of the transformers library in f64 (tests/data/README.md).
#include "runner.h"

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>

namespace honeycrisp::testing {
namespace {

struct Case {
  const char* name;
  double reference_bar;  // relative error of all logits; an independent pass in f32 reaches a third of it
};
constexpr Case kCases[] = {
    {"llama", 1e-5},  {"llama3-rope", 1e-5}, {"mistral", 1e-5}, {"qwen2", 1e-5},      {"qwen3", 1e-5},
    {"gemma2", 1e-5}, {"gemma3", 1e-5},      {"gemma4", 3e-5},  {"gemma4-e", 1.5e-5},
};
constexpr double kCpuBar = 5e-5;
constexpr size_t kChunks[] = {1, 2, 3, 7, 512};

std::string data(const std::string& file) { return std::string(HONEYCRISP_TEST_DATA) + "/families/" + file; }

class GoldenFamilies : public ::testing::TestWithParam<Case> {
 protected:
  std::string name_ = GetParam().name;
  std::vector<int32_t> tokens_ = read_ids(data(name_ + ".tokens.txt"));
  std::vector<float> expected_ = read_floats(data(name_ + ".logits.f32"));
};

TEST_P(GoldenFamilies, reference_logits_agree_with_transformers) {
  Runner runner(data(name_ + ".gguf"), "reference", f32_cache());
  ASSERT_TRUE(runner.ok());
  const double error = relative_error(runner.all_logits(tokens_, 512), expected_);
  RecordProperty("relative_error", std::to_string(error));
  std::printf("%s: relative error %.2e\n", name_.c_str(), error);
  EXPECT_LT(error, GetParam().reference_bar);
}

TEST_P(GoldenFamilies, reference_chunks_have_the_same_bits) {
  Runner runner(data(name_ + ".gguf"), "reference", f32_cache());
  ASSERT_TRUE(runner.ok());
  const std::vector<float> whole = runner.all_logits(tokens_, 512);
  for (size_t chunk : kChunks) {
    const std::vector<float> parts = runner.all_logits(tokens_, chunk);
    EXPECT_EQ(0, std::memcmp(parts.data(), whole.data(), whole.size() * sizeof(float))) << "chunk " << chunk;
  }
}

TEST_P(GoldenFamilies, cpu_logits_agree_with_transformers) {
  Runner runner(data(name_ + ".gguf"), "cpu", f32_cache());
  ASSERT_TRUE(runner.ok());
  const double error = relative_error(runner.all_logits(tokens_, 512), expected_);
  std::printf("%s: relative error %.2e\n", name_.c_str(), error);
  EXPECT_LT(error, kCpuBar);
}

TEST_P(GoldenFamilies, cpu_chunks_and_threads_have_the_same_bits) {
  std::vector<float> whole;
  for (uint32_t threads : {1u, 2u, 3u}) {
    Runner runner(data(name_ + ".gguf"), "cpu", f32_cache(threads));
    ASSERT_TRUE(runner.ok());
    if (whole.empty()) whole = runner.all_logits(tokens_, 512);
    for (size_t chunk : kChunks) {
      const std::vector<float> parts = runner.all_logits(tokens_, chunk);
      EXPECT_EQ(0, std::memcmp(parts.data(), whole.data(), whole.size() * sizeof(float)))
          << "chunk " << chunk << ", " << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenFamilies, ::testing::ValuesIn(kCases), [](const auto& param_info) {
  std::string name = param_info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace honeycrisp::testing
