// Keys and values of the reference backend: pages of f32 that have been rounded to the cache's type.
#pragma once

#include "backend/backend.h"

#include <memory>
#include <span>
#include <vector>

namespace honeycrisp::backend::reference {

/// Rounds values to what the cache type can hold, in place. q8_0 works on blocks of 32.
void round_to_cache(CacheType type, std::span<float> values);

class KvStore {
 public:
  KvStore(const program::Program& program, CacheType type);

  Result<void> reserve(uint32_t pool, uint32_t n_pages);
  uint32_t n_pages(uint32_t pool) const { return uint32_t(pools_[pool].pages.size()); }
  uint64_t page_bytes(uint32_t pool) const { return pools_[pool].page_floats * sizeof(float); }
  void copy_page(uint32_t pool, PageId from, PageId to);

  /// One position of one layer: [n_kv_heads][key_dim] and [n_kv_heads][value_dim].
  std::span<float> key(const program::CacheLayer& layer, const SequencePages& pages, uint32_t position);
  std::span<float> value(const program::CacheLayer& layer, const SequencePages& pages, uint32_t position);
  /// Rounds what was just written at this position.
  void round(const program::CacheLayer& layer, const SequencePages& pages, uint32_t position);

 private:
  struct Pool {
    program::CachePool shape;
    size_t key_floats = 0;    // of one layer and position
    size_t value_floats = 0;  // likewise
    size_t page_floats = 0;   // [n_layers][kPagePositions][key_floats + value_floats]
    std::vector<std::unique_ptr<float[]>> pages;
  };
  float* row(const program::CacheLayer& layer, const SequencePages& pages, uint32_t position);

  CacheType type_;
  std::vector<Pool> pools_;
};

}  // namespace honeycrisp::backend::reference
