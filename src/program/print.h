// A Program in words, one line per step.
#pragma once

#include "program/program.h"

#include <string>

namespace honeycrisp::program {

/// What a step computes, e.g. "norm · [576→576 Q4_1, 576→192 Q4_1 ×2] + bias → store".
std::string describe(const Program& program, const Op& op);

}  // namespace honeycrisp::program
