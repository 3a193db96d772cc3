// How many threads of computation this process may usefully run. Knows Linux's files, nothing of who asks.
#pragma once

#include <cstdint>
#include <string>

namespace honeycrisp {

/// Physical cores with at least one CPU in this thread's affinity mask, at most the whole CPUs of the cgroup's quota
/// (versions 1 and 2, every ancestor), at least 1. Where a file is absent or unreadable its limit does not apply;
/// without any of them: the logical CPUs. `root` is put before every path (for tests).
uint32_t usable_cores(const std::string& root = "");

}  // namespace honeycrisp
