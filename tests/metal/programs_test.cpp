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

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

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

// Rows of two sequences in turns: those of one are no neighbours, and read what its row before last wrote.
TEST(MetalBatches, rows_of_sequences_in_turns_have_the_bits_of_one_after_the_other) {
  constexpr uint32_t kPositions = 6;
  for (const char* name : {"attend_window", "delta_net_of_two_taps"}) {
    const auto c = std::find_if(op_cases().begin(), op_cases().end(), [&](const auto& o) { return o.name == name; });
    ASSERT_NE(c, op_cases().end());
    const TinyProgram t = c->build();
    const std::vector<int32_t> tokens = some_tokens(kPositions, TinyProgram::kVocabulary);
    const auto metal = on_metal(t.program, CacheType::kF16, true);
    ASSERT_TRUE(metal);
    for (uint32_t pool = 0; pool < t.program.pools.size(); ++pool) ASSERT_TRUE(metal->reserve_pages(pool, 2));
    ASSERT_TRUE(metal->reserve_states(2));
    const std::array<backend::PageId, 2> pages{0, 1};
    for (const Role role : kRoles) {
      const std::vector<float> alone = all_logits(*metal, t.program, tokens, 1, role);
      std::vector<backend::SequencePages> sequences(2);
      std::vector<backend::Row> rows;
      for (uint32_t s = 0; s < 2; ++s) {
        sequences[s].tables.assign(t.program.pools.size(), std::span(&pages[s], 1));
        sequences[s].state = s;
      }
      for (uint32_t p = 0; p < kPositions; ++p)
        for (uint32_t s = 0; s < 2; ++s) rows.push_back({tokens[p], p, s, true, role});
      std::vector<float> logits(rows.size() * t.program.vocabulary);
      const auto stepped = metal->step({rows, sequences}, logits);
      ASSERT_TRUE(stepped.has_value()) << name << ": " << stepped.error().message;
      for (size_t i = 0; i < rows.size(); ++i)
        EXPECT_EQ(std::memcmp(&logits[i * t.program.vocabulary], &alone[i / 2 * t.program.vocabulary],
                              t.program.vocabulary * sizeof(float)),
                  0)
            << name << ", " << name_of(role) << ", row " << i;
    }
  }
}

// The second residual reads what the first waits for, and would take its place while it waits itself.
TEST(MetalResiduals, that_wait_on_two_buffers_both_arrive) {
  TinyProgram t;
  const program::BufferId other = t.buffer(t.width);
  const auto square = [&] { return t.matrix(quant::Format::kQ4_0, t.width, t.width); };
  t.store(square(), t.all(0), t.all(other));
  t.residual(square(), t.all(other), {.branch_scale = 0.4f, .post_norm = t.norm(t.width)});  // of buffer 0
  const program::Residual second{.x = t.all(other), .branch_scale = 0.3f, .post_norm = t.norm(t.width)};
  t.add(program::Project{t.all(0), t.norm(t.width), {square()}, {std::nullopt}, second}, "second");
  t.residual(square(), t.all(other), {});
  t.finish();
  const std::vector<int32_t> tokens = some_tokens(5, TinyProgram::kVocabulary);
  const auto reference = compile(backend::reference_backend(), t.program, CacheType::kF32);
  ASSERT_TRUE(reference);
  const std::vector<float> expected = all_logits(*reference, t.program, tokens, 512, Role::kPrompt);
  for (const bool check : {false, true}) {
    const auto metal = on_metal(t.program, CacheType::kF32, check);
    ASSERT_TRUE(metal);
    for (Role role : kRoles)
      EXPECT_LT(relative_error(all_logits(*metal, t.program, tokens, 512, role), expected), bar_of(CacheType::kF32))
          << name_of(role);
  }
}

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
