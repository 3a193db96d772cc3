// See state_pool.h.
#include "engine/state_pool.h"

#include "base/check.h"

#include <algorithm>

namespace honeycrisp::engine {

StatePool::StatePool(backend::Executor& executor, uint32_t usual_slots)
    : executor_(&executor), usual_slots_(usual_slots), slot_bytes_(executor.state_bytes()) {}

Result<void> StatePool::ensure(uint32_t n, CacheBudget& budget) {
  const auto gives_way = [](const Slot& slot) { return slot.holders == 0 && slot.checkpoints > 0; };
  const uint64_t available = free_.size() + uint64_t(std::count_if(slots_.begin(), slots_.end(), gives_way));
  if (n <= available) return {};
  return grow(uint32_t(n - available), budget);
}

Result<StateId> StatePool::take(CacheBudget& budget) {
  if (const auto found = find(budget)) return claim(*found);
  HC_TRY(grow(1, budget));
  const StateId slot = free_.back();
  free_.pop_back();
  return claim(slot);
}

Result<StateId> StatePool::make_own(StateId held, CacheBudget& budget) {
  const uint32_t n_holders = holders(held);
  HC_CHECK(n_holders > 0, "state {}", held);
  if (n_holders == 1 && slots_[held].checkpoints == 0) return held;
  StateId own = kNoState;
  if (n_holders > 1) {
    HC_ASSIGN(own, take(budget));
  } else if (const auto found = find(budget)) {
    own = claim(*found);
  } else {
    forget_checkpoints(held);
    return held;
  }
  executor_->copy_state(held, own);
  release(held);
  return own;
}

void StatePool::hold(StateId slot) {
  HC_CHECK(slots_[slot].holders + slots_[slot].checkpoints > 0, "state {}", slot);
  ++slots_[slot].holders;
}

void StatePool::release(StateId slot) {
  HC_CHECK(slots_[slot].holders > 0, "state {}", slot);
  --slots_[slot].holders;
  free_if_unclaimed(slot);
}

StatePool::Kept StatePool::keep(StateId slot) {
  HC_CHECK(slots_[slot].holders + slots_[slot].checkpoints > 0, "state {}", slot);
  ++slots_[slot].checkpoints;
  slots_[slot].kept_at = ++clock_;
  return {slot, slots_[slot].version};
}

void StatePool::drop(const Kept& kept) {
  if (!has(kept)) return;
  --slots_[kept.slot].checkpoints;
  free_if_unclaimed(kept.slot);
}

std::optional<StateId> StatePool::find(CacheBudget& budget) {
  // A device that is full is no error here: a checkpoint may give way instead.
  if (free_.empty() && capacity() < usual_slots_) (void)grow(1, budget);
  if (!free_.empty()) {
    const StateId slot = free_.back();
    free_.pop_back();
    return slot;
  }
  std::optional<StateId> oldest;
  for (StateId i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.holders == 0 && slot.checkpoints > 0 && (!oldest || slot.kept_at < slots_[*oldest].kept_at)) oldest = i;
  }
  if (oldest) forget_checkpoints(*oldest);
  return oldest;
}

Result<void> StatePool::grow(uint32_t n, CacheBudget& budget) {
  HC_CHECK(slot_bytes_ > 0);
  if (n > budget.left() / slot_bytes_ || capacity() + uint64_t(n) >= kNoState)
    return budget.refuse(n * slot_bytes_, n, "recurrent states");
  const uint32_t old_capacity = capacity();
  slots_.reserve(old_capacity + n);
  free_.reserve(old_capacity + n);
  HC_TRY(executor_->reserve_states(old_capacity + n));
  budget.reserved += n * slot_bytes_;
  slots_.resize(old_capacity + n);
  for (uint32_t i = n; i-- > 0;) free_.push_back(old_capacity + i);
  return {};
}

void StatePool::forget_checkpoints(StateId slot) {
  ++slots_[slot].version;
  slots_[slot].checkpoints = 0;
}

void StatePool::free_if_unclaimed(StateId slot) {
  if (slots_[slot].holders == 0 && slots_[slot].checkpoints == 0) free_.push_back(slot);
}

StateId StatePool::claim(StateId slot) {
  slots_[slot].holders = 1;
  return slot;
}

}  // namespace honeycrisp::engine
