#include "backend/metal/kv_cache.h"

#include "base/check.h"
#include "base/checked.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace honeycrisp::backend::metal {

KvCache::KvCache(Device& device, const program::Program& program, CacheType type) : device_(device), type_(type) {
  for (const program::CachePool& shape : program.pools) {
    Pool pool;
    pool.key_bytes = round_up(cache_bytes(type, uint64_t{program::kPagePositions} * shape.key_dim), uint64_t{16});
    pool.value_bytes = round_up(cache_bytes(type, uint64_t{program::kPagePositions} * shape.value_dim), uint64_t{16});
    pool.layers.assign(shape.n_layers, {(pool.key_bytes + pool.value_bytes) * shape.n_kv_heads, nullptr});
    pools_.push_back(std::move(pool));
  }
  for (const program::StateLayer& layer : program.states)
    states_.push_back({round_up(layer.floats() * sizeof(float), uint64_t{16}), nullptr});
}

uint64_t KvCache::bytes_each(const Layers& layers) {
  uint64_t bytes = 0;
  for (const Layer& layer : layers) bytes += layer.piece_bytes;
  return bytes;
}

Result<void> KvCache::grow(Layers& layers, uint32_t kept, uint32_t n, const std::string& what) {
  for (Layer& layer : layers) {
    const auto bytes = checked_mul<uint64_t>(n, layer.piece_bytes);
    if (!bytes || *bytes > device_.most_buffer_bytes())
      return fail(ErrorCode::kOutOfMemory, "{}: {} of {} bytes are more than a buffer of this device holds ({} bytes)",
                  what, n, layer.piece_bytes, device_.most_buffer_bytes());
    if (layer.buffer && layer.buffer->bytes() >= *bytes) continue;  // grown before memory ran out for a later layer
    HC_ASSIGN(auto grown, device_.allocate(std::max<uint64_t>(*bytes, 1), what));
    if (kept != 0) std::memcpy(grown->contents(), layer.buffer->contents(), kept * layer.piece_bytes);
    layer.buffer = std::move(grown);
  }
  return {};
}

void KvCache::copy(Layers& layers, uint32_t n, uint32_t from, uint32_t to) {
  if (layers.empty()) return;
  HC_CHECK(from < n && to < n, "{} and {} of {}", from, to, n);
  for (const Layer& layer : layers)
    std::memcpy(layer.buffer->contents() + to * layer.piece_bytes, layer.buffer->contents() + from * layer.piece_bytes,
                layer.piece_bytes);
}

Result<void> KvCache::reserve(uint32_t pool, uint32_t n_pages) {
  Pool& p = pools_[pool];
  if (n_pages <= p.n) return {};
  HC_TRY(grow(p.layers, p.n, n_pages, fmt::format("pages of pool {} of the KV cache", pool)));
  p.n = n_pages;
  return {};
}

CacheView KvCache::view(const program::CacheLayer& layer) const {
  const Pool& pool = pools_[layer.pool];
  const Layer& own = pool.layers[layer.layer_in_pool];
  return {pieces(own, pool.n), own.piece_bytes, pool.key_bytes + pool.value_bytes, pool.key_bytes, type_};
}

Result<void> KvCache::reserve_states(uint32_t n_states) {
  if (states_.empty() || n_states <= n_states_) return {};
  HC_TRY(grow(states_, n_states_, n_states, "recurrent states"));
  n_states_ = n_states;
  return {};
}

StateView KvCache::state(program::StateId layer) const {
  return {pieces(states_[layer], n_states_), states_[layer].piece_bytes};
}

}  // namespace honeycrisp::backend::metal
