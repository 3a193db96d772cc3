// One timeline of tokens and where its past lives: a block table per pool and the recurrent state, shared with forks.
// Owns the references to its pages; knows which prefix of the tokens is in the cache ("computed").
// The rest is missing and computed by the next step: new tokens, and what a rewind could not keep, because a sliding
// window had passed it or the recurrent state was kept only further back.
// Knows nothing of logits, batches or sampling. Thread rule: one caller at a time (the engine's lock).
#pragma once

#include "backend/backend.h"
#include "base/result.h"
#include "engine/kv_cache.h"
#include "engine/state_track.h"

#include <cstdint>
#include <span>
#include <vector>

namespace honeycrisp::engine {

class Sequence {
 public:
  explicit Sequence(KvCache& cache);
  Sequence(Sequence&& other) noexcept = default;
  Sequence& operator=(Sequence&&) = delete;
  ~Sequence();

  std::span<const int32_t> tokens() const { return tokens_; }
  uint32_t size() const { return uint32_t(tokens_.size()); }
  uint32_t computed() const { return computed_; }  // ≤ size(): tokens that steps need not compute again
  backend::Role role(uint32_t position) const { return roles_[position]; }

  /// Adds tokens that are yet to be computed.
  void push(std::span<const int32_t> tokens, backend::Role role);
  /// Forgets the tokens from `size` on. What no longer can be resumed there counts as missing: see resume().
  void truncate(uint32_t size);
  /// The same past in a second timeline. Pages and state are shared; a page that is partly filled and the state are
  /// copied by the side that writes first.
  Sequence fork() const;
  /// Keeps the recurrent state as it is now until the next mark, so that a truncate() to here or behind goes no further
  /// back than here: before a step of which a part may be taken back. The step's rows that stay are computed again.
  void mark() { states_.mark(computed_); }

  /// Makes the pages of positions [computed(), end) and the state present and written by nobody else. All or nothing.
  /// `end` may lie beyond size(): positions whose tokens are not known yet. Error: kOutOfMemory.
  Result<void> prepare(uint32_t end);
  /// The prepared positions have been computed; pages that every window has passed are freed.
  void commit(uint32_t end);
  enum class Outcome : uint8_t { kNotRun, kFailed };
  /// Gives back what prepare() took beyond computed(). A step that failed has spoilt the state: fewer positions may
  /// count as computed then.
  void abandon(Outcome outcome);

  /// Where a batch that computes what is missing should end first; size() unless a checkpoint of the state is wanted.
  uint32_t next_stop() const { return states_.next_stop(computed_, size()); }
  /// Pages of `pool` that computing everything missing will take, at least. 0 for pools with a window.
  uint32_t pages_missing(size_t pool) const;
  const StateTrack& states() const { return states_; }
  /// Views into this sequence, valid until it changes.
  backend::SequencePages pages() const;

 private:
  struct Table {
    std::vector<PageId> pages;  // [positions / kPagePositions]; kNoPage below `first`
    uint32_t first = 0;
  };
  /// Goes back to the latest position up to `position` at which every layer can go on. A window's keys depend on older
  /// ones through the layers: where a pool no longer holds what the next row would read, only a start from 0 is exact.
  void resume(uint32_t position);
  Sequence(KvCache& cache, StateTrack&& states);
  bool shares_last_page(size_t pool) const;
  uint32_t pages_to_take(size_t pool, uint32_t n_pages) const;  // until it holds so many, and alone what it writes
  void drop_from(size_t pool, size_t n_pages);
  void drop_uncomputed();
  void drop_all();

  KvCache* cache_;
  std::vector<int32_t> tokens_;
  std::vector<backend::Role> roles_;  // [tokens]: recomputing takes the same numeric path
  std::vector<Table> tables_;         // [pools]; pages of the computed positions, and of the prepared ones
  StateTrack states_;
  uint32_t computed_ = 0;
};

}  // namespace honeycrisp::engine
