// tanh as every softcap and GELU takes it.
#pragma once

#include <metal_stdlib>
using namespace metal;

/// Beyond 10 it is 1 in float, and a tanh made of exp would overflow. NaN stays.
static inline float tanh_of(float x) { return x > 10.0f ? 1.0f : x < -10.0f ? -1.0f : precise::tanh(x); }
