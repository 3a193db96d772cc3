#include "backend/reference/ops.h"

namespace honeycrisp::backend::reference {
namespace {

// y: [matrices' rows one after another], the products of one row of the batch, biases added; may be changed.
void finish(StepState& state, const program::Project& op, const program::Store& store, size_t row, float* y) {
  for (size_t m = 0; m < op.matrices.size(); y += op.matrices[m].rows, ++m) {
    const size_t n = op.matrices[m].rows, run = store.norm_width == 0 ? n : store.norm_width;
    for (size_t i = 0; i < n; ++i) y[i] *= store.scale;
    if (store.norm)
      for (size_t i = 0; i < n; i += run) rms_norm(state.program, *store.norm, std::span(y + i, run));
    const std::span<float> out = state.row(store.outs[m], row);
    for (size_t i = 0; i < n; ++i) {
      const float sum = store.add ? state.row(*store.add, row)[i] + y[i] : y[i];
      out[i] = store.out_scale * sum;
    }
  }
}

void finish(StepState& state, const program::Project& op, const program::Gate& gate, size_t row, float* y) {
  const size_t n = op.matrices[0].rows;
  const std::span<float> out = state.row(gate.out, row);
  const float* other = gate.operand ? state.row(*gate.operand, row).data() : y + n;
  for (size_t i = 0; i < n; ++i) out[i] = gated(gate.activation, y[i], other[i]);
}

void finish(StepState& state, const program::Project& op, const program::Residual& residual, size_t row, float* y) {
  add_residual(state, residual, row, std::span(y, op.matrices[0].rows));
}

}  // namespace

void run(StepState& state, const program::Project& op) {
  const size_t rows = state.n_rows(), cols = op.in.width;
  std::vector<float> x(rows * cols);
  for (size_t row = 0; row < rows; ++row) {
    const std::span<float> in = state.row(op.in, row), copy(x.data() + row * cols, cols);
    std::copy(in.begin(), in.end(), copy.begin());
    if (op.input_norm) rms_norm(state.program, *op.input_norm, copy);
  }

  size_t width = 0;
  for (const program::Matrix& m : op.matrices) width += m.rows;
  std::vector<float> y(rows * width);
  for (size_t m = 0, column = 0; m < op.matrices.size(); column += op.matrices[m].rows, ++m) {
    multiply(state.program, op.matrices[m], x, rows, y.data() + column, width);
    if (!op.biases[m]) continue;
    const std::vector<float>& bias = state.program.vectors[*op.biases[m]].values;
    for (size_t row = 0; row < rows; ++row)
      for (size_t i = 0; i < bias.size(); ++i) y[row * width + column + i] += bias[i];
  }
  for (size_t row = 0; row < rows; ++row)
    std::visit([&](const auto& ending) { finish(state, op, ending, row, y.data() + row * width); }, op.ending);
}

}  // namespace honeycrisp::backend::reference
