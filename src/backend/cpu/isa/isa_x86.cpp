// Which of the x86-64 bodies this machine can run.
#include "backend/cpu/isa/isa.h"

namespace honeycrisp::backend::cpu {

extern const Isa kIsaAvx2, kIsaAvxVnni, kIsaAvx512, kIsaAvx512Vnni;

namespace detail {

std::vector<const Isa*> available_vector_isas() {
  // __builtin_cpu_supports asks CPUID and, for AVX and up, XGETBV: that the system saves the wide registers.
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  std::vector<const Isa*> isas;
  if (avx512 && __builtin_cpu_supports("avx512vnni")) isas.push_back(&kIsaAvx512Vnni);
  if (avx512) isas.push_back(&kIsaAvx512);
  if (avx2 && __builtin_cpu_supports("avxvnni")) isas.push_back(&kIsaAvxVnni);
  if (avx2) isas.push_back(&kIsaAvx2);
  return isas;
}

}  // namespace detail
}  // namespace honeycrisp::backend::cpu
