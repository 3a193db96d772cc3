// Counts what this program takes from operator new: to prove that a small file cannot make the reader ask for much, and
// that a warm step asks for nothing.
#pragma once

#include <cstddef>

namespace honeycrisp::test_support {

/// Bytes asked of operator new (not the over-aligned form) since the program began, whether freed or not.
size_t allocated_bytes();

}  // namespace honeycrisp::test_support
