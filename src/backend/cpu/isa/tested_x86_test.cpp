// Instruction sets that only the tests run, on x86-64.
#include "backend/cpu/testing.h"

namespace honeycrisp::backend::cpu {

extern const Isa kIsaAvxVnniEvex;

namespace testing {

std::vector<const Isa*> tested_isas() {
  std::vector<const Isa*> isas = available_isas();
  if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl")) isas.push_back(&kIsaAvxVnniEvex);
  return isas;
}

}  // namespace testing
}  // namespace honeycrisp::backend::cpu
