#include "backend/metal/debug.h"

#include <cstdlib>
#include <fmt/format.h>
#include <numeric>
#include <string_view>

namespace honeycrisp::backend::metal {
namespace {

bool is_on(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace

DebugSwitches debug_switches() {
  return {.times = is_on("HONEYCRISP_METAL_TIMES"), .compare = is_on("HONEYCRISP_METAL_COMPARE")};
}

std::vector<std::string> times_table(const program::Program& program, const Plan& plan, std::span<const double> seconds,
                                     uint64_t n_steps) {
  const double total = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  std::vector<std::string> table{fmt::format("{} steps, {:.3f} ms each on the device, a command buffer for each op",
                                             n_steps, 1e3 * total / double(n_steps))};
  for (size_t i = 0; i < seconds.size(); ++i)
    table.push_back(fmt::format("{:10.3f} ms {:5.1f}%  {:24} {}", 1e3 * seconds[i] / double(n_steps),
                                total > 0 ? 100 * seconds[i] / total : 0.0, program.steps[i].label,
                                plan.steps[i].kernel));
  return table;
}

}  // namespace honeycrisp::backend::metal
