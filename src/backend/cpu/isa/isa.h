// The instruction sets of this build and machine, and the choice among them. Owns HONEYCRISP_ISA.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/isa/kernels.h"
#include "base/result.h"
#include "program/program.h"
#include "quant/formats.h"

#include <string_view>
#include <vector>

namespace honeycrisp::backend::cpu {

/// Those that this machine can run, best first; scalar is always the last.
std::vector<const Isa*> available_isas();

/// By name, or the best one for "". Error: lists what there is.
Result<const Isa*> find_isa(std::string_view name);
/// find_isa() of the environment variable HONEYCRISP_ISA.
Result<const Isa*> chosen_isa();

/// How activations are multiplied: the functions for that many bits, and the size of an ActivationGroup.
const Isa::Integers& integers_of(const Isa& isa, Activations activations);
size_t group_bytes(Activations activations);
/// Those of a format that is packed into panels (packing.h), of integers or of floating-point values; null for others.
PanelFn multiply_panels_for(const Isa::Integers& integers, quant::Format format);
FloatPanelFn multiply_floats_for(const Isa& isa, quant::Format format);
UnpackFn unpack_for(const Isa& isa, quant::Format format);

/// The gated unit of an activation.
GateFn gate_of(const Isa& isa, program::Activation activation);

namespace detail {
/// Besides scalar, of this architecture: isa_x86.cpp, isa_arm.cpp or isa_portable.cpp.
std::vector<const Isa*> available_vector_isas();
}  // namespace detail

}  // namespace honeycrisp::backend::cpu
