#include "backend/metal/kv_cache.h"

#include "base/check.h"
#include "base/checked.h"

#include <cstring>
#include <fmt/format.h>

namespace honeycrisp::backend::metal {

KvCache::KvCache(Device& device, const program::Program& program, CacheType type) : device_(device), type_(type) {
  for (const program::CachePool& shape : program.pools) {
    Pool pool;
    pool.key_bytes = round_up(cache_bytes(type, uint64_t{program::kPagePositions} * shape.key_dim), uint64_t{16});
    pool.value_bytes = round_up(cache_bytes(type, uint64_t{program::kPagePositions} * shape.value_dim), uint64_t{16});
    pool.n_kv_heads = shape.n_kv_heads;
    pool.items.bytes_each = (pool.key_bytes + pool.value_bytes) * shape.n_kv_heads * shape.n_layers;
    pools_.push_back(std::move(pool));
  }
  for (const program::StateLayer& layer : program.states) {
    state_offsets_.push_back(states_.bytes_each);
    states_.bytes_each += round_up(layer.floats() * sizeof(float), uint64_t{16});
  }
}

Result<void> KvCache::grow(Items& items, uint32_t n, std::string what) {
  if (n <= items.n) return {};
  const auto bytes = checked_mul<uint64_t>(n, items.bytes_each);
  if (!bytes || *bytes > device_.most_buffer_bytes())
    return fail(ErrorCode::kOutOfMemory, "{}: {} of {} bytes are more than a buffer of this device holds ({} bytes)",
                what, n, items.bytes_each, device_.most_buffer_bytes());
  HC_ASSIGN(auto grown, device_.allocate(std::max<uint64_t>(*bytes, 1), std::move(what)));
  if (items.n != 0) std::memcpy(grown->contents(), items.buffer->contents(), items.n * items.bytes_each);
  items.buffer = std::move(grown);
  items.n = n;
  return {};
}

void KvCache::copy(Items& items, uint32_t from, uint32_t to) {
  HC_CHECK(from < items.n && to < items.n, "{} and {} of {}", from, to, items.n);
  std::memcpy(items.buffer->contents() + to * items.bytes_each, items.buffer->contents() + from * items.bytes_each,
              items.bytes_each);
}

Result<void> KvCache::reserve(uint32_t pool, uint32_t n_pages) {
  return grow(pools_[pool].items, n_pages, fmt::format("pages of pool {} of the KV cache", pool));
}
void KvCache::copy_page(uint32_t pool, PageId from, PageId to) { copy(pools_[pool].items, from, to); }

CacheView KvCache::view(const program::CacheLayer& layer) const {
  const Pool& pool = pools_[layer.pool];
  const uint64_t head_bytes = pool.key_bytes + pool.value_bytes;
  return {{pool.items.buffer.get(), 0, pool.items.bytes_each * pool.items.n},
          pool.items.bytes_each,
          head_bytes * pool.n_kv_heads * layer.layer_in_pool,
          head_bytes,
          pool.key_bytes,
          type_};
}

Result<void> KvCache::reserve_states(uint32_t n_states) {
  return states_.bytes_each == 0 ? Result<void>{} : grow(states_, n_states, "recurrent states");
}
void KvCache::copy_state(StateId from, StateId to) {
  if (states_.bytes_each != 0) copy(states_, from, to);
}
StateView KvCache::state(program::StateId layer) const {
  return {{states_.buffer.get(), 0, states_.bytes_each * states_.n}, states_.bytes_each, state_offsets_[layer]};
}

}  // namespace honeycrisp::backend::metal
