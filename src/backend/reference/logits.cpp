#include "backend/reference/ops.h"

namespace honeycrisp::backend::reference {

void run(StepState& state, const program::Logits& op) {
  std::vector<float> x;
  size_t rows = 0;
  for (size_t row = 0; row < state.n_rows(); ++row) {
    if (!state.batch.rows[row].wants_logits) continue;
    const std::span<float> in = state.row(op.in, row);
    x.insert(x.end(), in.begin(), in.end());
    rms_norm(state.program, op.norm, std::span(x).last(in.size()));
    ++rows;
  }
  if (rows == 0) return;  // a chunk of a prompt: the table, often the largest matrix, need not be read
  multiply(state.program, op.table, x, rows, state.logits.data(), op.table.rows);
  for (float& v : state.logits) v = op.scale * softcap(op.softcap, v);
}

}  // namespace honeycrisp::backend::reference
