#include "backend/reference/kv_store.h"

#include "base/check.h"
#include "base/half.h"

#include <algorithm>
#include <cmath>
#include <new>

namespace honeycrisp::backend::reference {
namespace {

constexpr size_t kQ8Block = 32;

// The values that a Q8_0 block of these inputs would give back: an f16 scale times integers in −127..127.
void round_q8_block(std::span<float> x) {
  float largest = 0;
  for (float v : x) largest = std::max(largest, std::fabs(v));
  const float d = largest / 127;
  const float inverse = d == 0 ? 0 : 1 / d;
  const float stored = f16_to_f32(f32_to_f16(d));
  for (float& v : x) v = stored * std::nearbyint(v * inverse);
}

}  // namespace

void round_to_cache(CacheType type, std::span<float> values) {
  switch (type) {
    case CacheType::kF32: return;
    case CacheType::kF16:
      for (float& v : values) v = f16_to_f32(f32_to_f16(v));
      return;
    case CacheType::kQ8_0:
      HC_CHECK(values.size() % kQ8Block == 0, "{} values", values.size());
      for (size_t i = 0; i < values.size(); i += kQ8Block) round_q8_block(values.subspan(i, kQ8Block));
      return;
  }
}

KvStore::KvStore(const program::Program& program, CacheType type) : type_(type) {
  for (const program::CachePool& shape : program.pools) {
    Pool pool{.shape = shape};
    pool.key_floats = size_t{shape.n_kv_heads} * shape.key_dim;
    pool.value_floats = size_t{shape.n_kv_heads} * shape.value_dim;
    pool.page_floats = shape.n_layers * program::kPagePositions * (pool.key_floats + pool.value_floats);
    pools_.push_back(std::move(pool));
  }
}

Result<void> KvStore::reserve(uint32_t pool_index, uint32_t n_pages) {
  Pool& pool = pools_[pool_index];
  while (pool.pages.size() < n_pages) {
    std::unique_ptr<float[]> page(new (std::nothrow) float[pool.page_floats]());
    if (!page)
      return fail(ErrorCode::kOutOfMemory, "KV cache: page {} of {} bytes cannot be allocated", pool.pages.size(),
                  page_bytes(pool_index));
    pool.pages.push_back(std::move(page));
  }
  return {};
}

void KvStore::copy_page(uint32_t pool_index, PageId from, PageId to) {
  Pool& pool = pools_[pool_index];
  std::copy_n(pool.pages[from].get(), pool.page_floats, pool.pages[to].get());
}

float* KvStore::row(const program::CacheLayer& layer, const SequencePages& pages, uint32_t position) {
  Pool& pool = pools_[layer.pool];
  const PageId page = pages.tables[layer.pool][position / program::kPagePositions];
  HC_CHECK(page < pool.pages.size(), "position {} of pool {} has no page", position, layer.pool);
  const size_t index = layer.layer_in_pool * program::kPagePositions + position % program::kPagePositions;
  return pool.pages[page].get() + index * (pool.key_floats + pool.value_floats);
}

std::span<float> KvStore::key(const program::CacheLayer& layer, const SequencePages& pages, uint32_t position) {
  return {row(layer, pages, position), pools_[layer.pool].key_floats};
}

std::span<float> KvStore::value(const program::CacheLayer& layer, const SequencePages& pages, uint32_t position) {
  return {row(layer, pages, position) + pools_[layer.pool].key_floats, pools_[layer.pool].value_floats};
}

void KvStore::round(const program::CacheLayer& layer, const SequencePages& pages, uint32_t position) {
  round_to_cache(type_, key(layer, pages, position));
  round_to_cache(type_, value(layer, pages, position));
}

}  // namespace honeycrisp::backend::reference
