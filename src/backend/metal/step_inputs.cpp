#include "backend/metal/step_inputs.h"

#include <algorithm>
#include <bit>

namespace honeycrisp::backend::metal {
namespace {

constexpr uint64_t kFirstTableWords = 1024;

}  // namespace

Result<void> StepInputs::reserve(uint64_t table_words) {
  if (table_words > UINT32_MAX) return invalid("page tables of {} entries", table_words);
  if (!words_ || words_->bytes() < (tables_at() + table_words) * 4) {
    const uint64_t room = std::bit_ceil(std::max(table_words, kFirstTableWords));
    HC_ASSIGN(words_, device_.allocate((tables_at() + room) * 4, "inputs of a step"));
  }
  return {};
}

Result<std::vector<StepInputs::Part>> StepInputs::take_in(const Batch& batch, uint32_t vocabulary, const View& logits) {
  uint64_t table_words = 0;
  std::vector<uint32_t> starts;  // [sequences][pools]
  for (const SequencePages& sequence : batch.sequences)
    for (const auto& table : sequence.tables) {
      starts.push_back(uint32_t(table_words));
      table_words += table.size();
    }
  HC_TRY(reserve(table_words));

  auto* host = reinterpret_cast<uint32_t*>(words_->contents());
  uint64_t at = tables_at();
  for (const SequencePages& sequence : batch.sequences)
    for (const auto& table : sequence.tables) {
      std::copy(table.begin(), table.end(), host + at);
      at += table.size();
    }

  std::vector<Part> parts;
  std::vector<bool> has_run(batch.sequences.size());  // in the part
  uint64_t n_logits = 0;
  const auto n_rows = uint32_t(batch.rows.size());
  for (uint32_t first = 0, end; first < n_rows; first = end) {
    end = first;
    Part& part = parts.emplace_back();
    PartRows& rows = part.rows;
    rows.role = batch.rows[first].role;
    const uint64_t first_logit = n_logits;
    has_run.assign(has_run.size(), false);
    for (; end < n_rows && batch.rows[end].role == rows.role; ++end) {
      const Row& r = batch.rows[end];
      const Row* before = end == first ? nullptr : &r - 1;
      const bool follows = before && before->sequence == r.sequence && before->position + 1 == r.position;
      if (!follows && has_run[r.sequence]) break;  // launches of a part would run both at once
      has_run[r.sequence] = true;
      host[array_at(kTokens) + end] = uint32_t(r.token);
      host[array_at(kPositions) + end] = r.position;
      host[array_at(kStates) + end] = batch.sequences[r.sequence].state;
      std::copy_n(starts.begin() + ptrdiff_t(uint64_t{r.sequence} * n_pools_), n_pools_,
                  host + starts_at() + uint64_t{end} * n_pools_);
      if (r.wants_logits) host[array_at(kLogitRows) + n_logits++] = end - first;
      rows.n_positions = std::max(rows.n_positions, r.position + 1);
      if (follows)
        ++rows.runs.back().n_rows;
      else
        rows.runs.push_back({end - first, 1, r.position});
    }
    rows.n = end - first;
    rows.n_logits = uint32_t(n_logits - first_logit);
    rows.tokens = words(array_at(kTokens) + first, rows.n);
    rows.positions = words(array_at(kPositions) + first, rows.n);
    rows.states = words(array_at(kStates) + first, rows.n);
    rows.table_start = words(starts_at() + uint64_t{first} * n_pools_, uint64_t{rows.n} * n_pools_);
    rows.tables = words(tables_at(), table_words);
    rows.logit_rows = words(array_at(kLogitRows) + first_logit, rows.n_logits);
    const uint64_t logit_bytes = uint64_t{vocabulary} * sizeof(float);
    rows.logits = {logits.buffer, logits.offset + first_logit * logit_bytes, rows.n_logits * logit_bytes};
    part.batch = {batch.rows.subspan(first, rows.n), batch.sequences};
  }
  return parts;
}

}  // namespace honeycrisp::backend::metal
