// AVX2, FMA, F16C and AVX-VNNI (Alder Lake, Sierra Forest, Zen 5 and later).
// Compiled with its own flags: see isa/kernels.h for what may be included here.
#include "backend/cpu/isa/kernels.h"
#include "quant/blocks.h"

#include <immintrin.h>
#include <string.h>

namespace honeycrisp::backend::cpu {
namespace {
// clang-format off: the order matters
#include "backend/cpu/isa/lanes_avx2.inl"
#include "backend/cpu/isa/math.inl"
#include "backend/cpu/isa/formats.inl"
#include "backend/cpu/isa/unroll.inl"
#include "backend/cpu/isa/dot_avxvnni.inl"
#include "backend/cpu/isa/dot_vnni.inl"
#include "backend/cpu/isa/panel.inl"
#include "backend/cpu/isa/rows.inl"
#include "backend/cpu/isa/attention.inl"
#include "backend/cpu/isa/delta.inl"
#include "backend/cpu/isa/float_panel.inl"
#include "backend/cpu/isa/probe.inl"
#include "backend/cpu/isa/table.inl"
// clang-format on
}  // namespace

extern const Isa kIsaAvxVnni;
const Isa kIsaAvxVnni = HC_ISA_TABLE("avxvnni");

}  // namespace honeycrisp::backend::cpu
