// See page_pool.h.
#include "engine/page_pool.h"

#include "base/check.h"

#include <algorithm>
#include <numeric>

namespace honeycrisp::engine {

PagePool::PagePool(backend::Executor& executor, uint32_t pool, uint32_t window, uint32_t usual_pages)
    : executor_(&executor),
      pool_(pool),
      window_(window),
      usual_pages_(usual_pages),
      page_bytes_(executor.page_bytes(pool)) {}

Result<void> PagePool::ensure_free(uint32_t n, CacheBudget& budget) {
  if (n <= free_.size()) return {};
  const uint64_t missing = n - free_.size();
  const uint64_t needed = capacity() + missing;
  const uint64_t affordable = page_bytes_ == 0 ? UINT32_MAX : budget.left() / page_bytes_;
  if (missing > affordable || needed >= kNoPage) return budget.refuse(missing * page_bytes_, missing, "pages");
  // Growing ahead takes at most a quarter of what is left, so that one pool cannot starve the others.
  uint64_t ahead = std::min<uint64_t>(capacity() / 2 + 8, affordable / 4);
  ahead = std::min<uint64_t>(ahead, usual_pages_ > needed ? usual_pages_ - needed : 0);
  const uint64_t roomy = std::min<uint64_t>(std::max(needed, capacity() + ahead), kNoPage - 1);
  if (roomy > needed && grow(roomy, budget)) return {};
  return grow(needed, budget);
}

Result<void> PagePool::grow(uint64_t new_capacity, CacheBudget& budget) {
  const uint32_t old_capacity = capacity();
  HC_TRY(executor_->reserve_pages(pool_, uint32_t(new_capacity)));
  budget.reserved += (new_capacity - old_capacity) * page_bytes_;
  references_.resize(new_capacity, 0);
  free_.reserve(new_capacity);  // so that giving a page back never allocates
  // Below the pages that are already free, the lowest id on top: a recently freed page is still warm.
  std::vector<PageId> fresh(new_capacity - old_capacity);
  std::iota(fresh.rbegin(), fresh.rend(), old_capacity);
  free_.insert(free_.begin(), fresh.begin(), fresh.end());
  return {};
}

PageId PagePool::take() {
  HC_CHECK(!free_.empty(), "pool {}", pool_);
  const PageId page = free_.back();
  free_.pop_back();
  references_[page] = 1;
  return page;
}

void PagePool::retain(PageId page) {
  HC_CHECK(references_[page] > 0, "page {}", page);
  ++references_[page];
}

void PagePool::release(PageId page) {
  HC_CHECK(references_[page] > 0, "page {}", page);
  if (--references_[page] == 0) free_.push_back(page);
}

}  // namespace honeycrisp::engine
