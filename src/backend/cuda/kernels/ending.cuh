// The element-wise part of every ending, shared by the fused matrix-vector kernel and the kernel of endings with norms.
#pragma once

#include "backend/cuda/args.h"

#include <cuda_runtime.h>

namespace honeycrisp::backend::cuda {

__device__ __forceinline__ float activate(program::Activation activation, float x) {
  if (activation == program::Activation::kSilu) return x / (1 + expf(-x));
  constexpr float kSqrt2OverPi = 0.79788456080286535588f;
  return 0.5f * x * (1 + tanhf(kSqrt2OverPi * (x + 0.044715f * x * x * x)));
}

/// A gated unit of two operands; a NaN stays one.
__device__ __forceinline__ float gated(program::Activation activation, float gate, float up) {
  if (activation != program::Activation::kClampedSwiglu) return activate(activation, gate) * up;
  constexpr float kLimit = program::kSwigluLimit;
  const float g = gate > kLimit ? kLimit : gate, u = up > kLimit ? kLimit : up < -kLimit ? -kLimit : up;
  return g / (1 + expf(-program::kSwigluAlpha * g)) * (u + 1);
}

__device__ __forceinline__ float softcap(float cap, float x) { return cap == 0 ? x : cap * tanhf(x / cap); }

// `kind` and `activation` are e's own, or the same known at compile time.

/// The value that an ending makes of a product y with its bias. `other`: the second matrix's, for a gate of two;
/// `operand`: Store's addend (0 where there is none), the gate's operand, or what the residual's row holds.
__device__ __forceinline__ float ended(EndingKind kind, program::Activation activation, const EndingArgs& e, float y,
                                       float other, float operand) {
  switch (kind) {
    case EndingKind::kProduct: return y;
    case EndingKind::kStore: return e.out_scale * (e.add.data == nullptr ? e.scale * y : operand + e.scale * y);
    case EndingKind::kGate: return gated(activation, y, other);
    case EndingKind::kGateOperand: return gated(activation, y, operand);
    case EndingKind::kResidual: return e.out_scale * (operand + e.scale * y);
    case EndingKind::kLogits: return e.scale * softcap(e.softcap, y);
  }
  return y;
}

/// Where a row's outputs of matrix `part` go, and where its operand is read; null where there is none. `row`: of the
/// buffers; `dest`: of products and logits.
struct EndingPlace {
  float* out;
  const float* operand;
};
__device__ __forceinline__ EndingPlace place_of_row(EndingKind kind, const EndingArgs& e, uint32_t part, uint32_t row,
                                                    uint32_t dest) {
  const Rows& to = e.out[part];
  const bool listed = kind == EndingKind::kProduct || kind == EndingKind::kLogits;
  float* out = to.data + size_t(listed ? dest : row) * to.stride;
  if (kind == EndingKind::kResidual) return {out, out};
  const bool reads = kind == EndingKind::kStore || kind == EndingKind::kGateOperand;
  return {out, reads && e.add.data != nullptr ? e.add.data + size_t(row) * e.add.stride : nullptr};
}

__device__ __forceinline__ bool reads_operand(EndingKind kind, const EndingArgs& e) {
  return kind == EndingKind::kResidual ||
         (e.add.data != nullptr && (kind == EndingKind::kStore || kind == EndingKind::kGateOperand));
}
/// Whether outputs and operands of rows that are a multiple of four can be moved by fours.
__device__ __forceinline__ bool is_aligned(EndingKind kind, const EndingArgs& e, uint32_t part) {
  const auto aligned = [](const Rows& rows) {
    return reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && rows.stride % 4 == 0;
  };
  return aligned(e.out[part]) && (!reads_operand(kind, e) || kind == EndingKind::kResidual || aligned(e.add));
}

/// Ends output `r` of matrix `part`.
__device__ __forceinline__ void finish(const EndingArgs& e, uint32_t part, uint32_t r, uint32_t row, uint32_t dest,
                                       float y, float other) {
  const EndingPlace place = place_of_row(e.kind, e, part, row, dest);
  place.out[r] = ended(e.kind, e.activation, e, y, other, place.operand != nullptr ? place.operand[r] : 0.0f);
}

}  // namespace honeycrisp::backend::cuda
