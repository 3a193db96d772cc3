// AVX2, FMA and F16C (Haswell, Zen and later).
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
#include "backend/cpu/isa/dot_avx2.inl"
#include "backend/cpu/isa/dot_pairs.inl"
#include "backend/cpu/isa/panel.inl"
#include "backend/cpu/isa/rows.inl"
#include "backend/cpu/isa/attention.inl"
#include "backend/cpu/isa/delta.inl"
#include "backend/cpu/isa/float_panel.inl"
#include "backend/cpu/isa/probe.inl"
#include "backend/cpu/isa/table.inl"
// clang-format on
}  // namespace

extern const Isa kIsaAvx2;
const Isa kIsaAvx2 = HC_ISA_TABLE("avx2");

}  // namespace honeycrisp::backend::cpu
