// What files of ops share about rows of buffers, formats with kernels, and residuals that wait.
#pragma once

#include "backend/metal/kernels/format_list.h"
#include "backend/metal/kernels/project_args.h"
#include "backend/metal/op_encoder.h"

#include <array>
#include <optional>
#include <span>
#include <string>

namespace honeycrisp::backend::metal {

/// f32 rows, `stride` floats apart, of which `width` are meant. The view ends with the last row's last float.
struct Rows {
  View view;
  uint32_t width = 0, stride = 0;
};

/// The slice's columns of all rows of the part.
Rows rows_of(const OpContext&, const program::Slice&);

/// What kernels are told of a residual that waits; y lies in rows without gaps.
PendingArgs pending_args(const OpContext&, const PendingResidual&);

/// Rows of norm(in), without gaps.
Result<void> norm_rows(OpContext&, const Rows& in, const program::Norm&, const View& out);

/// y = W · in + bias, or the gated unit of two matrices' products, for all rows of the part: Project's kernels for
/// other ops. Nothing may be pending.
struct Product {
  Rows in;
  std::span<const program::Matrix> matrices;                 // one; two with an activation
  std::span<const std::optional<program::VectorId>> biases;  // one per matrix, or none at all
  Rows out;
  std::optional<program::Activation> activation;
  bool as_generated = false;  // with the kernel of generated rows, whatever the role
};
Result<void> multiply(OpContext&, const Product&);

bool same(const program::Slice&, const program::Slice&);

/// Whether kernels read weights of this format (kernels/format_list.h).
bool has_kernel(quant::Format);
/// Empty if they do, or why this matrix is an obstacle.
std::string lacks_kernel(const program::Program&, const program::Matrix&);

/// What a launch does with the products.
struct Ending {
  ProjectEnding kind = kEndStore;
  program::Activation activation = program::Activation::kSilu;
  float scale = 1, out_scale = 1, softcap = 0;
  std::optional<Rows> add;                                     // of a Store, or the operand of a gate
  std::array<std::optional<Rows>, program::kMaxMatrices> out;  // one for each matrix, or one
};

/// A launch of mat_vec or mat_mul, put together.
struct Launch {
  Rows in;
  std::optional<program::Norm> input_norm;
  std::span<const program::Matrix> matrices;
  std::span<const std::optional<program::VectorId>> biases;
  Ending ending;
  uint32_t batch = 0;
  View gather;  // uint32 [batch], or none
  const PendingResidual* pending = nullptr;
  bool flush = false;  // what is pending is of another buffer: bring it up to date; else it is of the input
};

/// One launch with everything in it.
Result<void> launch_mat_vec(OpContext&, const Launch&);

/// Drops what is pending: it has been resolved.
void resolve(OpContext&);

}  // namespace honeycrisp::backend::metal
