// See page_pool.h.
#include "engine/page_pool.h"

#include "base/check.h"
#include "base/checked.h"
#include "engine/bytes.h"

#include <algorithm>
#include <numeric>

namespace honeycrisp::engine {

PagePool::PagePool(backend::Executor& executor, uint32_t pool, uint32_t window, uint32_t usual_pages)
    : executor_(&executor),
      pool_(pool),
      window_(window),
      usual_pages_(usual_pages),
      page_bytes_(executor.page_bytes(pool)) {}

Result<void> PagePool::ensure_free(uint32_t n, PageBudget& budget) {
  if (n <= free_.size()) return {};
  const uint64_t missing = n - free_.size();
  const uint64_t needed = capacity() + missing;
  const uint64_t left = budget.limit - budget.reserved;
  const uint64_t affordable = page_bytes_ == 0 ? UINT32_MAX : left / page_bytes_;
  if (missing > affordable || needed >= kNoPage) {
    return fail(
        ErrorCode::kOutOfMemory,
        "the KV cache needs {} more for {} pages, but {} of the {} allowed are taken (close sessions, lower the "
        "context or raise the KV memory limit)",
        format_bytes(missing * page_bytes_), missing, format_bytes(budget.reserved), format_bytes(budget.limit));
  }
  // Growing ahead takes at most a quarter of what is left, so that one pool cannot starve the others.
  uint64_t ahead = std::min<uint64_t>(capacity() / 2 + 8, affordable / 4);
  ahead = std::min<uint64_t>(ahead, usual_pages_ > needed ? usual_pages_ - needed : 0);
  const uint64_t roomy = std::min<uint64_t>(std::max(needed, capacity() + ahead), kNoPage - 1);
  if (roomy > needed && grow(roomy, budget)) return {};
  return grow(needed, budget);
}

Result<void> PagePool::grow(uint64_t new_capacity, PageBudget& budget) {
  const uint32_t old_capacity = capacity();
  HC_TRY(executor_->reserve_pages(pool_, uint32_t(new_capacity)));
  budget.reserved += (new_capacity - old_capacity) * page_bytes_;
  references_.resize(new_capacity, 0);
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

uint64_t pages_per_sequence(const program::CachePool& pool, const KvCache::Limits& limits) {
  const uint64_t all = ceil_div<uint64_t>(limits.context, kPagePositions);
  if (pool.window == 0) return all;
  // The positions held during a step need not begin at a page's start, hence one more.
  const uint64_t held = uint64_t(pool.window) + limits.rollback + limits.chunk;
  return std::min(all, ceil_div<uint64_t>(held, kPagePositions) + 1);
}

std::optional<uint64_t> sequence_bytes(std::span<const program::CachePool> pools, backend::CacheType type,
                                       const KvCache::Limits& limits) {
  uint64_t total = 0;
  for (const program::CachePool& pool : pools) {
    const auto heads = checked_mul<uint64_t>(pool.n_kv_heads, kPagePositions);
    const auto elements = heads ? checked_mul<uint64_t>(*heads, pool.n_layers) : std::nullopt;
    const auto keys = elements ? checked_mul<uint64_t>(*elements, pool.key_dim) : std::nullopt;
    const auto values = elements ? checked_mul<uint64_t>(*elements, pool.value_dim) : std::nullopt;
    if (!keys || !values || *keys > UINT64_MAX / 16 || *values > UINT64_MAX / 16) return std::nullopt;
    const uint64_t page = backend::cache_bytes(type, *keys) + backend::cache_bytes(type, *values);
    const auto bytes = checked_mul(page, pages_per_sequence(pool, limits));
    const auto sum = bytes ? checked_add(total, *bytes) : std::nullopt;
    if (!sum) return std::nullopt;
    total = *sum;
  }
  return total;
}

KvCache::KvCache(backend::Executor& executor, std::span<const program::CachePool> cache_pools, const Limits& limits)
    : rollback(limits.rollback) {
  uint64_t usual_bytes = 0;  // by the executor's own page sizes, which may be larger than the cache type's
  pools.reserve(cache_pools.size());
  for (uint32_t i = 0; i < cache_pools.size(); ++i) {
    const uint64_t usual =
        std::min<uint64_t>(pages_per_sequence(cache_pools[i], limits) * limits.sessions, kNoPage - 1);
    pools.emplace_back(executor, i, cache_pools[i].window, uint32_t(usual));
    const uint64_t bytes = checked_mul(usual, pools.back().page_bytes()).value_or(UINT64_MAX);
    usual_bytes = checked_add(usual_bytes, bytes).value_or(UINT64_MAX);
  }
  budget.limit = limits.bytes != 0 ? limits.bytes : usual_bytes;
}

}  // namespace honeycrisp::engine
