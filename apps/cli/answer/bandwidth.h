// How fast this machine reads memory: the limit that a decoded token is measured against.
#pragma once

#include <cstdint>

namespace honeycrisp::cli {

/// Bytes per second that `threads` threads read together, each a slice of a buffer larger than the caches of a core.
/// Takes about 50 ms; 0 if there is no memory for the buffer.
double measure_read_bandwidth(uint32_t threads);

}  // namespace honeycrisp::cli
