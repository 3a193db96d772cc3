// cos and sin of a rope as the GPU backends read them.
#pragma once

#include "program/program.h"

#include <cstdint>
#include <vector>

namespace honeycrisp::backend {

/// Of positions [0, n_positions): [positions][pairs]{cos, sin}, f64 rounded to f32.
std::vector<float> make_rope_table(const program::Rope& rope, uint32_t n_positions);

}  // namespace honeycrisp::backend
