// Reads a .metal file and makes of it, line for line, what a host compiler can take: a C++ unit that runs on the
// software device (with a table that describes its kernels), or an OpenCL C++ unit that clang judges by MSL's rules.
// Only the tokens are changed that no macro can change; `#line` keeps every place. What a compiler cannot see is
// checked here: attributes and the types they want, indices used twice, function constants. Knows no device.
#pragma once

#include "base/result.h"

#include <filesystem>
#include <string>

namespace honeycrisp::backend::metal::soft {

/// The file with its quoted includes put in place, each once, with `#line` before and after: as it is embedded and as
/// the scanner wants it. Angle includes stay.
Result<std::string> expand_includes(const std::filesystem::path& file);

/// `text` is expanded; `file` names it in messages, `symbol` (a C identifier) is what the unit's table is called.
Result<std::string> host_unit(const std::string& text, const std::string& file, const std::string& symbol);
Result<std::string> strict_unit(const std::string& text, const std::string& file);

/// The identifier that a file's unit goes by: "q4_0-mat.metal" gives "q4_0_mat".
std::string unit_symbol(const std::filesystem::path& file);

}  // namespace honeycrisp::backend::metal::soft
