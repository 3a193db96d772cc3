// Which backends this build has. The only place that knows them all.
#pragma once

#include "backend/backend.h"

#include <span>
#include <string_view>

namespace honeycrisp::backend {

/// All backends of this build, best first.
std::span<const Backend* const> all_backends();
/// By name; "auto" is the first that this machine supports. Errors: an unknown name (lists the known ones), what
/// available() says, for "auto" too unless it is kUnsupported.
Result<const Backend*> find_backend(std::string_view name);

}  // namespace honeycrisp::backend
