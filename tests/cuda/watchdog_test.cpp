// The persistent kernel's watchdog: a vector that never comes is an error, and the next step works again.
#include "backend/cuda/persistent_step.h"
#include "cuda/cuda_test.h"

#include <cstring>

namespace honeycrisp::backend::cuda {

class WatchdogTest : public testing::OnCuda {
 protected:
  static void lose_patience(PersistentStep& step) { step.args_.patience_ns = 50'000'000; }
  /// Where the embedding goes; returns where it went before.
  static uint32_t send_embedding_to(PersistentStep& step, uint32_t place) {
    return std::exchange(step.plan_.embedded, place);
  }
  static uint32_t end_of_plane(const PersistentStep& step) { return step.plan_.plane; }
};

namespace {

TEST_F(WatchdogTest, barks_at_a_vector_that_never_comes_and_the_next_step_works) {
  if (const std::string why = persistent_device_obstacle(*device()); !why.empty()) GTEST_SKIP() << why;
  const test_support::TinyProgram t = testing::one_layer(quant::Format::kQ4_0);
  const CompileOptions options{.max_rows = 1, .max_positions = 64};
  Stream stream = nullptr;
  const Weights weights = Weights::load(t.program, options, /*float_tiles=*/true, stream).value();
  const KvCache cache = KvCache::make(t.program, options.cache_type, stream).value();
  PersistentStep step = PersistentStep::make(t.program, options, weights, cache, *device(), stream).value();
  EXPECT_EQ(step.memory_bytes(), PersistentStep::needed_bytes(t.program, options, *device()).value());
  lose_patience(step);

  const size_t n_logits = t.program.vocabulary;
  const Memory token = Memory::allocate(sizeof(int32_t), "a token", Memory::Place::kHost).value();
  const Memory logits = Memory::allocate(n_logits * sizeof(float), "logits", Memory::Place::kHost).value();
  *token.as<int32_t>() = 7;
  const Row row{.token = 7, .wants_logits = true, .role = Role::kGenerated};
  const StepRows rows{.n_rows = 1, .n_positions = program::kAttentionChunk, .tokens = token.as<int32_t>()};
  std::vector<double> seconds(t.program.steps.size());
  const auto issue = [&] {
    StepTimes times(seconds.data(), seconds.size());  // which wait for the step
    const auto issued = step.issue({.rows = {&row, 1}}, rows, {}, logits.as<float>(), stream, &times);
    EXPECT_TRUE(issued.has_value()) << issued.error().message;
  };
  issue();
  ASSERT_TRUE(step.finish(stream).has_value());
  const std::vector<float> expected(logits.as<float>(), logits.as<float>() + n_logits);

  const uint32_t place = send_embedding_to(step, end_of_plane(step) - t.width);
  for (const bool told : {true, false}) {
    send_embedding_to(step, end_of_plane(step) - t.width);
    issue();
    if (told) {
      const auto finished = step.finish(stream);
      ASSERT_FALSE(finished.has_value());
      EXPECT_EQ(finished.error().code, ErrorCode::kInternal);
      EXPECT_NE(finished.error().message.find("gave up"), std::string::npos) << finished.error().message;
    }
    send_embedding_to(step, place);
    ASSERT_TRUE(step.begin(stream).has_value());
    for (int i = 0; i < 3; ++i) {
      std::memset(logits.as(), 0, n_logits * sizeof(float));
      issue();
      ASSERT_TRUE(step.finish(stream).has_value());
      EXPECT_EQ(std::memcmp(logits.as(), expected.data(), n_logits * sizeof(float)), 0);
    }
  }
}

}  // namespace
}  // namespace honeycrisp::backend::cuda
