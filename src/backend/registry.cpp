#include "backend/registry.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/metal/metal_backend.h"
#include "backend/reference/reference_backend.h"
#include "base/text_escape.h"

#include <fmt/ranges.h>

namespace honeycrisp::backend {

std::span<const Backend* const> all_backends() {
  static const Backend* const backends[] = {&cuda_backend(), &metal_backend(), &cpu_backend(), &reference_backend(),
                                            &metal_soft_backend()};
  return backends;
}

Result<const Backend*> find_backend(std::string_view name) {
  std::vector<std::string> names;
  for (const Backend* b : all_backends()) {
    if ((name == "auto" && b->automatic()) || name == b->name()) {
      const Result<void> available = b->available();
      if (available) return b;
      // A machine without the device is no fault; a setting that this backend cannot follow must not pick another.
      if (name != "auto" || available.error().code != ErrorCode::kUnsupported)
        return tl::unexpected<Error>(available.error());
    }
    names.emplace_back(b->name());
  }
  return invalid("backend '{}' is unknown (there are: auto, {})", escape_for_display(name, 64), fmt::join(names, ", "));
}

Result<Choice> choose_backend(std::string_view name, const program::Program& program, const CompileOptions& options,
                              std::span<const Backend* const> candidates) {
  Choice choice;
  if (name != "auto") {
    HC_ASSIGN(choice.backend, find_backend(name));
    HC_ASSIGN(choice.plan, choice.backend->plan(program, options));
    return choice;
  }
  Result<Choice> none = unsupported("no backend of this build runs here");
  for (const Backend* b : candidates) {
    if (!b->automatic()) continue;
    if (const Result<void> available = b->available(); !available) {
      if (available.error().code != ErrorCode::kUnsupported) return tl::unexpected<Error>(available.error());
      continue;
    }
    Result<Plan> plan = b->plan(program, options);
    if (plan) {
      choice.backend = b;
      choice.plan = std::move(*plan);
      return choice;
    }
    if (plan.error().code != ErrorCode::kUnsupported) return tl::unexpected<Error>(plan.error());
    if (!choice.passed_over.empty()) choice.passed_over += "; ";
    choice.passed_over += fmt::format("{} cannot run this model: {}", b->name(), plan.error().message);
    none = tl::unexpected<Error>(plan.error());
  }
  return none;
}

}  // namespace honeycrisp::backend
