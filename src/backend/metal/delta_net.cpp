// DeltaNet as two launches: what rows can do side by side, and the recurrence, a threadgroup per head and run of rows.
#include "backend/metal/kernels/delta_net_args.h"
#include "backend/metal/op_encoder.h"
#include "backend/metal/project.h"
#include "base/checked.h"

#include <algorithm>
#include <array>

namespace honeycrisp::backend::metal {
namespace {

using program::DeltaNet;

constexpr uint32_t kMostColumns = 1024;  // a thread each

}  // namespace

std::string obstacle(const program::Program& program, const DeltaNet& op) {
  const program::StateLayer& layer = program.state(op);
  if (layer.value_dim > kMostColumns)
    return fmt::format("recurrent heads of {} values: Metal takes up to {}", layer.value_dim, kMostColumns);
  if (layer.floats() > UINT32_MAX) return "a recurrent state of more than 2^32 values";
  return "";
}

Result<void> encode(OpContext& c, const DeltaNet& op) {
  if (c.pending)
    for (const program::Slice& s : {op.qkv, op.z, op.alpha, op.beta, op.out})
      if (c.pending && c.pending->ending.x.buffer == s.buffer) HC_TRY(flush_residual(c));

  const program::StateLayer& layer = c.program.state(op);
  const Rows qkv = rows_of(c, op.qkv), z = rows_of(c, op.z), alpha = rows_of(c, op.alpha), beta = rows_of(c, op.beta),
             out = rows_of(c, op.out);
  const StateView state = c.places.state(op.state);
  const std::array<Constant, 7> constants = {constant(0, op.n_key_heads),
                                             constant(1, layer.n_heads),
                                             constant(2, layer.key_dim),
                                             constant(3, layer.value_dim),
                                             constant(4, layer.kernel_size),
                                             constant(5, op.grouped_heads),
                                             constant(6, op.norm.weight.has_value())};
  DeltaNetArgs args{};
  args.state_bytes = state.state_bytes;
  args.qkv_stride = qkv.stride;
  args.z_stride = z.stride;
  args.alpha_stride = alpha.stride;
  args.beta_stride = beta.stride;
  args.out_stride = out.stride;
  args.gate_run = op.gate_run;
  args.gate_stride = op.gate_stride;
  args.n_rows = c.rows.n;
  args.l2_eps = op.l2_eps;
  args.norm_eps = op.norm.eps;

  HC_ASSIGN(const View convolved, c.places.scratch(uint64_t{c.rows.n} * layer.channels * sizeof(float)));
  StepEncoder& e = c.encoder;
  HC_ASSIGN(const Pipeline* prepare, c.pipelines.get("delta_net", "delta_net_prepare", kSimdWidth, constants));
  e.pipeline(*prepare);
  e.read(0, qkv.view);
  e.constant(1, c.places.vector(op.conv));
  e.read(2, state.states);
  e.constant(3, c.rows.states);
  e.constant(4, c.rows.positions);
  e.write(5, convolved);
  e.args(6, args);
  e.dispatch({2 * op.n_key_heads + layer.n_heads, c.rows.n, 1}, {kSimdWidth, 1, 1});

  const uint32_t threads = round_up(layer.value_dim, kSimdWidth);
  HC_ASSIGN(const Pipeline* advance, c.pipelines.get("delta_net", "delta_net_advance", threads, constants));
  for (size_t first = 0; first < c.rows.runs.size(); first += HC_DELTA_NET_RUNS) {
    const size_t n = std::min<size_t>(HC_DELTA_NET_RUNS, c.rows.runs.size() - first);
    for (size_t i = 0; i < n; ++i) {
      const PartRows::Run& run = c.rows.runs[first + i];
      args.runs[i] = {run.first_row, run.n_rows};
    }
    e.pipeline(*advance);
    e.read(0, qkv.view);
    e.read(1, convolved);
    e.write(2, state.states);
    e.constant(3, c.rows.states);
    e.constant(4, c.rows.positions);
    e.read(5, z.view);
    e.read(6, alpha.view);
    e.read(7, beta.view);
    e.constant(8, c.places.vector(op.a));
    e.constant(9, c.places.vector(op.dt_bias));
    if (op.norm.weight) e.constant(10, c.places.vector(*op.norm.weight));
    e.write(11, out.view);
    e.args(12, args);
    e.dispatch({layer.n_heads + 1, uint32_t(n), 1}, {threads, 1, 1});
  }
  c.places.release(convolved);
  return {};
}

}  // namespace honeycrisp::backend::metal
