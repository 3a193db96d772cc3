#include "backend/registry.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/reference/reference_backend.h"
#include "base/text_escape.h"

#include <fmt/ranges.h>

namespace honeycrisp::backend {

std::span<const Backend* const> all_backends() {
  static const Backend* const backends[] = {&cuda_backend(), &cpu_backend(), &reference_backend()};
  return backends;
}

Result<const Backend*> find_backend(std::string_view name) {
  std::vector<std::string> names;
  for (const Backend* b : all_backends()) {
    if (name == "auto" || name == b->name()) {
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

}  // namespace honeycrisp::backend
