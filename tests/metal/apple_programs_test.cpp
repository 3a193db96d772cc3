// Whole programs through backend/metal/apple/device.mm on the look-alike framework: the bits of the software device's
// own adapter, clean under the checker, and no Objective-C object left.
#include "backend/metal/apple/device.h"
#include "backend/metal/executor.h"
#include "backend/metal/soft_device.h"
#include "framework/framework.h"
#include "gguf/file.h"
#include "honeycrisp/metal_ops.h"
#include "model/model.h"
#include "support/golden_families.h"
#include "support/op_cases.h"
#include "support/sequence_logits.h"

#include <algorithm>

namespace honeycrisp::testing {
namespace {

using test_support::op_cases;
using test_support::OpCase;
using test_support::TinyProgram;

class ApplePrograms : public ::testing::Test {
 public:
  void TearDown() override {
    soft.reset();
    backend::metal::framework::set_system({});
    EXPECT_EQ(backend::metal::framework::live_objects(), 0);
    EXPECT_EQ(backend::metal::framework::resident_allocations(), 0);
  }

  struct Run {
    std::string device, on_the_host;  // by the executor's plan
    uint64_t device_bytes = 0;        // likewise
    std::vector<float> logits;        // of a prompt, then of the same tokens as generated
  };
  static Run run(Result<std::shared_ptr<backend::metal::Device>> device, const program::Program& program,
                 CacheType type, uint32_t n_tokens) {
    EXPECT_TRUE(device.has_value()) << device.error().message;
    if (!device) return {};
    backend::CompileOptions options;
    options.cache_type = type;
    options.max_rows = 64;
    options.max_positions = 2048;
    auto executor = backend::metal::make_executor(std::move(*device), program, options);
    EXPECT_TRUE(executor.has_value()) << executor.error().message;
    if (!executor) return {};
    Run result{.device = (*executor)->plan().backend};
    result.device_bytes = (*executor)->plan().device_bytes;
    for (const backend::StepPlan& step : (*executor)->plan().steps) result.on_the_host += step.why_not_fast;
    const std::vector<int32_t> tokens = some_tokens(n_tokens, program.vocabulary);
    result.logits = all_logits(**executor, program, tokens, 33, Role::kPrompt);
    const std::vector<float> generated = all_logits(**executor, program, tokens, 3, Role::kGenerated);
    result.logits.insert(result.logits.end(), generated.begin(), generated.end());
    return result;
  }

  void expect_same(const program::Program& program, CacheType type, uint32_t n_tokens, bool goes_to_the_host) {
    for (const bool check : {false, true}) {
      const uint32_t n = check ? std::min(n_tokens, 12u) : n_tokens;
      soft = backend::metal::soft::Device::create({.check = check, .seed = check ? 3u : 0u}).value();
      backend::metal::framework::set_system(
          {.device = soft, .libraries = {soft->open_library("backend_kernels").value()}, .wraps_heap = wraps_heap});
      const Run apple = run(backend::metal::system_device(), program, type, n);
      EXPECT_EQ(backend::metal::framework::live_objects(), 0) << "the executor had the only device";
      const Run expected = run(backend::metal::soft_device({.check = check}), program, type, n);
      EXPECT_TRUE(apple.device.starts_with("look-alike")) << apple.device;
      EXPECT_TRUE(expected.device.starts_with("software Metal device")) << expected.device;
      EXPECT_EQ(apple.device_bytes, uint64_t{3} << 30) << "what the look-alike recommends";
      EXPECT_TRUE(same_bits(apple.logits, expected.logits)) << (check ? "checking" : "fast");
      EXPECT_EQ(apple.on_the_host, expected.on_the_host);
      EXPECT_EQ(!apple.on_the_host.empty(), goes_to_the_host) << apple.on_the_host;
      for (const auto& report : soft->reports()) ADD_FAILURE() << to_string(report);
    }
  }

