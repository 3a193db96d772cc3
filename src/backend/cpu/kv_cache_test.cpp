#include "backend/cpu/kv_cache.h"

#include "backend/cpu/testing.h"

#include <cmath>
#include <gtest/gtest.h>

namespace honeycrisp::backend::cpu {
namespace {

program::Program one_layer(uint32_t heads, uint32_t key_dim, uint32_t value_dim) {
  program::Program p;
  p.caches.push_back({heads, key_dim, value_dim, 0, 0, 0});
  p.pools.push_back({heads, key_dim, value_dim, 0, 1});
  return p;
}

TEST(KvCache, a_page_takes_what_its_elements_take) {
  const program::Program p = one_layer(3, 64, 64);
  for (CacheType type : {CacheType::kF16, CacheType::kF32, CacheType::kQ8_0})
    EXPECT_EQ(KvCache(p, type).page_bytes(0), cache_bytes(type, uint64_t{3} * 128 * kPositionsPerPage));
}

TEST(KvCache, q8_0_needs_whole_blocks) {
  EXPECT_TRUE(KvCache::check(one_layer(1, 64, 32), CacheType::kQ8_0).has_value());
  EXPECT_FALSE(KvCache::check(one_layer(1, 80, 64), CacheType::kQ8_0).has_value());
  EXPECT_TRUE(KvCache::check(one_layer(1, 80, 64), CacheType::kF16).has_value());
}

TEST(KvCache, pages_that_overflow_are_refused) {
  EXPECT_FALSE(KvCache::check(one_layer(UINT32_MAX, UINT32_MAX, 64), CacheType::kF32).has_value());
}

TEST(KvCache, a_value_with_a_nan_reads_as_nan_in_q8_0) {
  const program::Program p = one_layer(1, 32, 32);
  KvCache cache(p, CacheType::kQ8_0);
  ASSERT_TRUE(cache.reserve(0, 1).has_value());
  std::vector<float> v(32, 1.0f);
  v[5] = NAN;
  uint8_t* values = cache.values(p.caches[0], 0, 0);
  cache.put_value(*available_isas().back(), p.caches[0], values, 3, v.data());
  uint16_t scale;
  std::memcpy(&scale, values + 3 * cache.value_position_bytes(0) + 32, 2);
  EXPECT_TRUE(std::isnan(f16_to_f32(scale)));
}

}  // namespace
}  // namespace honeycrisp::backend::cpu
