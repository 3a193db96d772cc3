// What a generated token costs the host and the device, for published geometries: launches, barriers, bytes of weights.
// The table is exact, so that nothing creeps up (docs/metal.md holds the same). And that a warm executor asks the
// device for no memory.
#include "backend/metal/executor.h"
#include "backend/metal/kernels/project_args.h"
#include "backend/metal/plan_device.h"
#include "backend/metal/soft_device.h"
#include "geometries.h"
#include "model/model.h"
#include "support/golden_families.h"
#include "support/sequence_logits.h"
#include "support/temporary_folder.h"
#include "traced_device.h"

#include <functional>

namespace honeycrisp::backend::metal::testing {
namespace {

using honeycrisp::testing::kRoles;
using honeycrisp::testing::name_of;

struct Geometry {
  const char* name;
  std::function<void(const std::string& path)> write;
  uint32_t launches, barriers;  // of one generated token, few positions
  uint32_t layer_launches;      // of the dearest layer
  uint64_t weight_bytes;

  friend void PrintTo(const Geometry& geometry, std::ostream* out) { *out << geometry.name; }
};

std::function<void(const std::string&)> dense(const Dense& d) {
  return [d](const std::string& path) { write_dense(path, d); };
}

const Geometry kGeometries[] = {
    {"Qwen3-0.6B, Q4_0",
     dense({.architecture = "qwen3",
            .layers = 28,
            .width = 1024,
            .hidden = 3072,
            .heads = 16,
            .kv_heads = 8,
            .head = 128,
            .vocabulary = 151936,
            .head_norms = true,
            .k_quants = false}),
     142, 141, 5, 375'353'160},
    {"Qwen2.5-1.5B, Q4_K_M",
     dense({.architecture = "qwen2",
            .layers = 28,
            .width = 1536,
            .hidden = 8960,
            .heads = 12,
            .kv_heads = 2,
            .head = 128,
            .vocabulary = 151936,
            .biases = true}),
     142, 141, 5, 1'030'612'716},
    {"Llama-3.2-1B, Q4_K_M",
     dense({.architecture = "llama",
            .layers = 16,
            .width = 2048,
            .hidden = 8192,
            .heads = 32,
            .kv_heads = 8,
            .head = 64,
            .vocabulary = 128256}),
     82, 81, 5, 836'359'824},
    {"Qwen2.5-14B, Q4_K_M",
     dense({.architecture = "qwen2",
            .layers = 48,
            .width = 5120,
            .hidden = 13824,
            .heads = 40,
            .kv_heads = 8,
            .head = 128,
            .vocabulary = 152064,
            .biases = true,
            .tied = false}),
     242, 241, 5, 9'011'223'360},
    {"Gemma-4-31B, Q4_K_M", write_gemma4_31b, 302, 301, 5, 19'701'969'210},
    {"Qwen3-30B-A3B, Q4_K_M", write_qwen3_30b_a3b, 434, 433, 9, 2'003'098'752},
};

/// Bytes that the program's ops have to read of the weights for one row.
uint64_t needed_bytes(const program::Program& program) {
  uint64_t bytes = 0;
  const auto add = [&](const program::Matrix& m) { bytes += program.weight(m).row_bytes() * m.rows; };  // of a slice
  for (const program::Step& step : program.steps) {
    if (const auto* embed = std::get_if<program::Embed>(&step.op)) bytes += program.weight(embed->table).row_bytes();
    if (const auto* logits = std::get_if<program::Logits>(&step.op)) add(logits->table);
    if (const auto* project = std::get_if<program::Project>(&step.op))
      for (const program::Matrix& m : project->matrices) add(m);
    if (const auto* mix = std::get_if<program::MixExperts>(&step.op)) {
      add(mix->router.matrix);
      for (uint32_t chosen = 0; chosen < mix->router.top_k; ++chosen)
        for (const program::Matrix* m : {&mix->gate, &mix->up, &mix->down}) add(*m);
    }
  }
  return bytes;
}

/// Bytes of the weights that the dispatches of a step of one row were given. What a dispatch leaves unused is bound to
/// a float of its input.
uint64_t given_bytes(const Trace& trace, const program::Program& program) {
  const program::MixExperts* mix = nullptr;
  uint64_t embedding_row = 0;
  for (const program::Step& step : program.steps) {
    if (const auto* m = std::get_if<program::MixExperts>(&step.op)) mix = m;
    if (const auto* e = std::get_if<program::Embed>(&step.op)) embedding_row = program.weight(e->table).row_bytes();
  }
  uint64_t bytes = 0;
  for (const Trace::Dispatch& d : trace.dispatches) {
    std::set<std::tuple<const Buffer*, uint64_t, uint64_t>> views;  // of the buffers that wrap the file
    for (const auto& [index, view] : d.views)
      if (trace.wrapped.contains(view.buffer)) views.insert({view.buffer, view.offset, view.bytes});
    for (const auto& [buffer, offset, size] : views) {
      if (d.kernel.starts_with("embed"))
        bytes += embedding_row;
      else if (d.kernel.starts_with("mix_experts_product"))
        bytes += size / mix->router.matrix.rows * mix->router.top_k;
      else
        bytes += size;
    }
  }
  return bytes;
}

class MetalStepCounts : public ::testing::TestWithParam<Geometry> {};

TEST_P(MetalStepCounts, are_those_of_the_table) {
  const Geometry& expected = GetParam();
  const test_support::TemporaryFolder folder;
  const std::string path = folder.path_of("model.gguf");
  expected.write(path);
  const auto file = gguf::File::open(path);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const auto model = model::load(*file);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const program::Program& program = model->program;

  CompileOptions options;
  options.max_rows = 1;
  options.max_positions = 512;
  const auto device = std::make_shared<TracedDevice>(std::make_shared<PlanDevice>());
  auto executor = make_executor(device, program, options);
  ASSERT_TRUE(executor.has_value()) << executor.error().message;
  device->trace.clear();
  honeycrisp::testing::all_logits(**executor, program, {0}, 1, Role::kGenerated);

  const Plan& plan = (*executor)->plan();
  uint32_t launches = 0, barriers = 0;
  std::map<uint32_t, uint32_t> of_layer;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    EXPECT_EQ(plan.steps[i].why_not_fast, "") << program.steps[i].label;
    launches += plan.steps[i].launches;
    barriers += plan.steps[i].barriers;
    if (program.steps[i].layer) of_layer[*program.steps[i].layer] += plan.steps[i].launches;
  }
  uint32_t dearest = 0;
  for (const auto& [layer, n] : of_layer) dearest = std::max(dearest, n);
  const uint64_t bytes = given_bytes(device->trace, program);
  std::printf("| %s | %u | %u | %u | %zu |\n", expected.name, launches, dearest, barriers, size_t(bytes));
  EXPECT_EQ(launches, device->trace.dispatches.size()) << "the plan says what a step does";
  EXPECT_EQ(barriers, device->trace.barriers);
  EXPECT_EQ(launches, expected.launches);
  EXPECT_EQ(barriers, expected.barriers);
  EXPECT_EQ(dearest, expected.layer_launches);
  // Metal wants an offset that suits the argument's type; weights alone are bytes.
  for (const Trace::Dispatch& d : device->trace.dispatches)
    for (const auto& [index, view] : d.views)
      if (index >= kBufferIn || !device->trace.wrapped.contains(view.buffer)) {
        EXPECT_EQ(view.offset % sizeof(float), 0u) << d.kernel << ", binding " << index;
      }
  EXPECT_EQ(bytes, needed_bytes(program)) << "a weight is read twice, or one that need not be";
  EXPECT_EQ(bytes, expected.weight_bytes);
}

INSTANTIATE_TEST_SUITE_P(All, MetalStepCounts, ::testing::ValuesIn(kGeometries), [](const auto& tested) {
  std::string name = tested.param.name;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
});

// Between two command buffers of a step somebody may say stop; the pages are then as good as never written.
TEST(MetalStop, ends_a_step_between_two_command_buffers) {
  const auto file = gguf::File::open(test_support::golden_path("llama", ".gguf"));
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const auto model = model::load(*file);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const program::Program& program = model->program;
  const auto device = std::make_shared<TracedDevice>(soft_device({}).value());
  const std::vector<int32_t> tokens = honeycrisp::testing::some_tokens(20, program.vocabulary);
  auto executor = make_executor(device, program, {.max_rows = 20, .max_positions = 64});
  ASSERT_TRUE(executor.has_value()) << executor.error().message;
  const auto whole = honeycrisp::testing::all_logits(**executor, program, tokens, 20, Role::kPrompt);

  device->work = 1;  // each op that multiplies is a command buffer
  uint32_t asked = 0;
  (*executor)->ask_to_stop([&] { return ++asked == 3; });
  const PageId page = 0;
  SequencePages sequence;
  sequence.tables.assign(program.pools.size(), std::span(&page, 1));
  std::vector<Row> rows;
  for (uint32_t i = 0; i < tokens.size(); ++i) rows.push_back({.token = tokens[i], .position = i});
  const auto stopped = (*executor)->step({rows, {&sequence, 1}}, {});
  ASSERT_FALSE(stopped.has_value());
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(asked, 3u);
  EXPECT_EQ(honeycrisp::testing::all_logits(**executor, program, tokens, 20, Role::kPrompt), whole);
  EXPECT_GT(asked, 10u);
  (*executor)->ask_to_stop({});
}

class MetalMemory : public ::testing::TestWithParam<const char*> {};

// Three steps of the size, then more of it: the device is asked for nothing any more.
TEST_P(MetalMemory, is_not_taken_by_warm_steps) {
  constexpr uint32_t kPositions = 512, kWarm = 3, kSteps = 8, kPromptRows = 33;
  const auto file = gguf::File::open(test_support::golden_path(GetParam(), ".gguf"));
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const auto model = model::load(*file);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const program::Program& program = model->program;
  auto soft = soft_device({});
  ASSERT_TRUE(soft.has_value()) << soft.error().message;
  CompileOptions options;
  options.max_positions = kPositions;
  const auto device = std::make_shared<TracedDevice>(std::move(*soft));
  auto executor = make_executor(device, program, options);
  ASSERT_TRUE(executor.has_value()) << executor.error().message;
  constexpr uint32_t kPages = kPositions / program::kPagePositions;
  for (uint32_t pool = 0; pool < program.pools.size(); ++pool)
    ASSERT_TRUE((*executor)->reserve_pages(pool, kPages).has_value());
  ASSERT_TRUE((*executor)->reserve_states(1).has_value());
  std::vector<PageId> pages(kPages);
  std::iota(pages.begin(), pages.end(), 0u);
  SequencePages sequence;
  sequence.tables.assign(program.pools.size(), pages);
  sequence.state = program.states.empty() ? kNoState : 0;
  for (const Role role : kRoles) {
    const uint32_t n_rows = role == Role::kPrompt ? kPromptRows : 1;
    std::vector<float> logits(program.vocabulary);
    uint64_t warm = 0;
    for (uint32_t s = 0; s < kSteps; ++s) {
      std::vector<Row> rows;
      for (uint32_t i = 0; i < n_rows; ++i)
        rows.push_back({int32_t((s + i) % program.vocabulary), s * n_rows + i, 0, i + 1 == n_rows, role});
      const auto done = (*executor)->step({rows, {&sequence, 1}}, logits);
      ASSERT_TRUE(done.has_value()) << done.error().message;
      if (s + 1 == kWarm) warm = device->trace.allocations;
    }
    EXPECT_EQ(device->trace.allocations, warm) << name_of(role);
  }
}

INSTANTIATE_TEST_SUITE_P(All, MetalMemory, ::testing::Values("llama", "qwen3", "gemma4", "qwen3moe", "qwen3next"),
                         [](const auto& tested) { return test_support::test_name(tested.param); });

}  // namespace
}  // namespace honeycrisp::backend::metal::testing
