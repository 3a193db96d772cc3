#include "backend/metal/step_results.h"

#include "backend/metal/top_k.h"

#include <algorithm>
#include <cstring>

namespace honeycrisp::backend::metal {

Result<void> StepResults::reserve(const Wanted& wanted) {
  const uint64_t logits_bytes = uint64_t{wanted.n_rows()} * vocabulary_ * sizeof(float);
  if (logits_bytes != 0 && (!logits_ || logits_->bytes() < logits_bytes)) {
    HC_ASSIGN(logits_, device_.allocate(logits_bytes, "logits"));
  }
  if (wanted.n_top == 0) return {};
  n_rows_ = wanted.n_rows();
  k_ = wanted.most_top;
  const uint64_t top_bytes = n_rows_ * (2 * k_ + 1) * sizeof(uint32_t);
  if (!top_ || top_->bytes() < top_bytes) {
    HC_ASSIGN(top_, device_.allocate(top_bytes, "largest logits"));
  }
  return {};
}

// Of all rows, those that want all their logits included: batches of both kinds are rare.
Result<void> StepResults::encode_top(const Wanted& wanted, Pipelines& pipelines, StepEncoder& encoder, Places& places) {
  const TopKShape shape{wanted.n_rows(), n_choosable_, vocabulary_, wanted.most_top};
  const uint64_t part = n_rows_ * k_ * sizeof(uint32_t);
  const TopK out{.values = {top_.get(), 0, part},
                 .indices = {top_.get(), part, part},
                 .unusable = {top_.get(), 2 * part, n_rows_ * sizeof(uint32_t)}};
  HC_ASSIGN(const View scratch, places.scratch(top_k_scratch_bytes(shape)));
  HC_TRY(encode_top_k(pipelines, encoder, logits(), shape, scratch, out));
  places.release(scratch);
  return {};
}

TopLogits StepResults::top_of(uint64_t row, uint32_t n) const {
  const auto* values = reinterpret_cast<const float*>(top_->contents());
  const auto* indices = reinterpret_cast<const uint32_t*>(values + n_rows_ * k_);
  TopLogits top;
  top.n = std::min(n, n_choosable_);
  top.n_unusable = indices[n_rows_ * k_ + row];
  std::copy_n(values + row * k_, top.n, top.logits.begin());
  std::copy_n(indices + row * k_, top.n, top.tokens.begin());
  return top;
}

void StepResults::hand_out(const Batch& batch, std::span<float> logits, std::span<TopLogits> top) const {
  uint64_t index = 0;  // among rows that want any
  for (const Row& row : batch.rows) {
    if (!row.wants_logits) continue;
    if (row.n_top != 0) {
      top.front() = top_of(index, row.n_top);
      top = top.subspan(1);
    } else {
      const auto* computed = reinterpret_cast<const float*>(logits_->contents()) + index * vocabulary_;
      std::copy_n(computed, vocabulary_, logits.begin());
      logits = logits.subspan(vocabulary_);
    }
    ++index;
  }
}

}  // namespace honeycrisp::backend::metal
