// Whether a Batch is one that an executor can run, and whether there is room for what its rows want: the checks that
// every executor makes before it touches anything.
#pragma once

#include "backend/backend.h"

#include <algorithm>

namespace honeycrisp::backend {

struct BatchLimits {
  uint32_t max_rows = 0;
  uint64_t max_positions = 0;  // 0: no limit
};

/// `n_pages(pool)` is how many pages of a pool exist, `n_states` how many recurrent states. Reads nothing but the batch
/// and allocates nothing unless it fails.
template <class NPages>
Result<void> check_batch(const program::Program& program, const Batch& batch, const BatchLimits& limits, NPages n_pages,
                         uint32_t n_states) {
  if (batch.rows.empty() || batch.rows.size() > limits.max_rows)
    return invalid("a batch of {} rows; this executor takes 1 to {}", batch.rows.size(), limits.max_rows);
  for (const SequencePages& pages : batch.sequences)
    if (pages.tables.size() != program.pools.size())
      return invalid("{} page tables for {} pools", pages.tables.size(), program.pools.size());
  if (!program.states.empty())
    for (const SequencePages& pages : batch.sequences)
      if (pages.state >= n_states) return invalid("recurrent state {} of {}", pages.state, n_states);
  for (const Row& r : batch.rows) {
    if (r.sequence >= batch.sequences.size()) return invalid("sequence {} of {}", r.sequence, batch.sequences.size());
    if (r.token < 0 || uint32_t(r.token) >= program.vocabulary)
      return invalid("token {} is outside the vocabulary of {}", r.token, program.vocabulary);
    if (limits.max_positions != 0 && r.position >= limits.max_positions)
      return invalid("position {} is outside the context of {}", r.position, limits.max_positions);
    // What a row reads: every page back to the window's edge. Rows before it checked theirs but for the newest.
    const Row* before = &r == batch.rows.data() ? nullptr : &r - 1;
    const bool follows = before && before->sequence == r.sequence && before->position + 1 == r.position;
    const uint32_t last = r.position / program::kPagePositions;
    for (uint32_t pool = 0; pool < program.pools.size(); ++pool) {
      const uint32_t window = program.pools[pool].window;
      const bool all = window == 0 || r.position < window;
      const uint32_t first = follows ? last : all ? 0 : (r.position - window + 1) / program::kPagePositions;
      const std::span<const PageId> table = batch.sequences[r.sequence].tables[pool];
      if (last >= table.size())
        return invalid("position {} is past the {} pages of pool {}", r.position, table.size(), pool);
      for (uint32_t page = first; page <= last; ++page)
        if (table[page] >= n_pages(pool))
          return invalid("page {} of pool {}, needed by position {}, is absent", page, pool, r.position);
    }
  }
  return {};
}

/// What the rows of a batch want.
struct Wanted {
  uint32_t n_all = 0;     // rows that want all their logits
  uint32_t n_top = 0;     // rows that want the largest
  uint32_t most_top = 0;  // of Row::n_top
  uint32_t n_rows() const { return n_all + n_top; }
};

/// `logits` floats and `top` results are what the caller has room for.
inline Result<Wanted> check_wanted(const Batch& batch, uint32_t vocabulary, size_t logits, size_t top) {
  Wanted wanted;
  for (const Row& r : batch.rows) {
    if (!r.wants_logits) continue;
    if (r.n_top > kMostTopLogits)
      return invalid("the {} largest logits of a row are wanted; at most {} can be", r.n_top, kMostTopLogits);
    ++(r.n_top == 0 ? wanted.n_all : wanted.n_top);
    wanted.most_top = std::max<uint32_t>(wanted.most_top, r.n_top);
  }
  if (logits != uint64_t{wanted.n_all} * vocabulary)
    return invalid("room for {} logits, {} rows of {} are wanted", logits, wanted.n_all, vocabulary);
  if (top != wanted.n_top)
    return invalid("room for the largest logits of {} rows, those of {} are wanted", top, wanted.n_top);
  return wanted;
}

}  // namespace honeycrisp::backend
