// File and line of a machine address, by addr2line of binutils. Slow: for reports only.
#pragma once

#include <cstdint>
#include <string>

namespace honeycrisp::backend::metal::soft {

struct SourceLine {
  std::string file;  // last part of its path; empty if unknown
  int line = 0;
};

/// Of an address in `binary` (relative to where it is loaded). Of code inlined into each other, the innermost place in
/// a .metal file counts if there is one, so that a report names the kernel and not <metal_stdlib>.
SourceLine source_line(const std::string& binary, uint64_t address);
/// Of a return address in this process.
SourceLine source_line_of_return(const void* pc);

}  // namespace honeycrisp::backend::metal::soft
