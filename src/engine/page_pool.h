// Pages of the KV cache: who holds them, which are free, and how much memory all of them may take.
// Owns the free list, the reference counts and the memory budget; asks the executor for memory when a pool runs dry.
// Knows nothing of tokens or of what a page holds. Thread rule: one caller at a time (the engine's lock).
#pragma once

#include "backend/backend.h"
#include "base/result.h"
#include "engine/cache_budget.h"
#include "program/program.h"

#include <cstdint>
#include <vector>

namespace honeycrisp::engine {

using backend::kNoPage;
using backend::PageId;
using program::kPagePositions;

/// The pages of one cache pool (program::CachePool), each with a count of the block tables that hold it.
class PagePool {
 public:
  /// `usual_pages`: what the pool needs when all sessions are full; growing ahead of need stops there.
  PagePool(backend::Executor& executor, uint32_t pool, uint32_t window, uint32_t usual_pages);

  /// Makes the next `n` calls of take() succeed. A pool that runs dry grows ahead of need by up to half its size, where
  /// budget and memory allow it.
  /// Error: kOutOfMemory with the bytes needed, in use and allowed; nothing has changed then.
  Result<void> ensure_free(uint32_t n, CacheBudget& budget);
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
  Result<void> grow(uint64_t new_capacity, CacheBudget& budget);

  backend::Executor* executor_;
  uint32_t pool_;
  uint32_t window_;
  uint32_t usual_pages_;
  uint64_t page_bytes_;
  std::vector<uint32_t> references_;  // [capacity]; 0: free
  std::vector<PageId> free_;          // a stack
};

}  // namespace honeycrisp::engine
