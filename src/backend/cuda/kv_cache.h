// The paged KV cache in device memory: allocations of several pages each, found by kernels through a table of pointers
// that never moves. Layout of a page: [layers of the pool][KV heads]{keys [64][key_dim], values [64][value_dim]}; q8_0
// sections hold all codes first, then the f16 scales [64][dim / 32].
#pragma once

#include "backend/backend.h"
#include "backend/cuda/args.h"
#include "backend/cuda/device.h"

#include <vector>

namespace honeycrisp::backend::cuda {

class KvCache {
 public:
  /// Errors: heads that the type or the kernels cannot hold.
  static Result<void> check(const program::Program& program, CacheType type);
  static Result<KvCache> make(const program::Program& program, CacheType type, Stream stream);

  /// Makes pages [0, n_pages) exist. The stream must be idle.
  Result<void> reserve(uint32_t pool, uint32_t n_pages);
  /// In the order of the stream.
  Result<void> copy_page(uint32_t pool, PageId from, PageId to);

  uint64_t page_bytes(uint32_t pool) const { return pools_[pool].page_bytes; }
  uint32_t n_pages(uint32_t pool) const { return pools_[pool].n_pages; }
  CacheView view(const program::CacheLayer& layer) const;
  uint64_t memory_bytes() const { return tables_.bytes(); }  // besides pages

 private:
  struct Pool {
    uint64_t key_bytes = 0, value_bytes = 0;  // of one head in a page
    uint64_t page_bytes = 0;
    uint32_t n_kv_heads = 0;
    uint32_t pages_per_chunk = 1;
    uint32_t n_pages = 0;
    std::vector<Memory> chunks;
  };
  uint8_t* page(const Pool& pool, PageId id) const {
    return pool.chunks[id / pool.pages_per_chunk].as(id % pool.pages_per_chunk * pool.page_bytes);
  }

  CacheType type_ = CacheType::kF16;
  Stream stream_ = nullptr;
  std::vector<Pool> pools_;
  Memory tables_;  // [pools][kMaxChunks] pointers
};

}  // namespace honeycrisp::backend::cuda
