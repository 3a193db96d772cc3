// Keys and values of the cpu backend: pages in chunks of memory that grow on demand and never move.
// Owns the layout of a page; knows nothing of sequences. Writers of different positions may run at the same time.
//
// Page:  [layers of the pool][kv heads] { keys: 4 tiles of 16 positions, values: 64 positions }
// Tile:  f16, f32: [key_dim][16 positions]; q8_0: the same in int8, then [key_dim / 32][16] f16 scales.
//        Positions lie in lanes, so that scores need no sum over lanes.
// Value: [value_dim rounded up to 16]; q8_0: [value_dim] int8, then [value_dim / 32] f16 scales.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/isa/kernels.h"
#include "backend/cpu/memory.h"

#include <memory>
#include <vector>

namespace honeycrisp::backend::cpu {

class KvCache {
 public:
  /// Errors: heads that the type cannot hold; a page larger than the address space.
  static Result<void> check(const program::Program& program, CacheType type);

  KvCache(const program::Program& program, CacheType type);

  Result<void> reserve(uint32_t pool, uint32_t n_pages);
  uint64_t page_bytes(uint32_t pool) const { return pools_[pool].page_bytes; }
  uint32_t n_pages(uint32_t pool) const { return pools_[pool].n_pages; }
  void copy_page(uint32_t pool, PageId from, PageId to);

  KvElement element() const { return element_; }
  size_t key_tile_bytes(uint32_t pool) const { return pools_[pool].key_tile_bytes; }
  size_t value_position_bytes(uint32_t pool) const { return pools_[pool].value_position_bytes; }

  /// First tile of keys, and first position of values, of one head in a page.
  uint8_t* keys(const program::CacheLayer& layer, PageId page, uint32_t kv_head) const;
  uint8_t* values(const program::CacheLayer& layer, PageId page, uint32_t kv_head) const;

  /// Rounds one position's key [key_dim] or value [value_dim] of one head to the cache's type and stores it.
  void put_key(const Isa& isa, const program::CacheLayer& layer, uint8_t* keys, uint32_t position_in_page,
               const float* key) const;
  void put_value(const Isa& isa, const program::CacheLayer& layer, uint8_t* values, uint32_t position_in_page,
                 const float* value) const;

 private:
  struct Pool {
    size_t key_tile_bytes = 0;
    size_t value_position_bytes = 0;
    size_t keys_bytes = 0;  // of one head in a page
    size_t head_bytes = 0;
    size_t page_bytes = 0;
    uint32_t n_kv_heads = 0;
    uint32_t pages_per_chunk = 1;
    uint32_t n_pages = 0;
    std::vector<Zeros<uint8_t>> chunks;
  };
  uint8_t* page(const Pool& pool, PageId page) const {
    return pool.chunks[page / pool.pages_per_chunk].get() + page % pool.pages_per_chunk * pool.page_bytes;
  }

  KvElement element_;
  std::vector<Pool> pools_;
};

}  // namespace honeycrisp::backend::cpu
