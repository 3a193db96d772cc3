// Advanced SIMD and sdot (ARMv8.2 with FEAT_DotProd: Cortex-A75, Neoverse N1, Apple M1 and later).
// Compiled with its own flags: see isa/kernels.h for what may be included here.
#include "backend/cpu/isa/kernels.h"
#include "quant/blocks.h"

#include <arm_neon.h>
#include <string.h>

namespace honeycrisp::backend::cpu {
namespace {
// clang-format off: the order matters
#include "backend/cpu/isa/lanes_neon.inl"
#include "backend/cpu/isa/math.inl"
#include "backend/cpu/isa/formats.inl"
#include "backend/cpu/isa/unroll.inl"
#include "backend/cpu/isa/dot_neon.inl"
#include "backend/cpu/isa/panel.inl"
#include "backend/cpu/isa/rows.inl"
#include "backend/cpu/isa/attention.inl"
#include "backend/cpu/isa/delta.inl"
#include "backend/cpu/isa/float_panel.inl"
#include "backend/cpu/isa/probe.inl"
#include "backend/cpu/isa/table.inl"
// clang-format on
}  // namespace

extern const Isa kIsaNeonDotprod;
const Isa kIsaNeonDotprod = HC_ISA_TABLE("neon-dotprod");

}  // namespace honeycrisp::backend::cpu
