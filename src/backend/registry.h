// Which backends this build has. The only place that knows them all.
#pragma once

#include "backend/backend.h"

#include <span>
#include <string_view>

namespace honeycrisp::backend {

/// All backends of this build, best first.
std::span<const Backend* const> all_backends();
/// By name; "auto" is the first available one. The error lists the names.
Result<const Backend*> find_backend(std::string_view name);

}  // namespace honeycrisp::backend
