// What the tests on a CUDA device share: the loud skip, and which path a program takes.
#pragma once

#include "backend/cuda/cuda_backend.h"
#include "backend/reference/reference_backend.h"
#include "support/sequence_logits.h"
#include "support/tiny_program.h"

#include <cmath>
#include <string>

namespace honeycrisp::testing {

class OnCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto available = backend::cuda_backend().available(); !available)
      GTEST_SKIP() << "NOTHING WAS TESTED: " << available.error().message;
  }
};

inline bool is_persistent(const backend::Executor& executor) {
  return executor.plan().steps.back().kernel.ends_with(".persistent");
}
inline std::string reasons(const backend::Executor& executor) {
  std::string all;
  for (const backend::StepPlan& step : executor.plan().steps)
    if (!step.why_not_fast.empty()) all += step.kernel + ": " + step.why_not_fast + "\n";
  return all;
}

/// Two products and the logits, no attention.
inline test_support::TinyProgram one_layer(quant::Format format) {
  test_support::TinyProgram t(256);
  const program::BufferId hidden = t.buffer(512);
  t.store(t.matrix(format, 512, 256), t.all(0), t.all(hidden), {.scale = 0.2f});
  t.residual(t.matrix(format, 256, 512), t.all(hidden), {.branch_scale = 0.3f});
  t.add(program::Logits{t.all(0), t.norm(256), t.matrix(format, t.kVocabulary, 256)}, "logits");
  return t;
}

}  // namespace honeycrisp::testing
