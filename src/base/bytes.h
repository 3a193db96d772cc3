// Amounts of memory for people.
#pragma once

#include <cstdint>
#include <string>

namespace honeycrisp {

/// "512 B", "1.5 MiB", "12.0 GiB".
std::string format_bytes(uint64_t bytes);

}  // namespace honeycrisp
