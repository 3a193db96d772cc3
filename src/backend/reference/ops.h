// The ops of the reference backend, one file each. All take the state of the running step.
#pragma once

#include "backend/backend.h"
#include "backend/reference/kv_store.h"
#include "backend/reference/state_store.h"

#include <cstdint>
#include <span>
#include <vector>

namespace honeycrisp::backend::reference {

/// What the ops of one step share.
struct StepState {
  const program::Program& program;
  const Batch& batch;
  std::vector<std::span<float>> buffers;  // [buffers][rows · width]
  KvStore& kv;
  StateStore& states;
  std::span<float> logits;  // [rows that want them][vocabulary]

  size_t n_rows() const { return batch.rows.size(); }
  std::span<float> row(const program::Slice& slice, size_t row) {
    const size_t width = program.buffers[slice.buffer].width;
    return buffers[slice.buffer].subspan(row * width + slice.column, slice.width);
  }
};

void run(StepState& state, const program::Embed& op);
void run(StepState& state, const program::Project& op);
void run(StepState& state, const program::Attend& op);
void run(StepState& state, const program::DeltaNet& op);
void run(StepState& state, const program::MixExperts& op);
void run(StepState& state, const program::Logits& op);

/// Σ a[i] · b[i] in f64, over eight interleaved partial sums that are added in order.
double dot(const float* a, const float* b, size_t n);

/// In place: x / sqrt(mean(x²) + eps) · weight.
void rms_norm(const program::Program& program, const program::Norm& norm, std::span<float> x);

/// y[row][i] = W[i] · x[row] for the matrix's rows in one slice of its weight; x: [rows][cols], y: [rows][y_stride].
void multiply(const program::Program& program, const program::Matrix& matrix, std::span<const float> x, size_t rows,
              float* y, size_t y_stride, size_t slice = 0);

/// The gated unit of two operands.
float gated(program::Activation activation, float gate, float up);
/// x · σ(x) and σ(x), in f64.
double silu(double x);
double sigmoid(double x);
/// In place: the end of a branch that is added to the residual stream, for one row.
void add_residual(StepState& state, const program::Residual& residual, size_t row, std::span<float> branch);
/// cap · tanh(x / cap); x itself without a cap (0).
float softcap(float cap, float x);

}  // namespace honeycrisp::backend::reference
