// The paged KV cache and the recurrent states in device memory: one buffer per pool, one for the states, grown by
// copying so that what is cached stays. Layouts: CacheView and StateView in op_encoder.h.
#pragma once

#include "backend/metal/op_encoder.h"

#include <vector>

namespace honeycrisp::backend::metal {

class KvCache {
 public:
  KvCache(Device& device, const program::Program& program, CacheType type);

  /// Makes pages [0, n_pages) exist. Error: no memory or more than a buffer holds, with the sizes. The device is idle.
  Result<void> reserve(uint32_t pool, uint32_t n_pages);
  void copy_page(uint32_t pool, PageId from, PageId to);
  uint32_t n_pages(uint32_t pool) const { return pools_[pool].items.n; }
  uint64_t page_bytes(uint32_t pool) const { return pools_[pool].items.bytes_each; }
  CacheView view(const program::CacheLayer& layer) const;

  Result<void> reserve_states(uint32_t n_states);
  void copy_state(StateId from, StateId to);
  uint32_t n_states() const { return states_.n; }
  uint64_t state_bytes() const { return states_.bytes_each; }
  StateView state(program::StateId layer) const;

 private:
  /// Equal pieces of one buffer.
  struct Items {
    uint64_t bytes_each = 0;
    uint32_t n = 0;
    std::shared_ptr<Buffer> buffer;
  };
  struct Pool {
    uint64_t key_bytes = 0, value_bytes = 0;  // of one head in a page
    uint32_t n_kv_heads = 0;
    Items items;
  };
  Result<void> grow(Items& items, uint32_t n, std::string what);
  static void copy(Items& items, uint32_t from, uint32_t to);

  Device& device_;
  CacheType type_;
  std::vector<Pool> pools_;
  Items states_;
  std::vector<uint64_t> state_offsets_;  // bytes, of each recurrent layer within a state
};

}  // namespace honeycrisp::backend::metal
