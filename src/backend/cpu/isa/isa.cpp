#include "backend/cpu/isa/isa.h"

#include "base/check.h"

#include <cstdlib>
#include <string>

namespace honeycrisp::backend::cpu {

extern const Isa kIsaScalar;
static_assert(kSwigluAlpha == program::kSwigluAlpha && kSwigluLimit == program::kSwigluLimit);

std::vector<const Isa*> available_isas() {
  std::vector<const Isa*> isas = detail::available_vector_isas();
  isas.push_back(&kIsaScalar);
  return isas;
}

Result<const Isa*> find_isa(std::string_view name) {
  std::string names;
  for (const Isa* isa : available_isas()) {
    if (name.empty() || name == isa->name) return isa;
    names += (names.empty() ? "" : ", ") + std::string(isa->name);
  }
  return unsupported("instruction set \"{}\" is unknown or not on this machine, which has: {}", name, names);
}

Result<const Isa*> chosen_isa() {
  const char* name = std::getenv("HONEYCRISP_ISA");
  auto isa = find_isa(name ? name : "");
  if (!isa) return invalid("HONEYCRISP_ISA: {}", isa.error().message);
  return isa;
}

FloatPanelFn multiply_floats_for(const Isa& isa, quant::Format format) {
  switch (format) {
#define HC_X(name) \
  case quant::Format::k##name: return isa.floats.name;
    HC_CPU_FLOAT_FORMATS(HC_X)
#undef HC_X
    default: return nullptr;
  }
}

const Isa::Integers& integers_of(const Isa& isa, Activations activations) {
  return isa.integers[activations == Activations::k8Bit ? 0 : 1];
}

size_t group_bytes(Activations activations) {
  return activations == Activations::k8Bit ? sizeof(ActivationGroup<1>) : sizeof(ActivationGroup<2>);
}

PanelFn multiply_panels_for(const Isa::Integers& integers, quant::Format format) {
  switch (format) {
#define HC_X(name, ...) \
  case quant::Format::k##name: return integers.name;
    HC_CPU_INTEGER_FORMATS(HC_X)
#undef HC_X
    default: return nullptr;
  }
}

UnpackFn unpack_for(const Isa& isa, quant::Format format) {
  switch (format) {
#define HC_X(name, ...) \
  case quant::Format::k##name: return isa.unpack.name;
    HC_CPU_INTEGER_FORMATS(HC_X)
    HC_CPU_FLOAT_FORMATS(HC_X)
#undef HC_X
    default: return nullptr;
  }
}

GateFn gate_of(const Isa& isa, program::Activation activation) {
  switch (activation) {
    case program::Activation::kSilu: return isa.gate_silu;
    case program::Activation::kGeluTanh: return isa.gate_gelu_tanh;
    case program::Activation::kClampedSwiglu: return isa.gate_clamped_swiglu;
  }
  HC_CHECK(false, "activation {}", int(activation));
  return nullptr;
}

}  // namespace honeycrisp::backend::cpu
