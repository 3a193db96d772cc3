// Switches for people who debug the device, from the environment, and the table that one of them prints.
#pragma once

#include "backend/backend.h"

#include <span>
#include <string>
#include <vector>

namespace honeycrisp::backend::metal {

struct DebugSwitches {
  bool times = false;    // HONEYCRISP_METAL_TIMES=1: each op in a command buffer of its own; a table of their seconds
  bool compare = false;  // HONEYCRISP_METAL_COMPARE=1: each op by itself, held against `reference` (op_compare.h)
};

/// A variable that is 1, or 0, empty or absent. Error: anything else, with the variable and its value.
Result<bool> environment_switch(const char* variable);
/// A number, 0 where the variable is empty or absent. Error: likewise.
Result<uint32_t> environment_number(const char* variable);

Result<DebugSwitches> debug_switches();

/// A heading, and a line per op: milliseconds per step on the device, share of all, kernel and label. `seconds`:
/// [steps], the sums.
std::vector<std::string> times_table(const program::Program& program, const Plan& plan, std::span<const double> seconds,
                                     uint64_t n_steps);

}  // namespace honeycrisp::backend::metal
