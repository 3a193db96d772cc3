// Plain C++, for every machine.
#include "backend/cpu/isa/kernels.h"
#include "base/half.h"
#include "quant/blocks.h"

#include <bit>
#include <cstring>

namespace honeycrisp::backend::cpu {
namespace {
// clang-format off: the order matters
#include "backend/cpu/isa/lanes_scalar.inl"
#include "backend/cpu/isa/math.inl"
#include "backend/cpu/isa/formats.inl"
#include "backend/cpu/isa/unroll.inl"
#include "backend/cpu/isa/dot_scalar.inl"
#include "backend/cpu/isa/panel.inl"
#include "backend/cpu/isa/rows.inl"
#include "backend/cpu/isa/attention.inl"
#include "backend/cpu/isa/delta.inl"
#include "backend/cpu/isa/float_panel.inl"
#include "backend/cpu/isa/probe.inl"
#include "backend/cpu/isa/table.inl"
// clang-format on
}  // namespace

extern const Isa kIsaScalar;
const Isa kIsaScalar = HC_ISA_TABLE("scalar");

}  // namespace honeycrisp::backend::cpu
