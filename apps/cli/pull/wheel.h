// Reading one member out of a wheel (a zip archive) without trusting what the archive says about it.
#pragma once

#include "base/result.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace honeycrisp::cli {

/// Hands the member's bytes to `sink` in order. Errors: no such member; its size is not `bytes` (as declared, or as it
/// turns out: at most `bytes` are ever handed over); a damaged archive; the sink's own.
Result<void> extract_member(const std::string& archive, const std::string& member, uint64_t bytes,
                            const std::function<Result<void>(std::span<const std::byte>)>& sink);

}  // namespace honeycrisp::cli
