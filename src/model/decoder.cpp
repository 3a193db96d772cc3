#include "model/decoder.h"

#include <algorithm>

namespace honeycrisp::model {

using program::Matrix;
using program::Norm;
using program::Slice;

std::string layer_name(uint32_t layer, std::string_view suffix) { return fmt::format("blk.{}.{}", layer, suffix); }

Result<Norm> read_norm(Builder& builder, const Config& c, const std::string& name, uint32_t size) {
  HC_ASSIGN(const auto weight, builder.vector(name + ".weight", size));
  return Norm{weight, c.eps};
}

DecoderBuffers make_buffers(Builder& builder, const Config& c, const BufferOptions& options) {
  uint64_t qkv = 0, attn = 0, hidden = 0;
  for (uint32_t i = 0; i < c.n_layers; ++i) {
    qkv = std::max(qkv, uint64_t{c.n_heads[i]} * c.key_dim[i] * (options.output_gate ? 2 : 1) +
                            uint64_t{c.n_kv_heads[i]} * (c.key_dim[i] + c.value_dim[i]));
    attn = std::max(attn, uint64_t{c.n_heads[i]} * c.value_dim[i]);
    hidden = std::max(hidden, uint64_t{c.ffn_width[i]});
  }
  return {builder.buffer("x", c.width), builder.buffer("qkv", qkv), builder.buffer("attn", attn),
          options.feed_forward ? builder.buffer("hidden", hidden) : program::BufferId()};
}

Result<void> add_embedding(Builder& builder, const Config& c, const DecoderBuffers& buffers, float scale) {
  HC_ASSIGN(const Matrix table, builder.matrix("token_embd.weight", c.width, c.vocabulary));
  builder.step("embed", {}, program::Embed{table, builder.whole(buffers.x), scale});
  return {};
}

namespace {

// The columns of one layer in the shared buffers.
struct AttentionSlices {
  Slice q, k, v, out;
};

AttentionSlices attention_slices(const Config& c, const DecoderBuffers& buffers, uint32_t layer, bool output_gate) {
  const uint32_t q = c.n_heads[layer] * c.key_dim[layer] * (output_gate ? 2 : 1),
                 k = c.n_kv_heads[layer] * c.key_dim[layer], v = c.n_kv_heads[layer] * c.value_dim[layer],
                 out = c.n_heads[layer] * c.value_dim[layer];
  return {{buffers.qkv, 0, q}, {buffers.qkv, q, k}, {buffers.qkv, q + k, v}, {buffers.attn, 0, out}};
}

struct Linear {
  Matrix matrix;
  std::optional<program::VectorId> bias;  // where the file has one
};

// Rows [first, first + rows) of the tensor `name` of [total][cols].
Result<Linear> read_rows(Builder& builder, const std::string& name, uint32_t cols, uint32_t total, uint32_t first,
                         uint32_t rows, bool needs_bias = false) {
  HC_ASSIGN(Matrix matrix, builder.matrix(name + ".weight", cols, total));
  matrix.first_row = first;
  matrix.rows = rows;
  const std::string bias = name + ".bias";
  if (!needs_bias && !builder.has_in_layers(bias)) return Linear{matrix, {}};
  if (rows == total) {
    HC_ASSIGN(const auto vector, builder.vector(bias, total));
    return Linear{matrix, vector};
  }
  HC_ASSIGN(const std::vector<float> values, builder.values(bias, total));
  const std::vector<float> part(values.begin() + first, values.begin() + first + rows);
  return Linear{matrix, builder.computed_vector(fmt::format("{}[{}:{}]", bias, first, first + rows), part)};
}
Result<Linear> read_linear(Builder& builder, const std::string& name, uint32_t cols, uint32_t rows,
                           bool needs_bias = false) {
  return read_rows(builder, name, cols, rows, 0, rows, needs_bias);
}

bool has_fused_qkv(const Builder& builder, uint32_t layer) { return builder.has(layer_name(layer, "attn_qkv.weight")); }

// norm · [attn_q, attn_k, attn_v], as many of them as the layer has; one tensor each, or rows of attn_qkv.
Result<program::Project> make_qkv(Builder& builder, const Config& c, const DecoderBuffers& buffers, uint32_t layer,
                                  const AttentionSlices& slices, const AttentionOptions& options, bool has_k,
                                  bool has_v) {
  program::Project project{builder.whole(buffers.x), {}, {}, {}, {}};
  if (options.norm != nullptr) {
    HC_ASSIGN(project.input_norm, read_norm(builder, c, layer_name(layer, options.norm), c.width));
  }
  const bool fused = has_fused_qkv(builder, layer);
  const uint32_t total = slices.q.width + slices.k.width + slices.v.width;
  program::Store store;
  const auto add = [&](const char* part, const Slice& out) -> Result<void> {
    const std::string name = layer_name(layer, part), all = layer_name(layer, "attn_qkv");
    if (!fused && !builder.has(name + ".weight"))
      return invalid("tensor '{}.weight' is missing, and there is no '{}.weight' that holds it", name, all);
    auto linear = fused ? read_rows(builder, all, c.width, total, out.column, out.width, options.qkv_bias)
                        : read_linear(builder, name, c.width, out.width, options.qkv_bias);
    HC_ASSIGN(const Linear l, std::move(linear));
    project.matrices.push_back(l.matrix);
    project.biases.push_back(l.bias);
    store.outs.push_back(out);
    return {};
  };
  HC_TRY(add("attn_q", slices.q));
  if (has_k) HC_TRY(add("attn_k", slices.k));
  if (has_v) HC_TRY(add("attn_v", slices.v));
  project.ending = std::move(store);
  return project;
}

Result<program::Residual> make_residual(Builder& builder, const Config& c, const DecoderBuffers& buffers,
                                        uint32_t layer, float branch_scale, const char* post_norm) {
  program::Residual residual{.x = builder.whole(buffers.x), .branch_scale = branch_scale};
  if (post_norm != nullptr) {
    HC_ASSIGN(residual.post_norm, read_norm(builder, c, layer_name(layer, post_norm), c.width));
  }
  return residual;
}

}  // namespace

Result<program::CacheId> add_attention(Builder& builder, const Config& c, const DecoderBuffers& buffers, uint32_t layer,
                                       const AttentionOptions& options) {
  const auto name = [&](const char* suffix) { return layer_name(layer, suffix); };
  const AttentionSlices slices = attention_slices(c, buffers, layer, options.output_gate);
  const bool has_k = !options.shared_cache;
  const bool has_v =
      has_k && (!options.v_may_be_k || builder.has_in_layers(name("attn_v.weight")) || has_fused_qkv(builder, layer));

  HC_ASSIGN(auto qkv, make_qkv(builder, c, buffers, layer, slices, options, has_k, has_v));
  builder.step(name("qkv"), layer, std::move(qkv));

  program::Attend attend;
  attend.n_heads = c.n_heads[layer];
  attend.q = slices.q;
  if (has_k) attend.k = slices.k;
  if (has_v) attend.v = slices.v;
  attend.out = slices.out;
  attend.cache = options.shared_cache
                     ? *options.shared_cache
                     : builder.cache({c.n_kv_heads[layer], c.key_dim[layer], c.value_dim[layer], options.window});
  if (options.qk_norm || options.qk_norm_whole) {
    const bool whole = attend.norm_whole_projection = options.qk_norm_whole;
    const uint32_t head = c.key_dim[layer];
    HC_ASSIGN(attend.q_norm, read_norm(builder, c, name("attn_q_norm"), whole ? slices.q.width : head));
    if (has_k) {
      HC_ASSIGN(attend.k_norm, read_norm(builder, c, name("attn_k_norm"), whole ? slices.k.width : head));
    }
  }
  if (options.v_norm && has_k) attend.v_norm = Norm{{}, c.eps};
  attend.rope = options.rope;
  attend.window = options.window;
  attend.scale = options.scale;
  attend.temperature = options.temperature;
  attend.softcap = options.softcap;
  attend.output_gate = options.output_gate;
  if (options.sinks) {
    HC_ASSIGN(attend.sinks, builder.vector(name("attn_sinks.weight"), c.n_heads[layer]));
  }
  builder.step(name("attend"), layer, attend);

  HC_ASSIGN(const auto residual, make_residual(builder, c, buffers, layer, options.branch_scale, options.post_norm));
  HC_ASSIGN(const Linear o, read_linear(builder, name("attn_output"), slices.out.width, c.width, options.output_bias));
  builder.step(name("attn_output"), layer, program::Project{slices.out, {}, {o.matrix}, {o.bias}, residual});
  return attend.cache;
}

Result<void> add_feed_forward(Builder& builder, const Config& c, const DecoderBuffers& buffers, uint32_t layer,
                              const FeedForwardOptions& options) {
  const auto name = [&](const char* suffix) { return layer_name(layer, suffix); };
  const uint32_t ffn = c.ffn_width[layer];
  const Slice hidden{buffers.hidden, 0, ffn};

  std::optional<Norm> norm;
  if (options.norm != nullptr) {
    HC_ASSIGN(norm, read_norm(builder, c, name(options.norm), c.width));
  }
  auto gate_rows = options.fused_gate_up ? read_rows(builder, name("ffn_up"), c.width, 2 * ffn, 0, ffn)
                                         : read_linear(builder, name("ffn_gate"), c.width, ffn);
  HC_ASSIGN(const Linear gate, std::move(gate_rows));
  auto up_rows = options.fused_gate_up ? read_rows(builder, name("ffn_up"), c.width, 2 * ffn, ffn, ffn)
                                       : read_linear(builder, name("ffn_up"), c.width, ffn);
  HC_ASSIGN(const Linear up, std::move(up_rows));
  builder.step(name("ffn_gate_up"), layer,
               program::Project{builder.whole(buffers.x),
                                norm,
                                {gate.matrix, up.matrix},
                                {gate.bias, up.bias},
                                program::Gate{options.activation, {}, hidden}});

  HC_ASSIGN(auto residual, make_residual(builder, c, buffers, layer, options.branch_scale, options.post_norm));
  residual.residual_scale = options.residual_scale;
  HC_ASSIGN(const Linear down, read_linear(builder, name("ffn_down"), ffn, c.width));
  program::Project project{hidden, {}, {down.matrix}, {down.bias}, residual};
  if (options.store_in) project.ending = program::Store{.outs = {*options.store_in}, .norm = residual.post_norm};
  builder.step(name("ffn_down"), layer, std::move(project));
  return {};
}

Result<void> add_logits(Builder& builder, const Config& c, const DecoderBuffers& buffers, float softcap, float scale) {
  HC_ASSIGN(const Norm norm, read_norm(builder, c, "output_norm", c.width));
  const char* table = builder.has("output.weight") ? "output.weight" : "token_embd.weight";
  HC_ASSIGN(const Matrix output, builder.matrix(table, c.width, c.vocabulary));
  builder.step("logits", {}, program::Logits{builder.whole(buffers.x), norm, output, scale, softcap});
  return {};
}

}  // namespace honeycrisp::model
