// See state_track.h.
#include "engine/state_track.h"

#include "base/check.h"

#include <algorithm>
#include <utility>

namespace honeycrisp::engine {

StateTrack::StateTrack(KvCache& cache) : cache_(&cache) {
  // One more than are kept: so that a commit never allocates.
  if (cache.checkpoints > 0) checkpoints_.reserve(size_t{cache.checkpoints} + 1);
}

StateTrack::StateTrack(StateTrack&& other) noexcept
    : cache_(other.cache_),
      current_(std::exchange(other.current_, kNoState)),
      checkpoints_(std::exchange(other.checkpoints_, {})),
      mark_(std::exchange(other.mark_, std::nullopt)) {}

StateTrack::~StateTrack() {
  drop_mark();
  drop_if([](const Checkpoint&) { return true; });
  if (current_ != kNoState) cache_->states.release(current_);
}

StateTrack StateTrack::fork() const {
  StateTrack copy(*cache_);
  if (current_ != kNoState) cache_->states.hold(copy.current_ = current_);
  for (const Checkpoint& checkpoint : checkpoints_)
    if (cache_->states.has(checkpoint.kept))
      copy.checkpoints_.push_back({checkpoint.position, cache_->states.keep(checkpoint.kept.slot)});
  return copy;
}

Result<void> StateTrack::prepare() {
  if (!exists()) return {};
  if (current_ == kNoState) {
    HC_ASSIGN(current_, cache_->states.take(cache_->budget));
  } else {
    HC_ASSIGN(current_, cache_->states.make_own(current_, cache_->budget));
  }
  return {};
}

void StateTrack::commit(uint32_t position) {
  if (cache_->checkpoints == 0 || position % kPagePositions != 0) return;
  checkpoints_.push_back(keep(position));
  thin(position);
}

void StateTrack::mark(uint32_t position) {
  drop_mark();
  if (current_ != kNoState) mark_ = keep(position);
}

uint32_t StateTrack::rewind(uint32_t position) {
  if (!exists()) return position;
  StatePool& states = cache_->states;
  drop_if([&](const Checkpoint& c) { return c.position > position || !states.has(c.kept); });
  if (mark_ && (mark_->position > position || !states.has(mark_->kept))) drop_mark();
  const Checkpoint* newest = checkpoints_.empty() ? nullptr : &checkpoints_.back();
  if (mark_ && (newest == nullptr || newest->position < mark_->position)) newest = &*mark_;
  if (current_ != kNoState) states.release(std::exchange(current_, kNoState));
  if (newest == nullptr) return 0;
  states.hold(current_ = newest->kept.slot);
  return newest->position;
}

void StateTrack::forget_before(uint32_t position) {
  drop_if([&](const Checkpoint& c) { return c.position < position; });
}

uint32_t StateTrack::next_stop(uint32_t computed, uint32_t size) const {
  // Little work is not cut: it may be the guesses of a speculation, half of which will be taken back.
  if (size - computed < kPagePositions) return size;
  // The last page's start before the end, and 4, 16, 64, … pages before that: chunks alone would end anywhere.
  uint32_t stop = size;
  uint64_t back = 0;
  for (uint32_t i = 0; i < cache_->checkpoints && back < size; ++i) {
    const uint32_t start = (size - 1 - uint32_t(back)) / kPagePositions * kPagePositions;
    if (start <= computed) break;
    stop = start;
    back = std::max<uint64_t>(back, kPagePositions) * 4;
  }
  return stop;
}

template <class Condition>
void StateTrack::drop_if(const Condition& condition) {
  std::erase_if(checkpoints_, [&](const Checkpoint& checkpoint) {
    if (!condition(checkpoint)) return false;
    cache_->states.drop(checkpoint.kept);
    return true;
  });
}

void StateTrack::drop_mark() {
  if (mark_) cache_->states.drop(mark_->kept);
  mark_.reset();
}

/// Gives up what is missed least: the checkpoint without which a rewind recomputes the fewest positions for each that
/// it goes back. Gaps then grow in proportion to age.
void StateTrack::thin(uint32_t now) {
  drop_if([&](const Checkpoint& c) { return !cache_->states.has(c.kept); });
  while (checkpoints_.size() > cache_->checkpoints) {
    size_t least = 0;
    uint64_t least_gap = UINT64_MAX, least_age = 1;
    for (size_t i = 0; i + 1 < checkpoints_.size(); ++i) {
      const uint64_t before = i == 0 ? 0 : checkpoints_[i - 1].position;
      const uint64_t gap = checkpoints_[i + 1].position - before;
      const uint64_t age = uint64_t{now} - checkpoints_[i].position + kPagePositions;
      if (least_gap == UINT64_MAX || gap * least_age < least_gap * age) {
        least = i;
        least_gap = gap;
        least_age = age;
      }
    }
    cache_->states.drop(checkpoints_[least].kept);
    checkpoints_.erase(checkpoints_.begin() + ptrdiff_t(least));
  }
}

}  // namespace honeycrisp::engine
