// Pages of the KV cache: who holds them, which are free, and how much memory all of them may take.
// Owns the free list, the reference counts and the memory budget; asks the executor for memory when a pool runs dry.
// Knows nothing of tokens or of what a page holds. Thread rule: one caller at a time (the engine's lock).
#pragma once

#include "backend/backend.h"
#include "base/result.h"
#include "program/program.h"

#include <cstdint>
#include <span>
#include <vector>

namespace honeycrisp::engine {

using backend::kNoPage;
using backend::PageId;
using program::kPagePositions;

/// Bytes of KV pages over all pools of an engine.
struct PageBudget {
  uint64_t limit = UINT64_MAX;
  uint64_t reserved = 0;
};

/// The pages of one cache pool (program::CachePool), each with a count of the block tables that hold it.
class PagePool {
 public:
  /// `usual_pages`: what the pool needs when all sessions are full; growing ahead of need stops there.
  PagePool(backend::Executor& executor, uint32_t pool, uint32_t window, uint32_t usual_pages);

  /// Makes the next `n` calls of take() succeed. A pool that runs dry grows ahead of need by up to half its size, where
  /// budget and memory allow it.
  /// Error: kOutOfMemory with the bytes needed, in use and allowed; nothing has changed then.
  Result<void> ensure_free(uint32_t n, PageBudget& budget);
  /// A page with one reference. Requires a free page: see ensure_free(). Last freed, first taken.
  PageId take();
  void retain(PageId page);
  void release(PageId page);
  bool is_shared(PageId page) const { return references_[page] > 1; }
  void copy(PageId from, PageId to) { executor_->copy_page(pool_, from, to); }

  uint32_t window() const { return window_; }  // positions that a row looks back, itself included; 0: all
  uint32_t capacity() const { return uint32_t(references_.size()); }
  uint32_t used() const { return capacity() - uint32_t(free_.size()); }
  uint64_t page_bytes() const { return page_bytes_; }

 private:
  Result<void> grow(uint64_t new_capacity, PageBudget& budget);

  backend::Executor* executor_;
  uint32_t pool_;
  uint32_t window_;
  uint32_t usual_pages_;
  uint64_t page_bytes_;
  std::vector<uint32_t> references_;  // [capacity]; 0: free
  std::vector<PageId> free_;          // a stack
};

/// All pools of a program, and the rules that they share.
struct KvCache {
  struct Limits {
    uint64_t bytes = 0;     // of pages, over all pools and sequences; 0: what `sessions` full ones take
    uint32_t context = 0;   // positions of a full sequence
    uint32_t rollback = 0;  // positions that a sequence can be rewound without recomputing, past a window
    uint32_t chunk = 1;     // most rows of a step
    uint32_t sessions = 1;  // full sequences that are expected at the same time
  };
  KvCache(backend::Executor& executor, std::span<const program::CachePool> cache_pools, const Limits& limits);

  std::vector<PagePool> pools;
  PageBudget budget;
  uint32_t rollback;
};

/// Most pages of the pool that one full sequence holds at a time.
uint64_t pages_per_sequence(const program::CachePool& pool, const KvCache::Limits& limits);

/// Bytes of the pages that one full sequence holds; nullopt if that overflows.
std::optional<uint64_t> sequence_bytes(std::span<const program::CachePool> pools, backend::CacheType type,
                                       const KvCache::Limits& limits);

}  // namespace honeycrisp::engine
