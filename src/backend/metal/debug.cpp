#include "backend/metal/debug.h"

#include "base/text_escape.h"

#include <charconv>
#include <cstdlib>
#include <fmt/format.h>
#include <numeric>
#include <string_view>

namespace honeycrisp::backend::metal {
namespace {

constexpr size_t kShown = 64;  // characters of a value that a message repeats

}  // namespace

Result<bool> environment_switch(const char* variable) {
  const char* value = std::getenv(variable);
  const std::string_view text = value ? value : "";
  if (text == "1") return true;
  if (text.empty() || text == "0") return false;
  return invalid("{} is '{}': 1 switches it on, 0 off", variable, escape_for_display(text, kShown));
}

Result<uint32_t> environment_number(const char* variable) {
  const char* value = std::getenv(variable);
  const std::string_view text = value ? value : "";
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || (error == std::errc{} && end == text.data() + text.size())) return number;
  return invalid("{} is '{}': a number of 32 bits is meant", variable, escape_for_display(text, kShown));
}

Result<DebugSwitches> debug_switches() {
  DebugSwitches switches;
  HC_ASSIGN(switches.times, environment_switch("HONEYCRISP_METAL_TIMES"));
  HC_ASSIGN(switches.compare, environment_switch("HONEYCRISP_METAL_COMPARE"));
  return switches;
}

std::vector<std::string> times_table(const program::Program& program, const Plan& plan, std::span<const double> seconds,
                                     uint64_t n_steps) {
  const double total = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  std::vector<std::string> table{fmt::format("{} steps, {:.3f} ms each on the device, a command buffer for each op",
                                             n_steps, 1e3 * total / double(n_steps))};
  for (size_t i = 0; i < seconds.size(); ++i)
    table.push_back(fmt::format("{:10.3f} ms {:5.1f}%  {:24} {}", 1e3 * seconds[i] / double(n_steps),
                                total > 0 ? 100 * seconds[i] / total : 0.0, program.steps[i].label,
                                plan.steps[i].kernels()));
  return table;
}

}  // namespace honeycrisp::backend::metal
