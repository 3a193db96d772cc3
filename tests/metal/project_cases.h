// Launches of the kernels of Project that mutants run: every barrier, guard and tail is met. Formats: F32, Q4_0, Q4_K.
#pragma once

#include "cases.h"

namespace honeycrisp::backend::metal::soft::testing {

const std::vector<Case>& project_cases();

}  // namespace honeycrisp::backend::metal::soft::testing
