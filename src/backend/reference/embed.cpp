#include "backend/reference/ops.h"
#include "quant/dequantize.h"

namespace honeycrisp::backend::reference {

void run(StepState& state, const program::Embed& op) {
  const program::Weight& w = state.program.weight(op.table);
  for (size_t row = 0; row < state.n_rows(); ++row) {
    const size_t token = size_t(state.batch.rows[row].token);
    const std::span<float> out = state.row(op.out, row);
    quant::dequantize_row(w.format, w.data + (op.table.first_row + token) * w.row_bytes(), out.data(), out.size());
    for (float& v : out) v *= op.scale;
  }
}

}  // namespace honeycrisp::backend::reference
