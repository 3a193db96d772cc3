// f32 to the formats that have a plain reference quantizer (round each block on its own, no search, no importance).
// Results are byte-equal to gguf-py's (PyPI `gguf`) wherever that is defined. Needs the default floating-point
// environment (nearest, subnormals kept). Pure functions, safe from any thread.
#pragma once

#include "base/result.h"
#include "quant/formats.h"

#include <cstddef>

namespace honeycrisp::quant {

/// Whether quantize_row has a quantizer for the format.
bool can_quantize(Format f);

/// Quantizes `n` elements to `dst` (row_bytes(f, n) bytes, any alignment).
/// Errors: kUnsupported if the format has no quantizer; kInvalidInput if `n` is not whole blocks, if an element is NaN
/// or infinite (the message names its index), or if values are so large that what the format would store (a scale, or
/// the element itself) is infinite. After an error the contents of `dst` are unspecified.
Result<void> quantize_row(Format f, const float* src, std::byte* dst, size_t n);

}  // namespace honeycrisp::quant
