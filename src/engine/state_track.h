// The recurrent state along one sequence: the current one, which steps advance in place, and checkpoints of earlier
// ones to which a rewind can go back. Without recurrent layers it does nothing and costs nothing.
// Owns the claims on the slots; the policy of where checkpoints are made and which are given up is here alone.
// Knows nothing of tokens or pages. Thread rule: one caller at a time (the engine's lock).
#pragma once

#include "engine/kv_cache.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace honeycrisp::engine {

class StateTrack {
 public:
  explicit StateTrack(KvCache& cache);
  StateTrack(StateTrack&& other) noexcept;
  StateTrack& operator=(StateTrack&&) = delete;
  ~StateTrack();
  /// Shares the current slot, which whoever steps first copies, and the checkpoints.
  StateTrack fork() const;

  bool exists() const { return cache_->states.slot_bytes() > 0; }
  /// Where a step finds and leaves the state: valid after prepare().
  StateId current() const { return current_; }
  /// Makes the current state present and nobody else's. Error: kOutOfMemory; nothing has changed then.
  Result<void> prepare();
  /// A step has advanced the current state to `position`; it becomes a checkpoint at the start of a page.
  void commit(uint32_t position);
  /// Keeps the state at `position`, the current one, until the next mark: for a step that may be taken back.
  void mark(uint32_t position);
  /// Makes the newest kept state at or before `position` the current one, forgets later ones, and returns its position;
  /// 0: none was left, and the next step begins with zeros. What the current state was does not matter.
  uint32_t rewind(uint32_t position);
  /// Gives up checkpoints before `position`, at which nothing else could resume.
  void forget_before(uint32_t position);

  /// Where a batch that computes [computed, size) should end first, so that checkpoints come to be where later rewinds
  /// want them; `size` if it need not be cut.
  uint32_t next_stop(uint32_t computed, uint32_t size) const;
  uint32_t checkpoints() const { return uint32_t(checkpoints_.size()); }

 private:
  struct Checkpoint {
    uint32_t position = 0;
    StatePool::Kept kept;
  };
  Checkpoint keep(uint32_t position) { return {position, cache_->states.keep(current_)}; }
  template <class Condition>
  void drop_if(const Condition& condition);
  void drop_mark();
  void thin(uint32_t now);

  KvCache* cache_;
  StateId current_ = kNoState;           // holds it; absent at position 0 before prepare()
  std::vector<Checkpoint> checkpoints_;  // at page starts, ascending; some may have given way
  std::optional<Checkpoint> mark_;
};

}  // namespace honeycrisp::engine
