#include "backend/metal/project.h"

namespace honeycrisp::backend::metal {

std::string obstacle(const program::Program& program, const program::Embed& op) {
  return lacks_kernel(program, op.table);
}

Result<void> encode(OpContext& c, const program::Embed& op) {
  constexpr uint32_t kThreads = 32;
  const program::Weight& w = c.program.weight(op.table);
  const WeightView table = c.places.weight(op.table);
  const Rows out = rows_of(c, op.out);
  const EmbedArgs args{table.row_bytes, w.cols, out.stride, op.scale, 0};
  HC_ASSIGN(const Pipeline* pipeline,
            c.pipelines.get("embed", "embed", kThreads, {constant(kConstantFormats, uint32_t(w.format))}));
  c.encoder.pipeline(*pipeline);
  c.encoder.constant(0, table.view);
  c.encoder.read(1, c.rows.tokens);
  c.encoder.write(2, out.view);
  c.encoder.args(3, args);
  const uint32_t parts = (w.cols + 31) / 32;
  c.encoder.dispatch({(parts + kThreads - 1) / kThreads, c.rows.n}, {kThreads});
  return {};
}

}  // namespace honeycrisp::backend::metal
