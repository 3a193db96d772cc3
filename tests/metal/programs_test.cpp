// Every op case and every golden family through the whole Metal host on the software device: near `reference`, the same
// bits for any grouping of rows, in both roles; and under the checking device without a report.
#include "backend/metal/executor.h"
#include "backend/metal/soft_device.h"
#include "backend/reference/reference_backend.h"
#include "gguf/file.h"
#include "golden/runner.h"
#include "model/model.h"
#include "support/golden_families.h"
#include "support/op_cases.h"
#include "support/sequence_logits.h"

#include <cmath>

namespace honeycrisp::testing {
namespace {

using test_support::golden_path;
using test_support::GoldenFamily;
using test_support::op_cases;
using test_support::TinyProgram;

constexpr size_t kChunks[] = {1, 2, 3, 7, 64};

std::unique_ptr<backend::Executor> on_metal(const program::Program& program, CacheType type, bool check = false) {
  backend::CompileOptions options;
  options.cache_type = type;
  options.max_positions = 2048;
  auto device = backend::metal::soft_device({.check = check, .seed = check ? 7u : 0u});
  EXPECT_TRUE(device.has_value()) << device.error().message;
  if (!device) return nullptr;
  auto executor = backend::metal::make_executor(std::move(*device), program, options);
  EXPECT_TRUE(executor.has_value()) << executor.error().message;
  return executor ? std::move(*executor) : nullptr;
}

/// The ops that went to the host.
std::string on_the_host(const backend::Executor& executor) {
  std::string all;
  for (const backend::StepPlan& step : executor.plan().steps)
    if (!step.why_not_fast.empty()) all += step.kernel + ": " + step.why_not_fast + "\n";
  return all;
}

/// Cases that have no kernel, by design: a product that overwrites its own input.
bool goes_to_the_host(const std::string& name) {
  return name == "store_over_its_input_with_addend" || name == "residual_over_its_input";
}

// Sums in f32 of a few hundred terms: some 2^-20 of the result; the ops amplify them some ten times. A value near a tie
// may be rounded the other way into the cache: a step of 2^-11, or of 1/127.
double bar_of(CacheType type) { return 2e-5 + (type == CacheType::kF32 ? 0 : type == CacheType::kF16 ? 3e-4 : 3e-3); }

class MetalPrograms : public ::testing::TestWithParam<size_t> {};

TEST_P(MetalPrograms, agree_with_the_reference_in_any_grouping) {
  const test_support::OpCase& c = op_cases()[GetParam()];
  const TinyProgram t = c.build();
  const std::vector<int32_t> tokens = some_tokens(c.positions, TinyProgram::kVocabulary);
  for (CacheType type : {CacheType::kF32, CacheType::kF16, CacheType::kQ8_0}) {
    const auto reference = compile(backend::reference_backend(), t.program, type);
    const auto metal = on_metal(t.program, type);
    ASSERT_TRUE(reference && metal);
    EXPECT_EQ(on_the_host(*metal) == "", !goes_to_the_host(c.name)) << on_the_host(*metal);
    const std::vector<float> expected = all_logits(*reference, t.program, tokens, 512, Role::kPrompt);
    for (Role role : kRoles) {
      const std::vector<float> whole = all_logits(*metal, t.program, tokens, 512, role);
      EXPECT_LT(relative_error(whole, expected), bar_of(type)) << name_of(role) << ", cache " << to_string(type);
      for (size_t chunk : kChunks)
        EXPECT_TRUE(same_bits(all_logits(*metal, t.program, tokens, chunk, role), whole))
            << name_of(role) << ", chunks of " << chunk << ", cache " << to_string(type);
    }
    if (t.program.caches.empty()) break;
  }
}

TEST_P(MetalPrograms, nothing_is_reported) {
  const test_support::OpCase& c = op_cases()[GetParam()];
  const TinyProgram t = c.build();
  const std::vector<int32_t> tokens = some_tokens(std::min(c.positions, 24u), TinyProgram::kVocabulary);
  const auto metal = on_metal(t.program, CacheType::kF16, true);
  ASSERT_TRUE(metal);
  for (Role role : kRoles) all_logits(*metal, t.program, tokens, 11, role);  // an error fails the test
}

INSTANTIATE_TEST_SUITE_P(All, MetalPrograms, ::testing::Range(size_t{0}, op_cases().size()),
                         [](const auto& tested) { return op_cases()[tested.param].name; });

class MetalFamilies : public ::testing::TestWithParam<GoldenFamily> {};

TEST_P(MetalFamilies, agree_with_transformers_and_chunks_have_the_same_bits) {
  constexpr double kBar = 5e-5;
  const std::string name = GetParam().name;
  auto file = gguf::File::open(golden_path(name, ".gguf"));
  ASSERT_TRUE(file.has_value()) << file.error().message;
  auto model = model::load(*file, {.context = GetParam().context});
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const std::vector<int32_t> tokens = read_ids(golden_path(name, ".tokens.txt"));
  const std::vector<float> expected = read_floats(golden_path(name, ".logits.f32"));
  const auto metal = on_metal(model->program, CacheType::kF32);
  ASSERT_TRUE(metal);
  EXPECT_EQ(on_the_host(*metal), "");
  for (Role role : kRoles) {
    const std::vector<float> whole = all_logits(*metal, model->program, tokens, 512, role);
    const double error = relative_error(whole, expected);
    std::printf("%s, %s: relative error %.2e\n", name.c_str(), name_of(role), error);
    EXPECT_LT(error, kBar) << name_of(role);
    for (size_t chunk : {1, 3, 7})
      EXPECT_TRUE(same_bits(all_logits(*metal, model->program, tokens, chunk, role), whole))
          << name_of(role) << ", chunks of " << chunk;
  }
}

const auto test_name = [](const auto& tested) { return test_support::test_name(tested.param.name); };
INSTANTIATE_TEST_SUITE_P(All, MetalFamilies, ::testing::ValuesIn(test_support::kGoldenFamilies), test_name);

}  // namespace
}  // namespace honeycrisp::testing
