// What becomes of a product, per element: bias, and then the ending of a Project (program.h) or of Logits. Shared by
// mat_vec and mat_mul.
#pragma once

#include "project_args.h"
#include "tanh.h"

#include <metal_stdlib>
using namespace metal;

constant uint kEnding [[function_constant(12)]];
constant uint kActivation [[function_constant(13)]];
constant uint kBiases [[function_constant(14)]];
constant bool kAdd [[function_constant(15)]];
constant bool kSoftcap [[function_constant(16)]];

static inline bool is_gate() { return kEnding == kEndGate; }

static inline float sigmoid(float x) { return 1.0f / (1.0f + precise::exp(-x)); }

static inline float gated(float gate, float up) {
  switch (kActivation) {
    case kActivationSilu: return gate * sigmoid(gate) * up;
    case kActivationGeluTanh: {
      const float cubic = fma(0.044715f * gate * gate, gate, gate);
      return 0.5f * gate * (1.0f + tanh_of(0.7978845608028654f * cubic)) * up;
    }
    default: {                                    // clamped SwiGLU, gpt-oss
      const float g = gate > 7.0f ? 7.0f : gate;  // NaN stays
      const float u = up > 7.0f ? 7.0f : up < -7.0f ? -7.0f : up;
      return g * sigmoid(1.702f * g) * (u + 1.0f);
    }
  }
}

/// Where a result goes: out points to the batch row's first element, add to that of what is added or multiplied.
static inline void finish(float y, float other, uint row, device float* out, device const float* add,
                          constant ProjectArgs& args) {
  switch (kEnding) {
    case kEndStore: {
      float v = y * args.scale;
      if (kSoftcap) {
        v = args.softcap * tanh_of(v / args.softcap);
      }
      if (kAdd) {
        v += add[row];
      }
      out[row] = v * args.out_scale;
      break;
    }
    case kEndGate: out[row] = gated(y, other); break;
    case kEndGateOperand: out[row] = gated(y, add[row]); break;
    default: out[row] = args.out_scale * (out[row] + args.scale * y); break;
  }
}
