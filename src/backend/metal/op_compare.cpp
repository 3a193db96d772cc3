#include "backend/metal/op_compare.h"

#include <bit>
#include <cmath>

namespace honeycrisp::backend::metal {
namespace {

bool same(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

/// |got − expected| / |expected| over what either side wrote: elements that are no longer what they were. `before` may
/// be empty: everything was written.
struct Difference {
  double error = 0;
  size_t worst = 0;  // element
};
Difference difference(std::span<const float> got, std::span<const float> expected, std::span<const float> before) {
  double squares = 0, total = 0, most = -1;
  Difference d;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!before.empty() && same(got[i], before[i]) && same(expected[i], before[i])) continue;
    const double by = double(got[i]) - double(expected[i]);
    squares += by * by;
    total += double(expected[i]) * double(expected[i]);
    if (std::isnan(by) ? !std::isnan(most) : std::abs(by) > most) {
      most = std::abs(by);
      d.worst = i;
    }
  }
  if (squares != 0) d.error = std::sqrt(squares / total);  // NaN stays NaN
  return d;
}

Result<void> judge(const Difference& d, std::string_view name, size_t width, std::span<const float> got,
                   std::span<const float> expected) {
  if (d.error <= OpCompare::kMostError) return {};
  return fail(ErrorCode::kInternal,
              "'{}' is off by {:.3g} relative to the reference, more than {:g}; most at row {}, column {}: {} instead "
              "of {}",
              name, d.error, OpCompare::kMostError, d.worst / width, d.worst % width, got[d.worst], expected[d.worst]);
}

}  // namespace

void OpCompare::before(std::span<const std::span<float>> buffers) {
  inputs_.resize(buffers.size());
  for (size_t b = 0; b < buffers.size(); ++b) inputs_[b].assign(buffers[b].begin(), buffers[b].end());
}

Result<void> OpCompare::after(size_t step, const Batch& batch, std::span<const std::span<float>> buffers,
                              std::span<const float> logits) {
  std::vector<std::vector<float>> expected = inputs_;
  std::vector<float> expected_logits(logits.size());
  reference::StepState state{program_, batch, {}, kv_, states_, expected_logits};
  for (auto& values : expected) state.buffers.push_back(values);
  const program::Op& op = program_.steps[step].op;
  std::visit([&](const auto& o) { reference::run(state, o); }, op);
  for (size_t b = 0; b < buffers.size(); ++b)
    HC_TRY(judge(difference(buffers[b], expected[b], inputs_[b]), program_.buffers[b].name, program_.buffers[b].width,
                 buffers[b], expected[b]));
  if (std::holds_alternative<program::Logits>(op))
    HC_TRY(judge(difference(logits, expected_logits, {}), "logits", program_.vocabulary, logits, expected_logits));
  return {};
}

}  // namespace honeycrisp::backend::metal
