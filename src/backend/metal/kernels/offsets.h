// Offsets that may pass 32 bits, for kernels and for the tests that try them on the host.
#pragma once

#ifdef __METAL_VERSION__
#include <metal_stdlib>
using namespace metal;
#else
#include <cstdint>
namespace honeycrisp::backend::metal {
#endif

/// Where row `row` of a matrix begins, in bytes. A matrix may be larger than 4 GiB.
constexpr uint64_t row_offset(uint32_t row, uint64_t row_bytes) { return uint64_t(row) * row_bytes; }
/// Where a batch row begins, in floats.
constexpr uint64_t batch_offset(uint32_t row, uint32_t stride) { return uint64_t(row) * stride; }

#ifndef __METAL_VERSION__
}  // namespace honeycrisp::backend::metal
#endif
