// Slots of recurrent state: who holds them, which are free, and which may be taken back. One slot has the state of all
// recurrent layers after some position of a sequence.
// Owns the free list and the counts. A holder relies on its slot; a checkpoint only hopes for it: when slots run out,
// the oldest checkpoint gives way, whoever's it is. Losing one costs recomputing, never a bit.
// Knows nothing of tokens or positions. Thread rule: one caller at a time (the engine's lock).
#pragma once

#include "backend/backend.h"
#include "base/result.h"
#include "engine/cache_budget.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace honeycrisp::engine {

using backend::kNoState;
using backend::StateId;

class StatePool {
 public:
  /// A slot's content as a checkpoint knows it: gone once the slot has another version.
  struct Kept {
    StateId slot = kNoState;
    uint64_t version = 0;
  };

  /// `usual_slots`: what full sessions take with their checkpoints; more is taken only for what a step needs.
  StatePool(backend::Executor& executor, uint32_t usual_slots);

  /// Makes the next `n` calls of take() succeed. Error: kOutOfMemory with the bytes needed, in use and allowed; nothing
  /// has changed then.
  Result<void> ensure(uint32_t n, CacheBudget& budget);
  /// A slot with one holder and undefined content. Error: as ensure().
  Result<StateId> take(CacheBudget& budget);
  /// A slot with the content of `held` that may be written: `held` itself, or a copy to which the caller's hold moves.
  /// Error: as ensure(), and only if `held` has other holders: a checkpoint of it may have to give way.
  Result<StateId> make_own(StateId held, CacheBudget& budget);
  void hold(StateId slot);
  void release(StateId slot);

  /// A checkpoint of a slot that has a holder or another checkpoint.
  Kept keep(StateId slot);
  bool has(const Kept& kept) const { return slots_[kept.slot].version == kept.version; }
  void drop(const Kept& kept);

  uint32_t holders(StateId slot) const { return slots_[slot].holders; }
  uint64_t slot_bytes() const { return slot_bytes_; }  // 0: the program has no recurrent layers
  uint32_t capacity() const { return uint32_t(slots_.size()); }
  uint32_t used() const { return capacity() - uint32_t(free_.size()); }  // checkpoints included

 private:
  struct Slot {
    uint32_t holders = 0;
    uint32_t checkpoints = 0;
    uint64_t version = 0;  // counts the contents that checkpoints have lost
    uint64_t kept_at = 0;  // by clock_: the older, the sooner it gives way
  };
  /// A slot without claims, without growing past the usual; unset: there is none.
  std::optional<StateId> find(CacheBudget& budget);
  Result<void> grow(uint32_t n, CacheBudget& budget);
  void forget_checkpoints(StateId slot);
  void free_if_unclaimed(StateId slot);
  StateId claim(StateId slot);

  backend::Executor* executor_;
  uint32_t usual_slots_;
  uint64_t slot_bytes_;
  uint64_t clock_ = 0;
  std::vector<Slot> slots_;    // [capacity]
  std::vector<StateId> free_;  // a stack
};

}  // namespace honeycrisp::engine
