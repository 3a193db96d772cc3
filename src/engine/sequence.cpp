// See sequence.h.
#include "engine/sequence.h"

#include "base/check.h"
#include "base/checked.h"

#include <algorithm>

namespace honeycrisp::engine {
namespace {

uint32_t pages_for(uint32_t positions) { return ceil_div(positions, kPagePositions); }

/// The lowest position that a row at `position` reads in a pool with this window.
uint32_t oldest_read(uint32_t position, uint32_t window) {
  return window == 0 || position < window ? 0 : position - window + 1;
}

}  // namespace

Sequence::Sequence(KvCache& cache) : Sequence(cache, StateTrack(cache)) {}

Sequence::Sequence(KvCache& cache, StateTrack&& states)
    : cache_(&cache), tables_(cache.pools.size()), states_(std::move(states)) {}

Sequence::~Sequence() { drop_all(); }

void Sequence::push(std::span<const int32_t> tokens, backend::Role role) {
  const std::vector<int32_t> added(tokens.begin(), tokens.end());  // `tokens` may be a part of tokens_
  tokens_.insert(tokens_.end(), added.begin(), added.end());
  roles_.resize(tokens_.size(), role);
}

void Sequence::truncate(uint32_t size) {
  HC_CHECK(size <= tokens_.size());
  tokens_.resize(size);
  roles_.resize(size);
  if (size < computed_) resume(size);
}

void Sequence::resume(uint32_t position) {
  computed_ = states_.rewind(position);
  for (size_t pool = 0; pool < tables_.size(); ++pool) {
    const uint32_t oldest = oldest_read(computed_, cache_->pools[pool].window());
    if (tables_[pool].first > oldest / kPagePositions) {
      drop_all();
      computed_ = states_.rewind(0);
      return;
    }
  }
  drop_uncomputed();
}

Sequence Sequence::fork() const {
  Sequence copy(*cache_, states_.fork());
  copy.tokens_ = tokens_;
  copy.roles_ = roles_;
  copy.computed_ = computed_;
  std::vector<Table> tables = tables_;  // not yet the copy's: if memory runs out here, it must not release them
  for (size_t pool = 0; pool < tables.size(); ++pool) {
    const Table& table = tables[pool];
    for (size_t i = table.first; i < table.pages.size(); ++i) cache_->pools[pool].retain(table.pages[i]);
  }
  copy.tables_ = std::move(tables);
  return copy;
}

bool Sequence::shares_last_page(size_t pool) const {
  if (computed_ % kPagePositions == 0) return false;
  return cache_->pools[pool].is_shared(tables_[pool].pages[computed_ / kPagePositions]);
}

Result<void> Sequence::prepare(uint32_t end) {
  HC_CHECK(end >= computed_);
  if (end == computed_) return {};
  const uint32_t wanted = pages_for(end);
  for (size_t i = 0; i < tables_.size(); ++i)
    HC_TRY(cache_->pools[i].ensure_free(pages_to_take(i, wanted), cache_->budget));
  HC_TRY(states_.prepare());
  for (size_t i = 0; i < tables_.size(); ++i) {
    PagePool& pool = cache_->pools[i];
    if (shares_last_page(i)) {
      PageId& last = tables_[i].pages[computed_ / kPagePositions];
      const PageId own = pool.take();
      pool.copy(last, own);
      pool.release(last);
      last = own;
    }
    while (tables_[i].pages.size() < wanted) tables_[i].pages.push_back(pool.take());
  }
  return {};
}

void Sequence::commit(uint32_t end) {
  HC_CHECK(end >= computed_ && end <= tokens_.size());
  computed_ = end;
  states_.commit(end);
  for (size_t i = 0; i < tables_.size(); ++i) {
    PagePool& pool = cache_->pools[i];
    if (pool.window() == 0 || end <= cache_->rollback) continue;
    Table& table = tables_[i];
    for (; table.first < oldest_read(end - cache_->rollback, pool.window()) / kPagePositions; ++table.first) {
      pool.release(table.pages[table.first]);
      table.pages[table.first] = kNoPage;
    }
    if (table.first > 0) states_.forget_before(table.first * kPagePositions + pool.window() - 1);
  }
}

void Sequence::abandon(Outcome outcome) {
  if (outcome == Outcome::kFailed) return resume(computed_);
  drop_uncomputed();
}

uint32_t Sequence::pages_missing(size_t pool) const {
  if (cache_->pools[pool].window() != 0) return 0;
  return pages_to_take(pool, pages_for(size()));
}

uint32_t Sequence::pages_to_take(size_t pool, uint32_t n_pages) const {
  const auto held = uint32_t(tables_[pool].pages.size());
  return (n_pages > held ? n_pages - held : 0) + (shares_last_page(pool) ? 1 : 0);
}

backend::SequencePages Sequence::pages() const {
  backend::SequencePages result;
  result.tables.reserve(tables_.size());
  for (const Table& table : tables_) result.tables.emplace_back(table.pages);
  result.state = states_.current();
  return result;
}

void Sequence::drop_from(size_t pool, size_t n_pages) {
  Table& table = tables_[pool];
  for (size_t i = std::max<size_t>(n_pages, table.first); i < table.pages.size(); ++i)
    cache_->pools[pool].release(table.pages[i]);
  table.pages.resize(std::min(n_pages, table.pages.size()));
}

void Sequence::drop_uncomputed() {
  for (size_t pool = 0; pool < tables_.size(); ++pool) drop_from(pool, pages_for(computed_));
}

void Sequence::drop_all() {
  for (size_t pool = 0; pool < tables_.size(); ++pool) {
    drop_from(pool, 0);
    tables_[pool].first = 0;
  }
}

}  // namespace honeycrisp::engine
