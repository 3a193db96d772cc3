// Reads a valid GGUF file into a RawGguf, so that a test can change one field of it and write it again.
// Shares no code with src/gguf.
#pragma once

#include "support/tiny_gguf.h"

namespace honeycrisp::test_support {

/// Aborts on anything but a valid file.
RawGguf read_raw(const std::string& path);

}  // namespace honeycrisp::test_support
