// Which backends this build has. The only place that knows them all.
#pragma once

#include "backend/backend.h"

#include <span>
#include <string>
#include <string_view>

namespace honeycrisp::backend {

/// All backends of this build, best first.
std::span<const Backend* const> all_backends();
/// By name; "auto" is the first that this machine supports. Errors: an unknown name (lists the known ones), what
/// available() says, for "auto" too unless it is kUnsupported.
Result<const Backend*> find_backend(std::string_view name);

struct Choice {
  const Backend* backend = nullptr;
  Plan plan;
  std::string passed_over;  // which better backends cannot run the program, and why; may be empty
};
/// The backend for a program and its plan: by name, or for "auto" the first of `candidates` that this machine supports
/// and that has a plan. Errors: as find_backend(); that of a plan unless it is kUnsupported and another backend can.
Result<Choice> choose_backend(std::string_view name, const program::Program& program, const CompileOptions& options,
                              std::span<const Backend* const> candidates = all_backends());

}  // namespace honeycrisp::backend
