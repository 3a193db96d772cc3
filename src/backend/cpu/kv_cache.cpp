#include "backend/cpu/kv_cache.h"

#include "base/check.h"
#include "base/checked.h"
#include "base/half.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace honeycrisp::backend::cpu {
namespace {

constexpr size_t kChunkBytes = size_t{8} << 20;
constexpr uint32_t kQ8Block = 32;
constexpr float kNotANumber = __builtin_nanf("");

KvElement element_of(CacheType type) {
  switch (type) {
    case CacheType::kF16: return KvElement::kF16;
    case CacheType::kF32: return KvElement::kF32;
    case CacheType::kQ8_0: return KvElement::kQ8_0;
  }
  return KvElement::kF32;
}

// Bytes of `n` values of a head: of one position, or of each of several positions in lanes.
size_t vector_bytes(KvElement element, size_t n) {
  switch (element) {
    case KvElement::kF16: return 2 * n;
    case KvElement::kF32: return 4 * n;
    case KvElement::kQ8_0: return n + 2 * (n / kQ8Block);
  }
  return 0;
}

struct Q8Scale {
  uint16_t stored;  // f16; NaN where a value is infinite or NaN
  float inverse;    // what values are multiplied with before they are rounded
};
Q8Scale q8_scale(const float* x) {
  float largest = 0;
  bool finite = true;
  for (uint32_t i = 0; i < kQ8Block; ++i) {
    finite = finite && std::isfinite(x[i]);
    largest = std::max(largest, std::fabs(x[i]));
  }
  if (!finite) return {f32_to_f16(kNotANumber), 0};
  const float d = largest / 127;
  const uint16_t stored = f32_to_f16(d);
  return {stored, d == 0 ? 0 : 1 / d};
}
uint8_t q8_code(float x, const Q8Scale& scale) {
  return scale.inverse == 0 ? 0 : uint8_t(int8_t(std::nearbyintf(x * scale.inverse)));
}

}  // namespace

Result<void> KvCache::check(const program::Program& program, CacheType type) {
  HC_TRY(check_cache_type(program, type));
  for (const program::CachePool& pool : program.pools) {
    const auto heads = checked_mul<uint64_t>(pool.n_kv_heads, pool.n_layers);
    const auto floats = checked_mul<uint64_t>(uint64_t{pool.key_dim} + pool.value_dim + kLanes, kPositionsPerPage * 4);
    if (!heads || !floats || !checked_mul(*heads, *floats))
      return invalid("a page of the KV cache would not fit the address space");
  }
  return {};
}

KvCache::KvCache(const program::Program& program, CacheType type) : element_(element_of(type)) {
  for (const program::CachePool& shape : program.pools) {
    Pool pool;
    pool.key_tile_bytes = vector_bytes(element_, shape.key_dim) * kLanes;
    pool.value_position_bytes = vector_bytes(element_, round_up(shape.value_dim, kLanes));
    pool.keys_bytes = pool.key_tile_bytes * (kPositionsPerPage / kLanes);
    pool.head_bytes = pool.keys_bytes + pool.value_position_bytes * kPositionsPerPage;
    pool.page_bytes = pool.head_bytes * shape.n_kv_heads * shape.n_layers;
    pool.n_kv_heads = shape.n_kv_heads;
    pool.pages_per_chunk = uint32_t(std::max<size_t>(1, kChunkBytes / pool.page_bytes));
    pools_.push_back(std::move(pool));
  }
}

Result<void> KvCache::reserve(uint32_t pool_index, uint32_t n_pages) {
  Pool& pool = pools_[pool_index];
  while (pool.chunks.size() * pool.pages_per_chunk < n_pages) {
    const size_t bytes = pool.page_bytes * pool.pages_per_chunk;
    // Zeros, because lanes of positions not yet written are computed with.
    Zeros<uint8_t> chunk = allocate_zeros<uint8_t>(bytes);
    if (!chunk)
      return fail(ErrorCode::kOutOfMemory, "KV cache: {} bytes for pages {} to {} of pool {} cannot be allocated",
                  bytes, pool.chunks.size() * pool.pages_per_chunk, (pool.chunks.size() + 1) * pool.pages_per_chunk - 1,
                  pool_index);
    pool.chunks.push_back(std::move(chunk));
  }
  pool.n_pages = std::max(pool.n_pages, n_pages);
  return {};
}

