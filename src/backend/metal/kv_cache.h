// The paged KV cache and the recurrent states in device memory: a buffer for each layer, grown one layer at a time by
// copying, so that what is cached stays and old and new are held together for one layer only. Layouts: CacheView and
// StateView in op_encoder.h.
#pragma once

#include "backend/metal/op_encoder.h"

#include <vector>

namespace honeycrisp::backend::metal {

class KvCache {
 public:
  KvCache(Device& device, const program::Program& program, CacheType type);

  /// Makes pages [0, n_pages) exist. Error: no memory or more than a buffer holds, with the sizes; the pages before are
  /// as they were. The device is idle.
  Result<void> reserve(uint32_t pool, uint32_t n_pages);
  void copy_page(uint32_t pool, PageId from, PageId to) { copy(pools_[pool].layers, pools_[pool].n, from, to); }
  uint32_t n_pages(uint32_t pool) const { return pools_[pool].n; }
  uint64_t page_bytes(uint32_t pool) const { return bytes_each(pools_[pool].layers); }
  CacheView view(const program::CacheLayer& layer) const;

  Result<void> reserve_states(uint32_t n_states);
  void copy_state(StateId from, StateId to) { copy(states_, n_states_, from, to); }
  uint32_t n_states() const { return n_states_; }
  uint64_t state_bytes() const { return bytes_each(states_); }
  StateView state(program::StateId layer) const;

 private:
  /// Equal pieces, of which a layer has one in each page or state.
  struct Layer {
    uint64_t piece_bytes = 0;
    std::shared_ptr<Buffer> buffer;  // none: no pieces yet
  };
  using Layers = std::vector<Layer>;
  struct Pool {
    uint64_t key_bytes = 0, value_bytes = 0;  // of one head in a page
    Layers layers;
    uint32_t n = 0;  // pages
  };
  static uint64_t bytes_each(const Layers& layers);
  /// Every layer has `n` pieces; the first `kept` stay as they were.
  Result<void> grow(Layers& layers, uint32_t kept, uint32_t n, const std::string& what);
  static void copy(Layers& layers, uint32_t n, uint32_t from, uint32_t to);
  static View pieces(const Layer& layer, uint32_t n) { return {layer.buffer.get(), 0, layer.piece_bytes * n}; }

  Device& device_;
  CacheType type_;
  std::vector<Pool> pools_;
  Layers states_;  // of the recurrent layers
  uint32_t n_states_ = 0;
};

}  // namespace honeycrisp::backend::metal
