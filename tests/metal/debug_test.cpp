// The switches of people who debug: nothing is said of what is right, the op is named whose result is not, and times
// are told of each op.
#include "backend/metal/executor.h"
#include "backend/metal/kernels/project_args.h"
#include "backend/metal/soft_device.h"
#include "support/op_cases.h"
#include "support/sequence_logits.h"
#include <honeycrisp/log.h>

#include <cstdlib>
#include <fmt/format.h>
#include <limits>
#include <optional>

namespace honeycrisp::testing {
namespace {

using namespace backend::metal;
using test_support::op_cases;
using test_support::TinyProgram;

/// Adds to the first value that the n-th product by mat_vec wrote, as soon as its command buffer has ended.
struct Fault {
  uint32_t n = 0;
  float by = 0;
  uint32_t products = 0;
};

class FaultyEncoder final : public Encoder {
 public:
  FaultyEncoder(Encoder& inner, Fault& fault) : inner_(inner), fault_(fault) {}
  void set_pipeline(const Pipeline& pipeline) override {
    is_product_ = pipeline.name().starts_with("mat_vec");
    inner_.set_pipeline(pipeline);
  }
  void set_buffer(uint32_t index, const View& view) override {
    if (index == kBufferOut) out_ = view;
    inner_.set_buffer(index, view);
  }
  void set_bytes(uint32_t index, std::span<const std::byte> bytes) override { inner_.set_bytes(index, bytes); }
  void set_threadgroup_memory(uint32_t index, uint32_t bytes) override { inner_.set_threadgroup_memory(index, bytes); }
  void dispatch(Size threadgroups, Size threads) override {
    if (is_product_ && fault_.products++ == fault_.n) hit_ = out_;
    inner_.dispatch(threadgroups, threads);
  }
  void barrier() override { inner_.barrier(); }
  void after() {
    if (!hit_) return;
    float* value = reinterpret_cast<float*>(hit_->buffer->contents() + hit_->offset);
    *value += fault_.by;
  }

 private:
  Encoder& inner_;
  Fault& fault_;
  bool is_product_ = false;
  View out_;
  std::optional<View> hit_;
};

class FaultyCommands final : public CommandBuffer {
 public:
  FaultyCommands(std::unique_ptr<CommandBuffer> inner, Fault& fault)
      : inner_(std::move(inner)), encoder_(inner_->encoder(), fault) {}
  Encoder& encoder() override { return encoder_; }
  void commit() override { inner_->commit(); }
  Result<void> wait() override {
    HC_TRY(inner_->wait());
    encoder_.after();
    return {};
  }
  double gpu_seconds() const override { return inner_->gpu_seconds(); }

 private:
  std::unique_ptr<CommandBuffer> inner_;
  FaultyEncoder encoder_;
};

class FaultyDevice final : public Device {
 public:
  FaultyDevice(std::shared_ptr<Device> inner, Fault fault) : inner_(std::move(inner)), fault_(fault) {}
  std::string describe() const override { return inner_->describe(); }
  uint64_t most_buffer_bytes() const override { return inner_->most_buffer_bytes(); }
  uint64_t recommended_memory_bytes() const override { return inner_->recommended_memory_bytes(); }
  Result<std::shared_ptr<Buffer>> allocate(uint64_t bytes, std::string label) override {
    return inner_->allocate(bytes, std::move(label));
  }
  Result<std::shared_ptr<Buffer>> wrap(std::byte* memory, uint64_t bytes, std::function<void()> release,
                                       std::string label) override {
    return inner_->wrap(memory, bytes, std::move(release), std::move(label));
  }
  Result<std::shared_ptr<const Pipeline>> pipeline(std::string_view file, std::string_view kernel,
                                                   std::span<const Constant> constants) override {
    return inner_->pipeline(file, kernel, constants);
  }
  Result<std::unique_ptr<CommandBuffer>> command_buffer(std::string label) override {
    HC_ASSIGN(auto commands, inner_->command_buffer(std::move(label)));
    return std::make_unique<FaultyCommands>(std::move(commands), fault_);
  }