void KvCache::copy_page(uint32_t pool_index, PageId from, PageId to) {
  const Pool& pool = pools_[pool_index];
  HC_CHECK(from < pool.n_pages && to < pool.n_pages, "pages {} and {} of {}", from, to, pool.n_pages);
  if (from != to) std::memcpy(page(pool, to), page(pool, from), pool.page_bytes);
}

uint8_t* KvCache::keys(const program::CacheLayer& layer, PageId id, uint32_t kv_head) const {
  const Pool& pool = pools_[layer.pool];
  HC_DCHECK(id < pool.n_pages, "page {} of {}", id, pool.n_pages);
  return page(pool, id) + (size_t{layer.layer_in_pool} * pool.n_kv_heads + kv_head) * pool.head_bytes;
}

uint8_t* KvCache::values(const program::CacheLayer& layer, PageId id, uint32_t kv_head) const {
  return keys(layer, id, kv_head) + pools_[layer.pool].keys_bytes;
}

void KvCache::put_key(const Isa& isa, const program::CacheLayer& layer, uint8_t* keys, uint32_t position_in_page,
                      const float* key) const {
  uint8_t* tile = keys + position_in_page / kLanes * pools_[layer.pool].key_tile_bytes;
  const uint32_t lane = position_in_page % kLanes;
  if (element_ == KvElement::kF32) {
    for (uint32_t d = 0; d < layer.key_dim; ++d) std::memcpy(tile + 4 * (size_t{d} * kLanes + lane), key + d, 4);
    return;
  }
  if (element_ == KvElement::kF16) {
    constexpr uint32_t kRun = 64;
    uint8_t halves[2 * kRun];
    for (uint32_t first = 0; first < layer.key_dim; first += kRun) {
      const uint32_t n = std::min(kRun, layer.key_dim - first);
      isa.to_half(key + first, n, halves);
      uint8_t* to = tile + 2 * (size_t{first} * kLanes + lane);
      for (uint32_t i = 0; i < n; ++i) std::memcpy(to + 2 * size_t{i} * kLanes, halves + 2 * i, 2);
    }
    return;
  }
  uint8_t* scales = tile + size_t{layer.key_dim} * kLanes;
  for (uint32_t block = 0; block < layer.key_dim / kQ8Block; ++block) {
    const float* x = key + block * kQ8Block;
    const Q8Scale scale = q8_scale(x);
    std::memcpy(scales + 2 * (size_t{block} * kLanes + lane), &scale.stored, 2);
    for (uint32_t i = 0; i < kQ8Block; ++i) tile[size_t{block * kQ8Block + i} * kLanes + lane] = q8_code(x[i], scale);
  }
}

void KvCache::put_value(const Isa& isa, const program::CacheLayer& layer, uint8_t* values, uint32_t position_in_page,
                        const float* value) const {
  uint8_t* to = values + position_in_page * pools_[layer.pool].value_position_bytes;
  switch (element_) {
    case KvElement::kF32: std::memcpy(to, value, size_t{layer.value_dim} * 4); return;
    case KvElement::kF16: isa.to_half(value, layer.value_dim, to); return;
    case KvElement::kQ8_0:
      for (uint32_t block = 0; block < layer.value_dim / kQ8Block; ++block) {
        const float* x = value + block * kQ8Block;
        const Q8Scale scale = q8_scale(x);
        std::memcpy(to + layer.value_dim + 2 * size_t{block}, &scale.stored, 2);
        for (uint32_t i = 0; i < kQ8Block; ++i) to[block * kQ8Block + i] = q8_code(x[i], scale);
      }
  }
}

}  // namespace honeycrisp::backend::cpu
