// What files of ops share about rows of buffers, formats with kernels, and residuals that wait.
#pragma once

#include "backend/metal/kernels/format_list.h"
#include "backend/metal/kernels/project_args.h"
#include "backend/metal/op_encoder.h"

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

/// Whether kernels read weights of this format (kernels/format_list.h).
bool has_kernel(quant::Format);

}  // namespace honeycrisp::backend::metal
