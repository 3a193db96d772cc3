// All device memory of a compiled program, found by what it holds: the Places that ops are encoded with.
// Knows nothing of batches or of the course of a step.
#pragma once

#include "backend/metal/buffer_pool.h"
#include "backend/metal/kv_cache.h"
#include "backend/metal/op_encoder.h"
#include "backend/metal/weights.h"

#include <vector>

namespace honeycrisp::backend::metal {

class StepMemory final : public Places {
 public:
  /// Error: no memory, with what and sizes.
  static Result<std::unique_ptr<StepMemory>> make(Device& device, const program::Program& program,
                                                  const CompileOptions& options);

  View buffer(program::BufferId id) const override { return whole(*buffers_[id]); }
  WeightView weight(const program::Matrix& matrix) const override { return weights_.view(program_, matrix); }
  View vector(program::VectorId id) const override { return vector_views_[id]; }
  View rope(program::RopeId id) const override { return whole(*ropes_[id]); }
  CacheView cache(program::CacheId id) const override { return cache_.view(program_.caches[id]); }
  StateView state(program::StateId id) const override { return cache_.state(id); }
  Result<View> scratch(uint64_t bytes) override { return pool_.take(bytes); }
  void release(const View& view) override { pool_.give_back(view); }

  KvCache& cache() { return cache_; }
  BufferPool& pool() { return pool_; }
  /// Makes the rope tables reach position n − 1, growing by doubling. The device is idle.
  Result<void> reserve_positions(uint32_t n_positions);
  /// Rows of a buffer as the host sees them while the device is idle.
  std::span<float> host_buffer(program::BufferId id, uint32_t n_rows);
  /// Besides the wrapped weights and the KV cache.
  uint64_t memory_bytes() const;

 private:
  StepMemory(Device& device, const program::Program& program, const CompileOptions& options)
      : device_(device), program_(program), pool_(device), cache_(device, program, options.cache_type) {}
  static View whole(Buffer& buffer) { return {&buffer, 0, buffer.bytes()}; }

  Device& device_;
  const program::Program& program_;
  BufferPool pool_;
  KvCache cache_;
  Weights weights_;
  std::vector<std::shared_ptr<Buffer>> buffers_;  // [buffers], f32 [max_rows][width]
  std::shared_ptr<Buffer> vectors_;
  std::vector<View> vector_views_;
  std::vector<std::shared_ptr<Buffer>> ropes_;
  uint32_t n_positions_ = 0;
};

}  // namespace honeycrisp::backend::metal
