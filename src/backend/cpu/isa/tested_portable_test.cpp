// Instruction sets that the tests run where there are none but the product's.
#include "backend/cpu/testing.h"

namespace honeycrisp::backend::cpu::testing {

std::vector<const Isa*> tested_isas() { return available_isas(); }

}  // namespace honeycrisp::backend::cpu::testing
