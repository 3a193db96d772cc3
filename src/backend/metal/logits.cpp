// Logits are a mat_vec whatever the rows' role: few want them, and a prompt's matrix tiles would be empty but for one
// row.
#include "backend/metal/project.h"

namespace honeycrisp::backend::metal {

std::string obstacle(const program::Program& program, const program::Logits& op) {
  return lacks_kernel(program, op.table);
}

Result<void> encode(OpContext& c, const program::Logits& op) {
  if (c.rows.n_logits == 0) {
    if (c.pending) resolve(c);  // nobody reads x any more
    return {};
  }
  const bool of_input = c.pending && same(op.in, c.pending->ending.x);
  if (c.pending && !of_input) HC_TRY(flush_residual(c));
  Launch l{.in = rows_of(c, op.in),
           .input_norm = op.norm,
           .matrices = std::span(&op.table, 1),
           .biases = {},
           .ending = {.out_scale = op.scale, .softcap = op.softcap},
           .batch = c.rows.n_logits,
           .gather = c.rows.logit_rows,
           .pending = c.pending ? &*c.pending : nullptr};
  l.ending.out[0] = Rows{c.rows.logits, op.table.rows, op.table.rows};
  HC_TRY(launch_mat_vec(c, l));
  if (c.pending) resolve(c);
  return {};
}

}  // namespace honeycrisp::backend::metal
