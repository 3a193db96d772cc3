// A matrix of the program as the cpu backend multiplies with it, and the input in the forms that it takes.
#pragma once

#include "backend/cpu/op_kernel.h"
#include "backend/cpu/packing.h"

#include <algorithm>
#include <span>

namespace honeycrisp::backend::cpu {

/// Rows of an input in the forms that matrices take: all of a step's, or one row that a thread made for itself.
struct PreparedInput {
  std::byte* groups;   // ActivationGroup in tiles (isa/kernels.h), [rows rounded up to whole tiles][cols / 32]
  float* plain;        // [rows][cols rounded up to 16], the rest unspecified
  uint32_t tile_rows;  // rows of a tile
};
inline PreparedInput shared_input(const StepState& s, uint32_t n_rows) {
  return {s.groups, s.plain, std::min(n_rows, kTileRows)};
}
inline PreparedInput own_input(const ThreadScratch& t) { return {t.groups, t.plain, 1}; }

/// Which rows of an input are multiplied: `count` from `first`, or those that `indices` lists.
struct RowChoice {
  uint32_t count;
  uint32_t first = 0;
  const uint32_t* indices = nullptr;  // [count]
};

/// Panels [first, first + count) of a matrix, at most kMostPanels.
struct PanelChoice {
  uint32_t first, count = 1;
};

class MatrixKernel {
 public:
  /// Error: an integer tensor type, which is no weight.
  static Result<MatrixKernel> create(const program::Program& program, const program::Matrix& matrix,
                                     const Target& target);

  uint32_t rows() const { return rows_; }  // of each slice
  uint32_t n_panels() const { return (rows_ + kLanes - 1) / kLanes; }
  bool takes_integers() const { return multiply_panels_ != nullptr; }
  bool unpacks_to_floats() const { return multiply_panels_ == nullptr && multiply_floats_ == nullptr; }
  quant::Format format() const { return format_; }
  Activations activations() const { return activations_; }
  /// Floats of scratch that multiply() needs.
  size_t scratch_floats() const;

  /// y [rows.count][panels.count][16] = outputs of those panels of a slice for the rows of x. Lanes past the last
  /// output are unspecified.
  void multiply(const PanelChoice& panels, const PreparedInput& x, const RowChoice& rows, const StepState& s,
                ThreadScratch& t, float* y, uint32_t slice = 0) const;
  uint32_t outputs_of(const PanelChoice& panels) const;

 private:
  /// multiply() of a panel of a format that is not packed: `rows_of_weights` are its outputs in the file.
  void multiply_unpacking(const std::byte* rows_of_weights, uint32_t n_outputs, FloatPanelArgs args, const StepState& s,
                          ThreadScratch& t) const;

  const std::byte* data_ = nullptr;  // in the file: formats that are not packed
  uint64_t row_bytes_ = 0, slice_bytes_ = 0;
  const PackedMatrix* packed_ = nullptr;  // null in a plan
  uint32_t rows_ = 0, cols_ = 0;
  quant::Format format_ = quant::Format::kF32;
  Activations activations_ = Activations::k14Bit;
  PanelFn multiply_panels_ = nullptr;       // of a format that is multiplied by integers
  FloatPanelFn multiply_floats_ = nullptr;  // of a floating-point format
};

/// The input of one or more matrices: normed, as integers where one takes them, as f32 where one takes that.
class InputKernel {
 public:
  InputKernel(const program::Program& program, const std::optional<program::Norm>& norm, uint32_t cols,
              std::span<const MatrixKernel> matrices);

  Needs needs() const;
  /// Of one prepared row.
  size_t row_bytes(const StepState& s) const {
    const Needs n = needs();
    return n.groups_per_row * s.group_bytes + n.plain_per_row * sizeof(float);
  }
  /// Prepares `x` [cols] as row `row` of `to`.
  void prepare(const float* x, uint32_t row, const PreparedInput& to, const StepState& s, ThreadScratch& t) const;
  /// Prepares columns [first, first + 32) of row `row`, or as many as there are; `first` is a multiple of 32. For
  /// inputs without norm.
  void prepare_group(const float* x, uint32_t first, uint32_t row, const PreparedInput& to, const StepState& s) const;

 private:
  std::byte* group_at(uint32_t row, uint32_t group, const PreparedInput& to, const StepState& s) const;

  const float* norm_weight_ = nullptr;
  bool norms_ = false, integers_ = false, floats_ = false;
  float eps_ = 0;
  uint32_t cols_ = 0;
};

/// Distinct formats of the matrices, lower case: "q4_1+q8_0"; "q4_1.a8" if their activations have 8 bits.
std::string format_names(std::span<const MatrixKernel> matrices);
/// Why a matrix is unpacked to f32, naming the formats; empty if none is.
std::string unpacked_formats(std::span<const MatrixKernel> matrices);

}  // namespace honeycrisp::backend::cpu
