// How fast the device reads its memory and multiplies: what the backend's speed is held against.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/args.h"
#include "backend/cuda/device.h"

namespace honeycrisp::backend::cuda {

/// Reads `memory` (of the device) from end to end, but for what exceeds `bytes`, as often as it takes; where that is
/// less than several times the L2 cache, a buffer that is given back. The arithmetic is that of prompts: f16 with f32
/// sums on the tensor cores. Error: no memory for the buffer, a launch that failed.
Result<Ceilings> measure_ceilings(const Memory& memory, uint64_t bytes, const DeviceInfo& device, Stream stream);

}  // namespace honeycrisp::backend::cuda
