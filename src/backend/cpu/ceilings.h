// How fast the threads of a pool can read memory and multiply small integers: what the backend's speed is held against.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/isa/kernels.h"
#include "backend/cpu/thread_pool.h"

#include <cstdint>
#include <span>

namespace honeycrisp::backend::cpu {

/// Reads `memory` from end to end, but for what exceeds `bytes`, as often as it takes; where it is less than the caches
/// may hold, a buffer that is given back. Error: no memory for that.
Result<Ceilings> measure_ceilings(ThreadPool& pool, const Isa& isa, std::span<const std::span<const uint8_t>> memory,
                                  uint64_t bytes);

}  // namespace honeycrisp::backend::cpu
