// Which of the 64-bit ARM bodies this machine can run.
#include "backend/cpu/isa/isa.h"

#if defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__linux__)
#include <sys/auxv.h>
#endif

namespace honeycrisp::backend::cpu {

extern const Isa kIsaNeon, kIsaNeonDotprod, kIsaNeonI8mm;

namespace {

struct Features {
  bool dotprod = false, i8mm = false;
};

Features features() {
#if defined(__APPLE__)  // written after the documentation of Apple; nobody has run it
  const auto has = [](const char* name) {
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
  };
  return {has("hw.optional.arm.FEAT_DotProd"), has("hw.optional.arm.FEAT_I8MM")};
#elif defined(__linux__)
  // The kernel's numbers (uapi/asm/hwcap.h), because older headers lack the names.
  constexpr unsigned long kHwcapAsimdDp = 1ul << 20, kHwcap2I8mm = 1ul << 13;
  return {(getauxval(AT_HWCAP) & kHwcapAsimdDp) != 0, (getauxval(AT_HWCAP2) & kHwcap2I8mm) != 0};
#else
  return {};
#endif
}

}  // namespace

namespace detail {

std::vector<const Isa*> available_vector_isas() {
  const Features f = features();
  std::vector<const Isa*> isas;
  if (f.dotprod && f.i8mm) isas.push_back(&kIsaNeonI8mm);
  if (f.dotprod) isas.push_back(&kIsaNeonDotprod);
  isas.push_back(&kIsaNeon);
  return isas;
}

}  // namespace detail
}  // namespace honeycrisp::backend::cpu
