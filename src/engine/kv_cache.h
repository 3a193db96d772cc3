// All that an executor remembers of sequences: a pool of pages per cache geometry, the slots of recurrent state, the
// budget that they share, and how much of them a full sequence takes.
#pragma once

#include "backend/backend.h"
#include "engine/cache_budget.h"
#include "engine/page_pool.h"
#include "engine/state_pool.h"
#include "program/program.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace honeycrisp::engine {

struct KvCache {
  struct Limits {
    uint64_t bytes = 0;        // of pages and states, over all sequences; 0: what `sessions` full ones take
    uint32_t context = 0;      // positions of a full sequence
    uint32_t rollback = 0;     // positions that a sequence can be rewound without recomputing, past a window
    uint32_t chunk = 1;        // most rows of a step
    uint32_t sessions = 1;     // full sequences that are expected at the same time
    uint32_t checkpoints = 0;  // most recurrent states that a sequence keeps besides its current one
  };
  KvCache(backend::Executor& executor, const program::Program& program, const Limits& limits);

  std::vector<PagePool> pools;
  StatePool states;
  CacheBudget budget;
  uint32_t rollback;
  uint32_t checkpoints;  // 0 if the program has no recurrent layers
};

/// Most pages of the pool that one full sequence holds at a time.
uint64_t pages_per_sequence(const program::CachePool& pool, const KvCache::Limits& limits);

/// Bytes of the pages that one full sequence holds; nullopt if that overflows.
std::optional<uint64_t> sequence_page_bytes(std::span<const program::CachePool> pools, backend::CacheType type,
                                            const KvCache::Limits& limits);

/// Bytes of the recurrent states that one full sequence holds, checkpoints included; nullopt if that overflows.
std::optional<uint64_t> sequence_state_bytes(const program::Program& program, const KvCache::Limits& limits);

}  // namespace honeycrisp::engine
