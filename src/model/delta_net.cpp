#include "model/delta_net.h"

namespace honeycrisp::model {

using program::Matrix;
using program::Slice;

namespace {

constexpr uint32_t kMaxTaps = 64;
constexpr uint32_t kDefaultInterval = 4;  // every fourth layer attends

Result<std::vector<bool>> read_recurrent(const HyperParameters& hyper, uint32_t n_layers) {
  constexpr const char* kKey = "attention.recurrent_layers";
  std::vector<bool> recurrent(n_layers);
  if (hyper.has(kKey)) {
    HC_ASSIGN(const auto flags, hyper.per_layer(kKey, n_layers, 0, 1));
    for (uint32_t i = 0; i < n_layers; ++i) recurrent[i] = flags[i] == 1;
    return recurrent;
  }
  HC_ASSIGN(const uint32_t interval, hyper.get("full_attention_interval", kDefaultInterval, 1, 1u << 16));
  for (uint32_t i = 0; i < n_layers; ++i) recurrent[i] = (i + 1) % interval != 0;
  return recurrent;
}

}  // namespace

Result<DeltaShape> read_delta_shape(const HyperParameters& hyper, const Config& c, HeadOrder order) {
  DeltaShape s{.order = order};
  HC_ASSIGN(s.n_key_heads, hyper.require("ssm.group_count", 1, kMaxHeads));
  HC_ASSIGN(s.n_heads, hyper.require("ssm.time_step_rank", 1, kMaxHeads));
  HC_ASSIGN(s.key_dim, hyper.require("ssm.state_size", 1, kMaxHeadDim));
  HC_ASSIGN(const uint32_t values, hyper.require("ssm.inner_size", 1, kMaxHeads * kMaxHeadDim));
  HC_ASSIGN(s.kernel_size, hyper.require("ssm.conv_kernel", 1, kMaxTaps));
  if (s.n_heads % s.n_key_heads != 0)
    return invalid("{}: {} is no multiple of {} = {}", hyper.key("ssm.time_step_rank"), s.n_heads,
                   hyper.key("ssm.group_count"), s.n_key_heads);
  if (values % s.n_heads != 0)
    return invalid("{}: {} is no multiple of {} = {}", hyper.key("ssm.inner_size"), values,
                   hyper.key("ssm.time_step_rank"), s.n_heads);
  s.value_dim = values / s.n_heads;
  HC_ASSIGN(s.recurrent, read_recurrent(hyper, c.n_layers));
  return s;
}

DeltaBuffers make_delta_buffers(Builder& builder, const DeltaShape& s) {
  return {builder.buffer("delta_in", uint64_t{s.channels()} + s.values() + 2 * s.n_heads),
          builder.buffer("delta_out", s.values())};
}

namespace {

// An early converter's ssm_in holds the rows of q, k, v and z key head by key head: [q | k | v of its value heads | z
// of theirs]. One step per key head puts them where the others expect them.
Result<void> add_interleaved(Builder& builder, const Config& c, const DecoderBuffers& buffers,
                             const DeltaBuffers& delta_buffers, uint32_t layer, const DeltaShape& s,
                             const program::Norm& norm) {
  const uint32_t keys = s.key_dim, values = s.heads_per_key() * s.value_dim;
  HC_ASSIGN(const Matrix all,
            builder.matrix(layer_name(layer, "ssm_in.weight"), c.width, uint64_t{s.channels()} + s.values()));
  uint32_t row = 0;
  for (uint32_t head = 0; head < s.n_key_heads; ++head) {
    program::Project project{builder.whole(buffers.x), norm, {}, {}, {}};
    program::Store store;
    const auto add = [&](uint32_t column, uint32_t rows) {
      project.matrices.push_back({all.weight, row, rows});
      project.biases.emplace_back();
      store.outs.push_back({delta_buffers.in, column, rows});
      row += rows;
    };
    add(head * keys, keys);
    add(s.keys() + head * keys, keys);
    add(2 * s.keys() + head * values, values);
    add(s.channels() + head * values, values);
    project.ending = std::move(store);
    builder.step(layer_name(layer, fmt::format("delta_in.{}", head)), layer, std::move(project));
  }
  return {};
}

}  // namespace

Result<void> add_delta_net(Builder& builder, const Config& c, const DecoderBuffers& buffers,
                           const DeltaBuffers& delta_buffers, uint32_t layer, const DeltaShape& s) {
  const auto name = [&](const char* suffix) { return layer_name(layer, suffix); };
  const auto columns = [&](uint32_t first, uint32_t width) { return Slice{delta_buffers.in, first, width}; };
  const uint32_t channels = s.channels(), values = s.values(), gates = channels + values;

  program::DeltaNet d;
  d.n_key_heads = s.n_key_heads;
  d.qkv = columns(0, channels);
  d.z = columns(channels, values);
  d.out = builder.whole(delta_buffers.out);

  program::Project project{builder.whole(buffers.x), {}, {}, {}, {}};
  HC_ASSIGN(project.input_norm, read_norm(builder, c, name("attn_norm"), c.width));
  program::Store store;
  const auto add = [&](const char* tensor, const Slice& out) -> Result<void> {
    HC_ASSIGN(const Matrix m, builder.matrix(name(tensor), c.width, out.width));
    project.matrices.push_back(m);
    project.biases.emplace_back();
    store.outs.push_back(out);
    return {};
  };
  if (s.order == HeadOrder::kGrouped && builder.has_in_layers(name("ssm_in.weight"))) {
    HC_TRY(add_interleaved(builder, c, buffers, delta_buffers, layer, s, *project.input_norm));
  } else {
    HC_TRY(add("attn_qkv.weight", d.qkv));
    HC_TRY(add("attn_gate.weight", d.z));
  }
  if (s.order == HeadOrder::kTiled) {
    d.gate_run = d.gate_stride = s.n_heads;
    d.alpha = columns(gates, s.n_heads);
    d.beta = columns(gates + s.n_heads, s.n_heads);
    HC_TRY(add("ssm_alpha.weight", d.alpha));
    HC_TRY(add("ssm_beta.weight", d.beta));
  } else {
    // Per key head [beta of its value heads, alpha of its value heads].
    d.grouped_heads = true;
    d.gate_run = s.heads_per_key();
    d.gate_stride = 2 * d.gate_run;
    d.beta = columns(gates, 2 * s.n_heads - d.gate_run);
    d.alpha = columns(gates + d.gate_run, 2 * s.n_heads - d.gate_run);
    HC_TRY(add("ssm_ba.weight", columns(gates, 2 * s.n_heads)));
  }
  project.ending = std::move(store);
  builder.step(name("delta_in"), layer, std::move(project));

  d.state = builder.state({s.n_heads, s.key_dim, s.value_dim, channels, s.kernel_size});
  HC_ASSIGN(d.conv, builder.vector(name("ssm_conv1d.weight"), s.kernel_size, channels));
  HC_ASSIGN(d.a, builder.vector(name("ssm_a"), s.n_heads));
  HC_ASSIGN(d.dt_bias, builder.vector(name("ssm_dt.bias"), s.n_heads));
  HC_ASSIGN(d.norm, read_norm(builder, c, name("ssm_norm"), s.value_dim));
  builder.step(name("delta_net"), layer, d);

  HC_ASSIGN(const Matrix o, builder.matrix(name("ssm_out.weight"), values, c.width));
  builder.step(name("ssm_out"), layer,
               program::Project{d.out, {}, {o}, {{}}, program::Residual{builder.whole(buffers.x)}});
  return {};
}

}  // namespace honeycrisp::model
