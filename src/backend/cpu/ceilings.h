// How fast the threads of a pool can read memory and multiply small integers: what the backend's speed is held against.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/isa/kernels.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/thread_pool.h"

#include <cstddef>
#include <memory>

namespace honeycrisp::backend::cpu {

/// Keeps its buffer between measurements: pages exist only once they have been written, which takes long.
class CeilingProbe {
 public:
  /// Error: no memory for the buffer.
  Result<Ceilings> measure(ThreadPool& pool, const Isa& isa, uint64_t buffer_bytes);

 private:
  Result<void> reserve(ThreadPool& pool, uint64_t bytes);

  Memory<uint8_t> buffer_;
  uint64_t bytes_ = 0;  // a multiple of the block that threads take
};

}  // namespace honeycrisp::backend::cpu
