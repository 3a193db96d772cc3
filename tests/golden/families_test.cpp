// Logits of every family against those of the transformers library in f64 (tests/data/README.md).
#include "runner.h"
#include "support/golden_families.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>

namespace honeycrisp::testing {
namespace {

using test_support::golden_path;
using test_support::GoldenFamily;

constexpr size_t kChunks[] = {1, 2, 3, 7, 512};

class GoldenFamilies : public ::testing::TestWithParam<GoldenFamily> {
 protected:
  Runner load(const std::string& backend, uint32_t threads = 0) {
    return Runner(golden_path(name_, ".gguf"), backend, f32_cache(threads), {.context = GetParam().context});
  }

  std::string name_ = GetParam().name;
  std::vector<int32_t> tokens_ = read_ids(golden_path(name_, ".tokens.txt"));
  std::vector<float> expected_ = read_floats(golden_path(name_, ".logits.f32"));
};

class ReferenceFamilies : public GoldenFamilies {};

TEST_P(ReferenceFamilies, logits_agree_with_transformers) {
  Runner runner = load("reference");
  ASSERT_TRUE(runner.ok());
  const double error = relative_error(runner.all_logits(tokens_, 512), expected_);
  RecordProperty("relative_error", std::to_string(error));
  std::printf("%s: relative error %.2e\n", name_.c_str(), error);
  EXPECT_LT(error, GetParam().reference_bar);
}

TEST_P(ReferenceFamilies, chunks_have_the_same_bits) {
  Runner runner = load("reference");
  ASSERT_TRUE(runner.ok());
  const std::vector<float> whole = runner.all_logits(tokens_, 512);
  for (size_t chunk : kChunks) {
    const std::vector<float> parts = runner.all_logits(tokens_, chunk);
    EXPECT_EQ(0, std::memcmp(parts.data(), whole.data(), whole.size() * sizeof(float))) << "chunk " << chunk;
  }
}

class CpuFamilies : public GoldenFamilies {};

TEST_P(CpuFamilies, logits_agree_with_transformers) {
  Runner runner = load("cpu");
  ASSERT_TRUE(runner.ok());
  const double error = relative_error(runner.all_logits(tokens_, 512), expected_);
  std::printf("%s: relative error %.2e\n", name_.c_str(), error);
  EXPECT_LT(error, GetParam().cpu_bar);
}

TEST_P(CpuFamilies, chunks_and_threads_have_the_same_bits) {
  std::vector<float> whole;
  for (uint32_t threads : {1u, 2u, 3u}) {
    Runner runner = load("cpu", threads);
    ASSERT_TRUE(runner.ok());
    if (whole.empty()) whole = runner.all_logits(tokens_, 512);
    for (size_t chunk : kChunks) {
      const std::vector<float> parts = runner.all_logits(tokens_, chunk);
      EXPECT_EQ(0, std::memcmp(parts.data(), whole.data(), whole.size() * sizeof(float)))
          << "chunk " << chunk << ", " << threads << " threads";
    }
  }
}

const auto test_name = [](const auto& tested) { return test_support::test_name(tested.param.name); };
INSTANTIATE_TEST_SUITE_P(All, ReferenceFamilies, ::testing::ValuesIn(test_support::kGoldenFamilies), test_name);
INSTANTIATE_TEST_SUITE_P(All, CpuFamilies, ::testing::ValuesIn(test_support::kGoldenFamilies), test_name);

TEST(GoldenFiles, are_all_listed) {
  std::vector<std::string> listed;
  for (const GoldenFamily& family : test_support::kGoldenFamilies) listed.emplace_back(family.name);
  std::vector<std::string> there;
  for (const auto& entry : std::filesystem::directory_iterator(golden_path("", "")))
    if (entry.path().extension() == ".gguf") there.push_back(entry.path().stem().string());
  std::ranges::sort(listed);
  std::ranges::sort(there);
  EXPECT_EQ(listed, there) << "tests/support/golden_families.h lists them";
}

}  // namespace
}  // namespace honeycrisp::testing
