// Amounts of memory for people, and how much this machine has.
#pragma once

#include <cstdint>
#include <string>

namespace honeycrisp::engine {

/// "512 B", "1.5 MiB", "12.0 GiB".
std::string format_bytes(uint64_t bytes);

/// Bytes of main memory; 0 if the system does not say.
uint64_t physical_memory();

}  // namespace honeycrisp::engine
