// Project as launches: mat_vec for generated rows (one launch with everything in it), mat_mul for prompts (a launch for
// the input's norm before it).
//
// Residuals whose post-norm needs the whole row of y wait in OpContext::pending. The next launch that reads x resolves
// them for itself, in each threadgroup; x is brought up to date by a later launch that does not read it, in a
// threadgroup of its own (in a dense layer: the output projection, then the down projection).
#include "backend/metal/project.h"

#include "backend/metal/op_encoder.h"
#include "backend/metal/tuning.h"

#include <algorithm>

namespace honeycrisp::backend::metal {
namespace {

using program::Matrix;
using program::Norm;
using program::Slice;

bool overlap(const Slice& a, const Slice& b) {
  return a.buffer == b.buffer && a.column < b.column + b.width && b.column < a.column + a.width;
}
uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

uint32_t columns_of(const OpContext& c, const Launch& l) { return c.program.weight(l.matrices[0]).cols; }

uint32_t total_rows(std::span<const Matrix> matrices) {
  uint32_t rows = 0;
  for (const Matrix& m : matrices) rows += m.rows;
  return rows;
}

/// Constants and arguments that both kernels take; `tile_rows`: weight rows of a threadgroup.
std::pair<std::vector<Constant>, ProjectArgs> describe(const OpContext& c, const Launch& l, uint32_t tile_rows) {
  ProjectArgs args{};
  std::vector<Constant> constants;
  const auto set = [&](uint32_t index, auto value) { constants.push_back(constant(index, value)); };
  const bool gate = l.ending.kind == kEndGate;
  uint32_t tiles = 0, biases = 0;
  for (uint32_t m = 0; m < 4; ++m) {
    const Matrix& matrix = l.matrices[std::min<size_t>(m, l.matrices.size() - 1)];
    set(kConstantFormats + m, uint32_t(c.program.weight(matrix).format));
    if (m >= l.matrices.size()) continue;
    if (!gate || m == 0) tiles += ceil_div(matrix.rows, tile_rows);
    args.matrices[m] = {c.places.weight(matrix).row_bytes, matrix.rows, tiles,
                        l.ending.out[m] ? l.ending.out[m]->stride : 0, 0};
    if (!l.biases.empty() && l.biases[m]) biases |= 1u << m;
  }
  set(kConstantMatrices, uint32_t(l.matrices.size()));
  set(kConstantEnding, uint32_t(l.ending.kind));
  set(kConstantActivation, uint32_t(l.ending.activation));
  set(kConstantBiases, biases);
  set(kConstantAdd, l.ending.kind == kEndStore && l.ending.add.has_value());
  set(kConstantSoftcap, l.ending.softcap != 0);
  set(kConstantNorm, l.input_norm.has_value());
  set(kConstantNormWeight, l.input_norm && l.input_norm->weight);
  set(kConstantPending, l.pending && !l.flush);
  set(kConstantPendingWeight, l.pending && l.pending->ending.post_norm->weight);
  set(kConstantFlush, l.pending && l.flush);
  set(kConstantGather, bool(l.gather));
  args.columns = columns_of(c, l);
  args.in_stride = l.in.stride;
  args.batch = l.batch;
  args.flush_tile = tiles;
  args.add_stride = l.ending.add ? l.ending.add->stride : 0;
  args.norm_eps = l.input_norm ? l.input_norm->eps : 0;
  args.scale = l.ending.scale;
  args.out_scale = l.ending.out_scale;
  args.softcap = l.ending.softcap;
  if (l.pending) args.pending = pending_args(c, *l.pending);
  return {std::move(constants), args};
}

/// Buffers that both kernels take. What the constants switch off is bound to one float of the input: never touched, and
/// at an offset that suits every argument's type.
void bind(OpContext& c, const Launch& l, const ProjectArgs& args) {
  StepEncoder& e = c.encoder;
  const View none{l.in.view.buffer, l.in.view.offset, sizeof(float)};
  for (uint32_t m = 0; m < 4; ++m) {
    const bool is = m < l.matrices.size();
    e.constant(kBufferWeights + m, is ? c.places.weight(l.matrices[m]).view : none);
    if (is && l.ending.out[m])
      e.write(kBufferOut + m, l.ending.out[m]->view);
    else
      e.constant(kBufferOut + m, none);
    e.constant(kBufferBias + m, is && !l.biases.empty() && l.biases[m] ? c.places.vector(*l.biases[m]) : none);
  }
  e.read(kBufferIn, l.in.view);
  e.constant(kBufferNorm, l.input_norm && l.input_norm->weight ? c.places.vector(*l.input_norm->weight) : none);
  if (l.pending)
    e.read(kBufferPendingY, l.pending->y);
  else
    e.constant(kBufferPendingY, none);
  const auto post_weight = l.pending ? l.pending->ending.post_norm->weight : std::nullopt;
  e.constant(kBufferPendingNorm, post_weight ? c.places.vector(*post_weight) : none);
  if (l.pending && l.flush)
    e.write(kBufferFlushX, rows_of(c, l.pending->ending.x).view);
  else
    e.constant(kBufferFlushX, none);
  if (l.ending.add)
    e.read(kBufferAdd, l.ending.add->view);
  else
    e.constant(kBufferAdd, none);
  if (l.gather)
    e.read(kBufferGather, l.gather);
  else
    e.constant(kBufferGather, none);
  e.args(kBufferArgs, args);
}

Result<void> launch_mat_mul(OpContext& c, const Launch& l) {
  const auto [constants, args] = describe(c, l, uint32_t(kMatMulRows));
  HC_ASSIGN(const Pipeline* pipeline, c.pipelines.get("mat_mul", "mat_mul", uint32_t(kProjectThreads), constants));
  c.encoder.pipeline(*pipeline);
  bind(c, l, args);
  c.encoder.threadgroup_memory(0, 4 * mat_mul_memory(l.ending.kind == kEndGate));
  c.encoder.dispatch({args.flush_tile, ceil_div(l.batch, uint32_t(kMatMulBatch))}, {uint32_t(kProjectThreads)});
  return {};
}

/// out = the input's rows, what is pending on them resolved (and x brought up to date), normed. out may be absent.
Result<void> launch_prepare(OpContext& c, const Rows& in, const PendingResidual* pending,
                            const std::optional<Norm>& norm, const View& out) {
  PrepareRowsArgs args{};
  if (pending) args.pending = pending_args(c, *pending);
  args.width = in.width;
  args.in_stride = in.stride;
  args.norm_eps = norm ? norm->eps : 0;
  const auto post_weight = pending ? pending->ending.post_norm->weight : std::nullopt;
  const auto weight = norm ? norm->weight : std::nullopt;
  HC_ASSIGN(
      const Pipeline* pipeline,
      c.pipelines.get("rows", "prepare_rows", uint32_t(kProjectThreads),
                      {constant(kConstantNorm, norm.has_value()), constant(kConstantNormWeight, weight.has_value()),
                       constant(kConstantPending, pending != nullptr),
                       constant(kConstantPendingWeight, post_weight.has_value()), constant(kConstantAdd, false)}));
  StepEncoder& e = c.encoder;
  e.pipeline(*pipeline);
  if (pending)
    e.write(0, in.view);
  else
    e.read(0, in.view);
  if (pending)
    e.read(1, pending->y);
  else
    e.constant(1, in.view);
  e.constant(2, post_weight ? c.places.vector(*post_weight) : in.view);
  e.constant(3, weight ? c.places.vector(*weight) : in.view);
  if (out)
    e.write(4, out);
  else
    e.constant(4, in.view);
  e.args(5, args);
  e.dispatch({c.rows.n}, {uint32_t(kProjectThreads)});
  return {};
}

/// The ending of a Store whose norm needs whole runs of y [rows][total].
Result<void> launch_finish(OpContext& c, const program::Project& op, const program::Store& store, const View& y,
                           uint32_t total) {
  uint32_t column = 0;
  for (size_t m = 0; m < op.matrices.size(); column += op.matrices[m].rows, ++m) {
    const uint32_t width = op.matrices[m].rows, run = store.norm_width == 0 ? width : store.norm_width;
    const Rows out = rows_of(c, store.outs[m]);
    const std::optional<Rows> add = store.add ? std::optional(rows_of(c, *store.add)) : std::nullopt;
    const FinishRowsArgs args{run,         total,           out.stride, add ? add->stride : 0, store.norm->eps,
                              store.scale, store.out_scale, 0};
    HC_ASSIGN(
        const Pipeline* pipeline,
        c.pipelines.get("rows", "finish_rows", uint32_t(kProjectThreads),
                        {constant(kConstantNorm, true), constant(kConstantNormWeight, store.norm->weight.has_value()),
                         constant(kConstantPending, false), constant(kConstantPendingWeight, false),
                         constant(kConstantAdd, add.has_value())}));
    StepEncoder& e = c.encoder;
    e.pipeline(*pipeline);
    const View part{y.buffer, y.offset + 4ull * column, 4ull * (uint64_t{c.rows.n - 1} * total + width)};
    e.read(0, part);
    e.constant(1, store.norm->weight ? c.places.vector(*store.norm->weight) : part);
    if (add)
      e.read(2, add->view);
    else
      e.constant(2, part);
    e.write(3, out.view);
    e.args(4, args);
    e.dispatch({width / run, c.rows.n}, {uint32_t(kProjectThreads)});
  }
  return {};
}

/// Whether an op touches x other than as its input.
bool touches(const program::Project& op, const Slice& x) {
  if (const auto* store = std::get_if<program::Store>(&op.ending))
    return (store->add && overlap(*store->add, x)) ||
           std::any_of(store->outs.begin(), store->outs.end(), [&](const Slice& out) { return overlap(out, x); });
  if (const auto* gate = std::get_if<program::Gate>(&op.ending))
    return overlap(gate->out, x) || (gate->operand && overlap(*gate->operand, x));
  const auto& residual = std::get<program::Residual>(op.ending);
  return !residual.post_norm && overlap(residual.x, x);
}

}  // namespace

bool same(const Slice& a, const Slice& b) { return a.buffer == b.buffer && a.column == b.column && a.width == b.width; }

Rows rows_of(const OpContext& c, const Slice& s) {
  const uint32_t stride = c.program.buffers[s.buffer].width;
  const View all = c.places.buffer(s.buffer);
  return {
      {all.buffer, all.offset + 4ull * s.column, 4ull * (uint64_t{c.rows.n - 1} * stride + s.width)}, s.width, stride};
}

PendingArgs pending_args(const OpContext& c, const PendingResidual& p) {
  return {p.ending.post_norm->eps, p.ending.branch_scale, p.ending.residual_scale,
          p.ending.x.width,        p.ending.x.width,      c.program.buffers[p.ending.x.buffer].width};
}

Result<void> launch_mat_vec(OpContext& c, const Launch& l) {
  const bool gate = l.ending.kind == kEndGate;
  const MatVecVariant variant =
      choose_mat_vec({total_rows(l.matrices), columns_of(c, l), l.batch, gate, l.input_norm.has_value()});
  auto [constants, args] = describe(c, l, uint32_t(kProjectSimdgroups) * variant.rows_per_simdgroup);
  constants.push_back(constant(kConstantRows, variant.rows_per_simdgroup));
  constants.push_back(constant(kConstantCachedParts, variant.cached_parts));
  HC_ASSIGN(const Pipeline* pipeline, c.pipelines.get("mat_vec", fmt::format("mat_vec_{}", variant.batch_tile),
                                                      uint32_t(kProjectThreads), constants));
  c.encoder.pipeline(*pipeline);
  bind(c, l, args);
  c.encoder.threadgroup_memory(0, 4 * mat_vec_memory(variant.batch_tile, variant.cached_parts));
  c.encoder.dispatch({args.flush_tile + (l.pending && l.flush ? 1u : 0u), ceil_div(l.batch, variant.batch_tile)},
                     {uint32_t(kProjectThreads)});
  return {};
}

void resolve(OpContext& c) {
  c.places.release(c.pending->y);
  c.pending.reset();
}

bool has_kernel(quant::Format format) {
  switch (uint32_t(format)) {
#define HC_CASE(id, F) case id:
    HC_METAL_FORMATS(HC_CASE)
#undef HC_CASE
    return true;
    default: return false;
  }
}

std::string lacks_kernel(const program::Program& program, const Matrix& matrix) {
  const program::Weight& w = program.weight(matrix);
  return has_kernel(w.format) ? "" : fmt::format("{}: metal has no kernel for {}", w.name, quant::to_string(w.format));
}

Result<void> norm_rows(OpContext& c, const Rows& in, const Norm& norm, const View& out) {
  return launch_prepare(c, in, nullptr, norm, out);
}

Result<void> multiply(OpContext& c, const Product& p) {
  Launch l{.in = p.in,
           .input_norm = {},
           .matrices = p.matrices,
           .biases = p.biases,
           .ending = {},
           .batch = c.rows.n,
           .gather = {}};
  l.ending.out[0] = p.out;
  if (p.activation) {
    l.ending.kind = kEndGate;
    l.ending.activation = *p.activation;
  }
  return c.rows.role == Role::kPrompt && !p.as_generated ? launch_mat_mul(c, l) : launch_mat_vec(c, l);
}

Result<void> flush_residual(OpContext& c) {
  if (!c.pending) return {};
  HC_TRY(launch_prepare(c, rows_of(c, c.pending->ending.x), &*c.pending, std::nullopt, {}));
  resolve(c);
  return {};
}

Result<void> encode(OpContext& c, const program::Project& op) {
  const bool prompt = c.rows.role == Role::kPrompt;
  const uint32_t total = total_rows(op.matrices);

  // What waits: of the input, of a buffer that this op leaves alone, or in the way.
  bool of_input = false;
  if (c.pending) {
    const Slice& x = c.pending->ending.x;
    const auto* residual = std::get_if<program::Residual>(&op.ending);
    of_input = same(op.in, x) && !touches(op, x) && !(residual && overlap(residual->x, x));
    if (!of_input && (prompt || touches(op, x) || overlap(op.in, x))) {
      HC_TRY(flush_residual(c));
    }
  }

  Launch l{.in = rows_of(c, op.in),
           .input_norm = op.input_norm,
           .matrices = op.matrices,
           .biases = op.biases,
           .ending = {},
           .batch = c.rows.n,
           .gather = {},
           .pending = c.pending ? &*c.pending : nullptr,
           .flush = c.pending && !of_input};
  View normed, raw;
  if (prompt && (op.input_norm || c.pending)) {
    if (op.input_norm) {
      HC_ASSIGN(normed, c.places.scratch(4ull * c.rows.n * op.in.width));
    }
    HC_TRY(launch_prepare(c, l.in, l.pending, op.input_norm, normed));
    if (op.input_norm) l.in = {{normed.buffer, normed.offset, 4ull * c.rows.n * op.in.width}, op.in.width, op.in.width};
    if (c.pending) resolve(c);
    l.pending = nullptr;
    l.input_norm.reset();
  }

  // ---- the ending
  const auto* store = std::get_if<program::Store>(&op.ending);
  const auto* residual = std::get_if<program::Residual>(&op.ending);
  if ((store && store->norm) || (residual && residual->post_norm)) {  // needs whole rows: y goes to scratch
    const uint64_t bytes = 4ull * c.rows.n * total;
    HC_ASSIGN(raw, c.places.scratch(bytes));
    uint32_t column = 0;
    for (size_t m = 0; m < op.matrices.size(); column += op.matrices[m].rows, ++m)
      l.ending.out[m] =
          Rows{{raw.buffer, raw.offset + 4ull * column, 4ull * (uint64_t{c.rows.n - 1} * total + op.matrices[m].rows)},
               op.matrices[m].rows,
               total};
  } else if (store) {
    l.ending.scale = store->scale;
    l.ending.out_scale = store->out_scale;
    if (store->add) l.ending.add = rows_of(c, *store->add);
    for (size_t m = 0; m < op.matrices.size(); ++m) l.ending.out[m] = rows_of(c, store->outs[m]);
  } else if (residual) {
    l.ending.kind = kEndResidual;
    l.ending.scale = residual->branch_scale;
    l.ending.out_scale = residual->residual_scale;
    l.ending.out[0] = rows_of(c, residual->x);
  } else {
    const auto& gate = std::get<program::Gate>(op.ending);
    l.ending.kind = gate.operand ? kEndGateOperand : kEndGate;
    l.ending.activation = gate.activation;
    if (gate.operand) l.ending.add = rows_of(c, *gate.operand);
    l.ending.out[0] = rows_of(c, gate.out);
  }
  HC_TRY(prompt ? launch_mat_mul(c, l) : launch_mat_vec(c, l));
  if (normed) c.places.release(normed);
  if (c.pending && l.flush) resolve(c);

  if (store && store->norm) {
    HC_TRY(launch_finish(c, op, *store, raw, total));
    c.places.release(raw);
  } else if (raw) {
    if (c.pending) HC_TRY(flush_residual(c));  // one of the input, which this launch has resolved for itself alone
    c.pending = PendingResidual{*residual, {raw.buffer, raw.offset, 4ull * c.rows.n * total}};
  }
  return {};
}

std::string obstacle(const program::Program& program, const program::Project& op) {
  for (const Matrix& m : op.matrices)
    if (std::string why = lacks_kernel(program, m); !why.empty()) return why;
  const bool reads_what_it_writes = std::visit(
      [&](const auto& ending) {
        using E = std::decay_t<decltype(ending)>;
        if constexpr (std::is_same_v<E, program::Store>)
          return !ending.norm && std::any_of(ending.outs.begin(), ending.outs.end(),
                                             [&](const Slice& out) { return overlap(out, op.in); });
        else if constexpr (std::is_same_v<E, program::Gate>)
          return overlap(ending.out, op.in);
        else
          return !ending.post_norm && overlap(ending.x, op.in);
      },
      op.ending);
  return reads_what_it_writes ? "the result overwrites the input, which other threadgroups still read" : "";
}

}  // namespace honeycrisp::backend::metal
