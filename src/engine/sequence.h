// One timeline of tokens and where its keys and values live: a block table per pool, pages shared with forks.
// Owns the references to its pages; knows which prefix of the tokens has its keys and values in the cache ("computed").
// The rest is missing and computed by the next step: new tokens, and what a rewind behind a sliding window lost.
// Knows nothing of logits, batches or sampling. Thread rule: one caller at a time (the engine's lock).
#pragma once

#include "backend/backend.h"
#include "base/result.h"
#include "engine/page_pool.h"

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
  uint32_t computed() const { return computed_; }  // ≤ size(): tokens whose keys and values are in the cache
  backend::Role role(uint32_t position) const { return roles_[position]; }

  /// Adds tokens that are yet to be computed.
  void push(std::span<const int32_t> tokens, backend::Role role);
  /// Forgets the tokens from `size` on. If a window pool no longer holds what the next row would read, nothing counts
  /// as computed any more: a window's keys depend on older ones through the layers, so only a start from 0 is exact.
  void truncate(uint32_t size);
  /// The same past in a second timeline. Pages are shared; the one that is partly filled is copied when written.
  Sequence fork() const;

  /// Makes the pages of positions [computed(), end) present and written by nobody else. All or nothing.
  /// Error: kOutOfMemory.
  Result<void> prepare(uint32_t end);
  /// The prepared positions have been computed; pages that every window has passed are freed.
  void commit(uint32_t end);
  /// Gives back what prepare() took.
  void abandon();

  /// Pages of `pool` that computing everything missing will take, at least. 0 for pools with a window.
  uint32_t pages_missing(size_t pool) const;
  /// Views into this sequence, valid until it changes.
  backend::SequencePages pages() const;

 private:
  struct Table {
    std::vector<PageId> pages;  // [positions / kPagePositions]; kNoPage below `first`
    uint32_t first = 0;
  };
  bool shares_last_page(size_t pool) const;
  void drop_from(size_t pool, size_t n_pages);
  void drop_all();

  KvCache* cache_;
  std::vector<int32_t> tokens_;
  std::vector<backend::Role> roles_;  // [tokens]: recomputing takes the same numeric path
  std::vector<Table> tables_;         // [pools]; pages of the computed positions, and of the prepared ones
  uint32_t computed_ = 0;
};

}  // namespace honeycrisp::engine
