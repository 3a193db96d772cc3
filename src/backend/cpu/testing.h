// What the tests of the cpu backend share.
#pragma once

#include "backend/cpu/isa/isa.h"
#include "support/random_weights.h"

namespace honeycrisp::backend::cpu::testing {

using namespace honeycrisp::test_support;

}  // namespace honeycrisp::backend::cpu::testing
