// What the host decides beforehand, of which no device is needed: which floats are packed, and how much memory steps
// take.
#include "backend/cuda/persistent_step.h"
#include "support/tiny_program.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace honeycrisp::backend::cuda {
namespace {

using quant::Format;
using test_support::TinyProgram;

constexpr uint32_t kBlocks = 132, kShared = 200 << 10;

// Layers of a gate and its product back.
TinyProgram layers(Format format, uint32_t n, uint32_t width, uint32_t hidden) {
  TinyProgram t(width);
  t.only_packed = true;
  const program::BufferId wide = t.buffer(hidden);
  for (uint32_t i = 0; i < n; ++i) {
    t.store(t.matrix(format, hidden, width), t.all(0), t.all(wide), {.scale = 0.2f});
    t.residual(t.matrix(format, width, hidden), t.all(wide), {.branch_scale = 0.3f});
  }
  t.add(program::Logits{t.all(0), t.norm(width), t.matrix(format, t.kVocabulary, width)}, "logits");
  return t;
}

bool runs(const program::Program& program) {
  const std::vector<std::string> obstacles = persistent_obstacles(program, CacheType::kF16);
  return std::ranges::all_of(obstacles, &std::string::empty);
}

TEST(CudaPlan, floats_are_packed_for_the_persistent_kernel_alone) {
  TinyProgram t(256);
  const program::Matrix half = t.matrix(Format::kF16, 256, 256), quantized = t.matrix(Format::kQ4_0, 256, 256);
  t.residual(half, t.all(0), {.branch_scale = 0.1f});
  t.residual(quantized, t.all(0), {.branch_scale = 0.1f});
  t.add(program::Logits{t.all(0), t.norm(256), t.matrix(Format::kBF16, t.kVocabulary, 256)}, "logits");
  EXPECT_TRUE(runs(t.program)) << "an obstacle is one of the program, and not that floats are not packed elsewhere";
  for (const bool float_tiles : {false, true}) {
    const std::vector<bool> packed = packed_weights(t.program, float_tiles);
    EXPECT_EQ(packed[half.weight], float_tiles);
    EXPECT_TRUE(packed[quantized.weight]);
  }
}

TEST(CudaPlan, names_kernels_and_what_is_not_fast) {
  TinyProgram t;
  t.attention([](TinyProgram&, program::Attend&) {});
  t.residual(t.matrix(Format::kF32, t.width, t.width), t.all(0), {.branch_scale = 0.1f});
  t.finish();
  const std::vector<StepPlan> steps = plan_steps(t.program, persistent_obstacles(t.program, CacheType::kF16));
  ASSERT_EQ(steps.size(), t.program.steps.size());
  EXPECT_EQ(steps[1].kernel, "project.q4_0.cuda.mma");
  EXPECT_EQ(steps[1].launches, 1u);
  EXPECT_NE(steps[1].why_not_fast.find("other steps"), std::string::npos);
  EXPECT_EQ(steps[3].kernel, "project.q5_1.cuda.mma");
  const auto floats = std::ranges::find(steps, "project.f32.cuda.simt", &StepPlan::kernel);
  ASSERT_NE(floats, steps.end());
  EXPECT_NE(floats->why_not_fast.find("f32: no products of packed tiles"), std::string::npos);
  EXPECT_NE(floats->why_not_fast.find("F32 has no packed tiles"), std::string::npos);
}

TEST(CudaPlan, the_memory_of_wide_steps_is_counted_with_their_rows) {
  const TinyProgram t = layers(Format::kQ4_0, 2, 512, 4096);
  ASSERT_TRUE(runs(t.program));
  const PersistentPlan plan =
      make_persistent_plan(t.program, CacheType::kF16, nullptr, nullptr, kBlocks, kShared).value();
  EXPECT_NE(plan.lists[0].shared.ring, 0u);
  EXPECT_FALSE(plan.lists[0].stages.empty());
  const DeviceInfo device{.multiprocessors = kBlocks};
  const auto bytes = [&](uint32_t rows) {
    return WideStep::needed_bytes(t.program, plan, device, {.max_rows = rows, .max_positions = 64}).value();
  };
  // Vectors, and the sums of groups of 1024 columns.
  EXPECT_GT(bytes(64), uint64_t{64} * (512 + 4096) * sizeof(float));
  EXPECT_GT(bytes(64), bytes(16));
  EXPECT_EQ(bytes(512), bytes(64)) << "more rows run 64 at a time";
}

}  // namespace
}  // namespace honeycrisp::backend::cuda