  std::shared_ptr<backend::metal::soft::Device> soft;
  bool wraps_heap = false;
};

TEST_F(ApplePrograms, single_operations_have_the_bits_of_the_software_device) {
  soft = backend::metal::soft::Device::create({.check = true}).value();
  backend::metal::framework::set_system({.device = soft, .libraries = {soft->open_library("backend_kernels").value()}});
  constexpr uint32_t kRows = 3, kOutputs = 10, kColumns = 64;
  test_support::Random random(5);
  const std::vector<float> x = random.floats(kRows * kColumns);
  const std::vector<std::byte> w = test_support::random_weights(random, quant::Format::kQ5_1, kOutputs * kColumns);
  const auto outputs = [&](const metal::Device& device) {
    const metal::Buffer in = device.allocate(x.size() * 4, "x").value(),
                        weights = device.allocate(w.size(), "w").value();
    const metal::Buffer first = device.allocate(kRows * kOutputs * 4, "first").value();
    const metal::Buffer second = device.allocate(kRows * kOutputs * 4, "second").value();
    std::memcpy(in.data(), x.data(), in.bytes());
    std::memcpy(weights.data(), w.data(), w.size());
    metal::Commands commands = device.new_commands("dual").value();
    const metal::Weights matrix{metal::Format::kQ5_1, {weights}};
    auto done = commands.project_dual({{kRows, kOutputs, kColumns}, {in}, matrix, matrix, {first}, {second}});
    if (done) done = commands.run();
    EXPECT_TRUE(done.has_value()) << done.error().message;
    EXPECT_EQ(std::memcmp(first.data(), second.data(), first.bytes()), 0);
    const auto* values = reinterpret_cast<const float*>(first.data());
    return std::vector<float>(values, values + kRows * kOutputs);
  };
  const auto system = metal::Device::system();
  ASSERT_TRUE(system.has_value()) << system.error().message;
  EXPECT_TRUE(system->describe().starts_with("look-alike"));
  EXPECT_TRUE(same_bits(outputs(*system), outputs(metal::Device::software().value())));
  for (const auto& report : soft->reports()) ADD_FAILURE() << to_string(report);
}

class AppleOps : public ApplePrograms, public ::testing::WithParamInterface<const char*> {};

TEST_P(AppleOps, have_the_bits_of_the_software_device) {
  const std::string name = GetParam();
  const auto c = std::find_if(op_cases().begin(), op_cases().end(), [&](const OpCase& o) { return o.name == name; });
  ASSERT_NE(c, op_cases().end());
  const TinyProgram t = c->build();
  wraps_heap = true;
  expect_same(t.program, CacheType::kF16, c->positions, name == "residual_over_its_input");
}

// One for each way of encoding: launches of one kernel and of several, scratch, pages, states, and the host in between.
INSTANTIATE_TEST_SUITE_P(Some, AppleOps,
                         ::testing::Values("store_of_mixed_formats", "gate_gelu_of_two_formats",
                                           "residual_with_post_norm", "attend_window", "attend_softcap_and_sinks",
                                           "delta_net_of_two_taps",
                                           "mix_experts_scaled_shared_expert_of_another_format",
                                           "residual_over_its_input"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST_F(ApplePrograms, kernels_that_the_device_gives_too_few_threads_are_named) {
  soft = backend::metal::soft::Device::create({}).value();
  backend::metal::framework::set_system({.device = soft,
                                         .libraries = {soft->open_library("backend_kernels").value()},
                                         .most_threads = 64,
                                         .wraps_heap = true});
  TinyProgram t;
  t.finish();
  auto executor = backend::metal::make_executor(backend::metal::system_device().value(), t.program, {.max_rows = 1});
  ASSERT_TRUE(executor.has_value()) << executor.error().message;
  const backend::Row row{.wants_logits = true};
  const backend::SequencePages pages;
  std::vector<float> logits(t.program.vocabulary);
  const auto stepped = (*executor)->step({{&row, 1}, {&pages, 1}}, logits);
  ASSERT_FALSE(stepped.has_value());
  EXPECT_EQ(stepped.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(stepped.error().message.find("mat_vec.metal: pipeline of mat_vec_1 "), std::string::npos)
      << stepped.error().message;
  EXPECT_TRUE(stepped.error().message.ends_with("at most 64 threads on this device, 128 are needed"))
      << stepped.error().message;
}

class AppleFamilies : public ApplePrograms, public ::testing::WithParamInterface<const char*> {};

TEST_P(AppleFamilies, have_the_bits_of_the_software_device) {
  auto file = gguf::File::open(test_support::golden_path(GetParam(), ".gguf"));
  ASSERT_TRUE(file.has_value()) << file.error().message;
  auto model = model::load(*file);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  expect_same(model->program, CacheType::kF32, 70, false);  // two pages
}

TEST_F(ApplePrograms, weights_read_into_memory_are_wrapped_as_mapped_ones_are) {
  auto file = gguf::File::open(test_support::golden_path("llama", ".gguf"), {.mmap = false});
  ASSERT_TRUE(file.has_value()) << file.error().message;
  auto model = model::load(*file);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  expect_same(model->program, CacheType::kF16, 12, false);
}

INSTANTIATE_TEST_SUITE_P(Some, AppleFamilies, ::testing::Values("llama", "gemma3", "qwen35moe"),
                         [](const auto& tested) { return test_support::test_name(tested.param); });

}  // namespace
}  // namespace honeycrisp::testing
