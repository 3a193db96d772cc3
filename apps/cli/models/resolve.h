// From what the user wrote after -m to a file: the one place that knows the rules.
#pragma once

#include "base/result.h"

#include <optional>
#include <string>

namespace honeycrisp::cli {

/// A path of a file (any shard of a split model), or the name of a model in the cache. A file of that path wins over a
/// name; something with a slash or ending in .gguf is always a path. Errors say what was looked for and what to do.
Result<std::string> resolve_model(const std::string& argument);

/// The same for an optional -m: without it, the default model, which is fetched on first use after saying so.
Result<std::string> resolve_model_or_default(const std::optional<std::string>& argument);

}  // namespace honeycrisp::cli
