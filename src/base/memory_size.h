// How much main memory this process may take. Knows Linux's files, nothing of who asks.
#pragma once

#include <cstdint>
#include <string>

namespace honeycrisp {

/// Bytes: the machine's memory, at most the limit of the control group (versions 1 and 2, every ancestor). 0: unknown.
/// `root` is put before every path (for tests).
uint64_t usable_memory(const std::string& root = "");

}  // namespace honeycrisp
