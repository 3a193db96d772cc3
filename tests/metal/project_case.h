// Data for tests of Project, Embed and Logits: weights of every format, and what ops must give, in double precision.
#pragma once

#include "rig.h"

#include <cstdint>
#include <string>
#include <vector>

namespace honeycrisp::backend::metal::testing {

/// Formats that have kernels.
const std::vector<quant::Format>& kernel_formats();

/// Blocks with ordinary scales and any codes; scalars up to 1.
std::vector<std::byte> random_weights(quant::Format format, uint32_t rows, uint32_t cols, uint32_t seed);
std::vector<float> normals(size_t n, uint32_t seed);
std::vector<float> dequantized(const program::Program& program, const program::Matrix& m);

/// A value and how far a kernel's may be from it.
struct Expected {
  double value = 0, allowed = 0;
};
/// W · (optionally normed) x of one batch row, in double precision. `prompt`: by mat_mul's chain, else by mat_vec's.
std::vector<Expected> products(const program::Program& program, const program::Matrix& m, const std::vector<float>& w,
                               const std::optional<program::Norm>& norm, const float* x, bool prompt);
std::string compare(const std::string& what, size_t i, float got, const Expected& want);

/// A Project with a Store, every batch row against double precision. Empty, or what was wrong first.
struct Shape {
  quant::Format format;
  uint32_t rows, cols, batch;
  Role role = Role::kGenerated;
  bool norm = false, bias = false;
};
std::string check_project(Rig& rig, const Shape& shape, uint32_t seed);

}  // namespace honeycrisp::backend::metal::testing