 private:
  std::shared_ptr<Device> inner_;
  Fault fault_;
};

std::unique_ptr<backend::Executor> on_metal(const program::Program& program, DebugSwitches debug, CacheType type,
                                            std::optional<Fault> fault = {}) {
  backend::CompileOptions options;
  options.cache_type = type;
  options.max_positions = 2048;
  auto device = soft_device({});
  EXPECT_TRUE(device.has_value()) << device.error().message;
  if (!device) return nullptr;
  if (fault) device = std::make_shared<FaultyDevice>(std::move(*device), *fault);
  auto executor = make_executor(std::move(*device), program, options, debug);
  EXPECT_TRUE(executor.has_value()) << executor.error().message;
  return executor ? std::move(*executor) : nullptr;
}

class MetalCompare : public ::testing::TestWithParam<size_t> {};

TEST_P(MetalCompare, finds_nothing_in_what_is_right) {
  const test_support::OpCase& c = op_cases()[GetParam()];
  const TinyProgram t = c.build();
  const std::vector<int32_t> tokens = some_tokens(c.positions, TinyProgram::kVocabulary);
  const auto metal = on_metal(t.program, {.compare = true}, CacheType::kF16);
  ASSERT_TRUE(metal);
  for (Role role : kRoles) all_logits(*metal, t.program, tokens, 7, role);  // an error fails the test
}

INSTANTIATE_TEST_SUITE_P(All, MetalCompare, ::testing::Range(size_t{0}, op_cases().size()),
                         [](const auto& tested) { return op_cases()[tested.param].name; });

/// Eight products in a row, each of them with the result of the last; the logits are the ninth.
TinyProgram chain() {
  TinyProgram t;
  for (const char* label : {"first", "second", "third", "fourth"}) {
    const program::BufferId out = t.buffer(t.width);
    t.store(t.matrix(quant::Format::kQ8_0, t.width, t.width), t.all(0), t.all(out));
    t.program.steps.back().label = label;
    t.residual(t.matrix(quant::Format::kQ4_0, t.width, t.width), t.all(out), {.x = t.all(0)});
    t.program.steps.back().label = std::string(label) + ", added";
  }
  t.finish();
  return t;
}

Result<void> step_once(backend::Executor& executor, const program::Program& program) {
  backend::SequencePages pages;
  pages.tables.resize(program.pools.size());
  const backend::Row row{.token = 1, .position = 0, .sequence = 0, .wants_logits = true, .role = Role::kGenerated};
  std::vector<float> logits(program.vocabulary);
  return executor.step({{&row, 1}, {&pages, 1}}, logits);
}

TEST(MetalDebug, the_first_wrong_op_is_named) {
  const TinyProgram t = chain();
  const struct {
    uint32_t product;
    const char* label;
  } cases[] = {{0, "first (project)"}, {3, "second, added (project)"}, {6, "fourth (project)"}, {8, "'logits'"}};
  for (const auto& c : cases) {
    for (const float by : {0.5f, std::numeric_limits<float>::quiet_NaN()}) {
      const auto metal = on_metal(t.program, {.compare = true}, CacheType::kF16, Fault{c.product, by});
      ASSERT_TRUE(metal);
      const auto stepped = step_once(*metal, t.program);
      ASSERT_FALSE(stepped.has_value()) << c.label;
      EXPECT_NE(stepped.error().message.find(c.label), std::string::npos) << stepped.error().message;
      EXPECT_NE(stepped.error().message.find("row 0, column 0"), std::string::npos) << stepped.error().message;
    }
    const auto close = on_metal(t.program, {.compare = true}, CacheType::kF16, Fault{c.product, 1e-7f});
    ASSERT_TRUE(close);
    const auto stepped = step_once(*close, t.program);
    EXPECT_TRUE(stepped.has_value()) << stepped.error().message;
  }
}

TEST(MetalDebug, times_of_each_op_are_told_at_the_end_and_change_nothing) {
  const TinyProgram t = chain();
  std::string told;
  set_log_handler([&](LogLevel, const std::string& message) { told += message + "\n"; });
  std::vector<float> with, without;
  std::vector<backend::StepPlan> steps;
  const std::vector<int32_t> tokens = some_tokens(3, TinyProgram::kVocabulary);
  for (bool times : {false, true}) {
    const auto metal = on_metal(t.program, {.times = times}, CacheType::kF16);
    ASSERT_TRUE(metal);
    (times ? with : without) = all_logits(*metal, t.program, tokens, 1, Role::kGenerated);
    steps = metal->plan().steps;
    EXPECT_EQ(told, "");
  }
  set_log_handler({});
  EXPECT_TRUE(same_bits(with, without));
  EXPECT_TRUE(told.starts_with("3 steps, ")) << told;
  size_t at = 0;
  for (size_t i = 0; i < steps.size(); ++i) {  // in the program's order
    at = told.find(fmt::format("{:24} {}\n", t.program.steps[i].label, steps[i].kernels()), at);
    ASSERT_NE(at, std::string::npos) << t.program.steps[i].label << "\n" << told;
  }
}

TEST(MetalDebug, a_checking_device_says_at_the_end_how_much_it_checked) {
  const TinyProgram t = chain();
  std::string told;
  set_log_handler([&](LogLevel, const std::string& message) { told += message + "\n"; });
  uint32_t launches = 0;
  {
    auto executor = make_executor(soft_device({.check = true}).value(), t.program, {.max_rows = 1});
    ASSERT_TRUE(executor.has_value()) << executor.error().message;
    for (const backend::StepPlan& step : (*executor)->plan().steps) launches += step.launches;
    ASSERT_TRUE(step_once(**executor, t.program));
    EXPECT_EQ(told, "");
  }
  set_log_handler({});
  EXPECT_EQ(told, fmt::format("the checking Metal device ran {} dispatches: no report\n", launches));
}

TEST(MetalDebugSwitches, what_is_neither_on_nor_off_is_told) {
  const auto with = [](const char* value) {
    setenv("HONEYCRISP_METAL_TIMES", value, 1);
    const auto switches = backend::metal::debug_switches();
    unsetenv("HONEYCRISP_METAL_TIMES");
    return switches ? std::string(switches->times ? "on" : "off") : switches.error().message;
  };
  EXPECT_EQ(with("1"), "on");
  EXPECT_EQ(with("0"), "off");
  EXPECT_EQ(with(""), "off");
  EXPECT_EQ(with("yes"), "HONEYCRISP_METAL_TIMES is 'yes': 1 switches it on, 0 off");
}

TEST(MetalDebugSwitches, a_number_is_whole) {
  const auto with = [](const char* value) {
    setenv("HONEYCRISP_METAL_SEED", value, 1);
    const auto number = backend::metal::environment_number("HONEYCRISP_METAL_SEED");
    unsetenv("HONEYCRISP_METAL_SEED");
    return number ? std::to_string(*number) : number.error().message;
  };
  EXPECT_EQ(with("17"), "17");
  EXPECT_EQ(with(""), "0");
  for (const char* wrong : {"abc", "1x", "-1", "99999999999"})
    EXPECT_EQ(with(wrong), fmt::format("HONEYCRISP_METAL_SEED is '{}': a number of 32 bits is meant", wrong));
}

}  // namespace
}  // namespace honeycrisp::testing
