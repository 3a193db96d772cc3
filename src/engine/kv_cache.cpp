// See kv_cache.h.
#include "engine/kv_cache.h"

#include "base/checked.h"
#include "program/check.h"

#include <algorithm>

namespace honeycrisp::engine {
namespace {

constexpr uint64_t kTooMuch = UINT64_MAX;

/// Bytes of one full session by the executor's own sizes, which may be larger than the cache type's; kTooMuch if that
/// overflows.
uint64_t session_bytes(const backend::Executor& executor, const program::Program& program,
                       const KvCache::Limits& limits) {
  uint64_t total = checked_mul(executor.state_bytes(), uint64_t{1} + limits.checkpoints).value_or(kTooMuch);
  for (uint32_t i = 0; i < program.pools.size(); ++i) {
    const auto bytes = checked_mul(pages_per_sequence(program.pools[i], limits), executor.page_bytes(i));
    total = checked_add(total, bytes.value_or(kTooMuch)).value_or(kTooMuch);
  }
  return total;
}

uint64_t byte_limit(const backend::Executor& executor, const program::Program& program, const KvCache::Limits& limits) {
  if (limits.bytes != 0) return limits.bytes;
  return checked_mul<uint64_t>(session_bytes(executor, program, limits), limits.sessions).value_or(kTooMuch);
}

/// Checkpoints take the states' share of the limit and leave the pages theirs.
uint32_t usual_states(const backend::Executor& executor, const program::Program& program,
                      const KvCache::Limits& limits) {
  const uint64_t one = std::max<uint64_t>(1, session_bytes(executor, program, limits));
  const uint64_t sessions = std::clamp<uint64_t>(byte_limit(executor, program, limits) / one, 1, UINT32_MAX);
  return uint32_t(std::min<uint64_t>(sessions * (uint64_t{1} + limits.checkpoints), kNoState - 1));
}

}  // namespace

uint64_t pages_per_sequence(const program::CachePool& pool, const KvCache::Limits& limits) {
  const uint64_t all = ceil_div<uint64_t>(limits.context, kPagePositions);
  if (pool.window == 0) return all;
  // The positions held during a step need not begin at a page's start, hence one more.
  const uint64_t held = uint64_t(pool.window) + limits.rollback + limits.chunk;
  return std::min(all, ceil_div<uint64_t>(held, kPagePositions) + 1);
}

std::optional<uint64_t> sequence_page_bytes(std::span<const program::CachePool> pools, backend::CacheType type,
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

std::optional<uint64_t> sequence_state_bytes(const program::Program& program, const KvCache::Limits& limits) {
  return checked_mul(program::state_bytes(program), uint64_t{1} + limits.checkpoints);
}

KvCache::KvCache(backend::Executor& executor, const program::Program& program, const Limits& limits)
    : states(executor, usual_states(executor, program, limits)),
      budget{.limit = byte_limit(executor, program, limits)},
      rollback(limits.rollback),
      checkpoints(executor.state_bytes() == 0 ? 0 : limits.checkpoints) {
  pools.reserve(program.pools.size());
  for (uint32_t i = 0; i < program.pools.size(); ++i) {
    const uint64_t usual = pages_per_sequence(program.pools[i], limits) * limits.sessions;
    pools.emplace_back(executor, i, program.pools[i].window, uint32_t(std::min<uint64_t>(usual, kNoPage - 1)));
  }
}

}  // namespace honeycrisp::engine
