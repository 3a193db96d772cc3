// See stepper.h.
#include "engine/stepper.h"

#include "base/log.h"

#include <algorithm>

namespace honeycrisp::engine {
namespace {

/// Most bytes of logits that a batch may take besides the caller's own: 512 rows of a vocabulary of 262,144 would be
/// half a gigabyte.
constexpr uint64_t kMaxScratchBytes = 64 << 20;

}  // namespace

Stepper::Stepper(backend::Executor& executor, KvCache& cache, const Shape& shape)
    : executor_(&executor), cache_(&cache), shape_(shape) {}

Result<void> Stepper::reserve(std::span<const Work> works) {
  if (!flies(works)) land();
  for (size_t pool = 0; pool < cache_->pools.size(); ++pool) {
    uint64_t pages = 0;
    for (const Work& work : works) pages += work.sequence->pages_missing(pool);
    HC_TRY(cache_->pools[pool].ensure_free(uint32_t(std::min<uint64_t>(pages, kNoPage)), cache_->budget));
  }
  return cache_->states.slot_bytes() == 0 ? Result<void>() : reserve_states(works);
}

Result<void> Stepper::reserve_states(std::span<const Work> works) {
  std::vector<StateId> held;  // by the works; of forks that share a slot all but the last holder copy it
  for (const Work& work : works) held.push_back(work.sequence->states().current());
  std::sort(held.begin(), held.end());
  size_t n = 0;
  for (size_t i = 0, end = 0; i < held.size(); i = end) {
    while (end < held.size() && held[end] == held[i]) ++end;
    const bool one_stays = held[i] != kNoState && cache_->states.holders(held[i]) == end - i;
    n += end - i - (one_stays ? 1 : 0);
  }
  return cache_->states.ensure(uint32_t(n), cache_->budget);
}

void Stepper::plan(std::span<const Work> works, uint32_t most_rows) {
  parts_.clear();
  uint64_t rows_left = std::min(shape_.chunk, most_rows);
  uint64_t logits_left = std::max<uint64_t>(1, kMaxScratchBytes / sizeof(float) / shape_.table_rows);
  for (const Work& work : works) {
    const uint32_t begin = work.sequence->computed();
    if (begin == work.sequence->size()) continue;
    if (rows_left == 0 || logits_left == 0) break;
    const uint64_t quiet = work.first_result() > begin ? work.first_result() - begin : 0;
    const uint64_t n = std::min({uint64_t(work.sequence->next_stop() - begin), rows_left, quiet + logits_left});
    const uint64_t n_logits = n > quiet ? n - quiet : 0;
    parts_.push_back({&work, uint32_t(begin + n), uint32_t(begin + n - n_logits)});
    rows_left -= n;
    logits_left -= n_logits;
  }
}

/// Sequences that take turns would void each other's flights: it takes off only if the last step was this one's too.
bool Stepper::flies(std::span<const Work> works) const {
  if (works.size() != 1 || works[0].n_top == 0) return false;
  const Sequence& sequence = *works[0].sequence;
  const bool is_next_token =
      sequence.size() == sequence.computed() + 1 && sequence.role(sequence.computed()) == backend::Role::kGenerated;
  if (!is_next_token || flight_.sequence == &sequence) return is_next_token;
  // A recurrent state could not be taken back.
  return works[0].ahead != 0 && last_ == &sequence && cache_->states.slot_bytes() == 0 &&
         executor_->most_in_flight() > 1;
}

Result<void> Stepper::fly(const Work& work) {
  Sequence& sequence = *work.sequence;
  const uint32_t position = sequence.computed();
  const int32_t token = sequence.tokens()[position];
  if (flight_.sequence != &sequence || flight_.token != token || flight_.n_top != work.n_top) {
    land();
    flight_ = {.sequence = &sequence, .end = position, .token = token, .n_top = work.n_top};
  }
  const uint32_t end = position + 1 + std::min(work.ahead, executor_->most_in_flight() - 1);
  while (flight_.end < end) {
    if (auto issued = issue_next(token); !issued) {
      if (flight_.end > position) break;  // told once that position is asked for, if it is so then
      land();
      return issued;
    }
  }
  auto top = executor_->collect();
  if (!top) {
    flight_ = {};
    sequence.abandon(Sequence::Outcome::kFailed);
    return tl::unexpected(top.error());
  }
  *work.top = *top;
  sequence.commit(position + 1);
  flight_.token = top->tokens[0];
  if (flight_.end == position + 1) land();  // a step that was not issued may have left a page
  return {};
}

Result<void> Stepper::issue_next(int32_t token) {
  Sequence& sequence = *flight_.sequence;
  HC_TRY(sequence.prepare(flight_.end + 1));
  const backend::Row row{.token = token,
                         .position = flight_.end,
                         .wants_logits = true,
                         .role = backend::Role::kGenerated,
                         .n_top = uint8_t(flight_.n_top)};
  const backend::SequencePages pages = sequence.pages();
  HC_TRY(executor_->issue({.rows = {&row, 1}, .sequences = {&pages, 1}}, flight_.end != sequence.computed()));
  ++flight_.end;
  return {};
}

void Stepper::land() {
  if (flight_.sequence == nullptr) return;
  for (uint32_t n = flight_.end - flight_.sequence->computed(); n != 0; --n) {
    if (const auto top = executor_->collect(); !top) {
      log_warning("a token that nobody asked for could not be computed: {}", top.error().message);
      break;
    }
  }
  flight_.sequence->abandon(Sequence::Outcome::kNotRun);
  flight_ = {};
}

Result<bool> Stepper::step(std::span<const Work> works, uint32_t most_rows) {
  const bool is_one = works.size() == 1, flying = flies(works);
  last_ = is_one ? works[0].sequence : nullptr;
  if (flying) {
    HC_TRY(fly(works[0]));
    return true;
  }
  land();
  plan(works, most_rows);
  if (parts_.empty()) return false;
  Unfinished unfinished{parts_};
  HC_TRY(compute(unfinished));
  deliver();
  for (const Part& part : parts_) part.work->sequence->commit(part.end);
  unfinished.parts = {};
  return true;
}

Result<void> Stepper::compute(Unfinished& unfinished) {
  rows_.clear();
  pages_.clear();
  uint64_t n_logits = 0;
  size_t n_tops = 0;
  for (const Part& part : parts_) {
    Sequence& sequence = *part.work->sequence;
    HC_TRY(sequence.prepare(part.end));
    for (uint32_t p = sequence.computed(); p < part.end; ++p) {
      rows_.push_back({.token = sequence.tokens()[p],
                       .position = p,
                       .sequence = uint32_t(pages_.size()),
                       .wants_logits = p >= part.results_begin,
                       .role = sequence.role(p),
                       .n_top = uint8_t(part.work->n_top)});
    }
    pages_.push_back(sequence.pages());
    n_logits += part.n_logits();
    n_tops += part.n_tops();
  }
  const std::span<float> logits = logits_target(n_logits);
  tops_.resize(n_tops);
  unfinished.outcome = Sequence::Outcome::kFailed;
  return executor_->step({.rows = rows_, .sequences = pages_}, logits, tops_);
}

bool Stepper::in_place() const { return parts_.size() == 1 && shape_.vocabulary == shape_.table_rows; }

std::span<float> Stepper::logits_target(uint64_t n_rows) {
  if (in_place()) {
    const Part& part = parts_.front();
    const uint64_t first = n_rows == 0 ? 0 : part.results_begin - part.work->logits_from;
    return part.work->logits.subspan(first * shape_.vocabulary, n_rows * shape_.vocabulary);
  }
  scratch_.resize(std::max<size_t>(scratch_.size(), n_rows * shape_.table_rows));
  return std::span(scratch_).first(n_rows * shape_.table_rows);
}

void Stepper::deliver() const {
  const float* row = in_place() ? nullptr : scratch_.data();
  size_t n_tops = 0;
  for (const Part& part : parts_) {
    if (part.n_tops() != 0) *part.work->top = tops_[n_tops++];
    if (row == nullptr) continue;
    const uint32_t end = part.results_begin + part.n_logits();
    for (uint32_t p = part.results_begin; p < end; ++p, row += shape_.table_rows) {
      const uint64_t index = p - part.work->logits_from;
      std::copy_n(row, shape_.vocabulary, part.work->logits.begin() + ptrdiff_t(index * shape_.vocabulary));
    }
  }
}

}  // namespace honeycrisp::engine
