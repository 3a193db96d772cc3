// What crosses from the host to the loops that measure the device (ceilings.h).
#pragma once

#include "backend/cuda/args.h"

namespace honeycrisp::backend::cuda {

constexpr uint64_t kReadUnit = uint64_t{32} << 10;  // bytes of a bulk copy

/// Reads n bytes, a multiple of kReadUnit; `kept`: a word of device memory.
int launch_read_directly(const uint8_t* from, uint64_t n, uint32_t* kept, uint32_t n_multiprocessors, Stream stream);
/// The same by bulk copies into shared memory; compute capability 9.0 and newer.
int launch_read_in_bulk(const uint8_t* from, uint64_t n, uint32_t n_multiprocessors, Stream stream);
/// Multiplies what lies in registers and shared memory, and adds to *multiply_adds, device memory, how much.
int launch_multiply_peak(uint32_t rounds, uint64_t* multiply_adds, uint32_t n_multiprocessors, Stream stream);

}  // namespace honeycrisp::backend::cuda
