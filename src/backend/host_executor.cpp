#include "backend/host_executor.h"

#include "backend/batch_check.h"
#include "backend/top_logits.h"

#include <algorithm>

namespace honeycrisp::backend {

Result<void> HostExecutor::step(const Batch& batch, std::span<float> logits, std::span<TopLogits> top) {
  HC_ASSIGN(const Wanted wanted, check_wanted(batch, vocabulary_, logits.size(), top.size()));
  if (wanted.n_top == 0) return compute(batch, logits);
  scratch_.resize(std::max<size_t>(scratch_.size(), uint64_t{wanted.n_rows()} * vocabulary_));
  const std::span<float> computed = std::span(scratch_).first(uint64_t{wanted.n_rows()} * vocabulary_);
  HC_TRY(compute(batch, computed));
  std::span<const float> left = computed;
  for (const Row& row : batch.rows) {
    if (!row.wants_logits) continue;
    if (row.n_top != 0) {
      top.front() = top_logits(left.first(n_choosable_), row.n_top);
      top = top.subspan(1);
    } else {
      std::copy_n(left.begin(), vocabulary_, logits.begin());
      logits = logits.subspan(vocabulary_);
    }
    left = left.subspan(vocabulary_);
  }
  return {};
}

}  // namespace honeycrisp::backend
