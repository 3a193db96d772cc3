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

__device__ __forceinline__ float softcap(float cap, float x) { return cap == 0 ? x : cap * tanhf(x / cap); }

/// Ends output `r` of matrix `part`, given y with its bias added. `row`: of the buffers; `dest`: of products and
/// logits. `other`: the second matrix's product, for a gate of two.
__device__ __forceinline__ void finish(const EndingArgs& e, uint32_t part, uint32_t r, uint32_t row, uint32_t dest,
                                       float y, float other) {
  const Rows& to = e.out[part];
  float* out = to.data + size_t(row) * to.stride + r;
  const float* add = e.add.data == nullptr ? nullptr : e.add.data + size_t(row) * e.add.stride + r;
  switch (e.kind) {
    case EndingKind::kProduct: to.data[size_t(dest) * to.stride + r] = y; return;
    case EndingKind::kStore: {
      const float v = e.scale * y;
      *out = e.out_scale * (add == nullptr ? v : *add + v);
      return;
    }
    case EndingKind::kGate: *out = activate(e.activation, y) * other; return;
    case EndingKind::kGateOperand: *out = activate(e.activation, y) * *add; return;
    case EndingKind::kResidual: *out = e.out_scale * (*out + e.scale * y); return;
    case EndingKind::kLogits: to.data[size_t(dest) * to.stride + r] = e.scale * softcap(e.softcap, y); return;
  }
}

}  // namespace honeycrisp::backend::cuda
