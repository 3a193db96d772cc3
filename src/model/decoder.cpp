#include "model/decoder.h"

#include <algorithm>

namespace honeycrisp::model {

using program::Matrix;
using program::Norm;
using program::Slice;

std::string layer_name(uint32_t layer, std::string_view suffix) { return fmt::format("blk.{}.{}", layer, suffix); }

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

Result<Norm> read_norm(Builder& builder, const Config& c, const std::string& name, uint32_t size) {
  HC_ASSIGN(const auto weight, builder.vector(name + ".weight", size));
  return Norm{weight, c.eps};
}

// attn_norm · [attn_q, attn_k, attn_v], as many of them as the layer has.
Result<program::Project> make_qkv(Builder& builder, const Config& c, const DecoderBuffers& buffers, uint32_t layer,
                                  const AttentionSlices& slices, bool has_k, bool has_v) {
  program::Project project{builder.whole(buffers.x), {}, {}, {}, {}};
  HC_ASSIGN(project.input_norm, read_norm(builder, c, layer_name(layer, "attn_norm"), c.width));
  program::Store store;
  const auto add = [&](const char* part, const Slice& out) -> Result<void> {
    HC_ASSIGN(const Matrix m, builder.matrix(layer_name(layer, part) + ".weight", c.width, out.width));
    HC_ASSIGN(const auto bias, builder.optional_vector(layer_name(layer, part) + ".bias", out.width));
    project.matrices.push_back(m);
    project.biases.push_back(bias);
    store.outs.push_back(out);
    return {};
  };
  HC_TRY(add("attn_q", slices.q));
  if (has_k) HC_TRY(add("attn_k", slices.k));
  if (has_v) HC_TRY(add("attn_v", slices.v));
  project.ending = std::move(store);
  return project;
}

}  // namespace

Result<program::CacheId> add_attention(Builder& builder, const Config& c, const DecoderBuffers& buffers, uint32_t layer,
                                       const AttentionOptions& options) {
  const auto name = [&](const char* suffix) { return layer_name(layer, suffix); };
  const AttentionSlices slices = attention_slices(c, buffers, layer, options.output_gate);
  const bool has_k = !options.shared_cache;
  const bool has_v = has_k && (!options.v_may_be_k || builder.has(name("attn_v.weight")));

  HC_ASSIGN(auto qkv, make_qkv(builder, c, buffers, layer, slices, has_k, has_v));
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
  if (options.qk_norm) {
    HC_ASSIGN(attend.q_norm, read_norm(builder, c, name("attn_q_norm"), c.key_dim[layer]));
    if (has_k) {
      HC_ASSIGN(attend.k_norm, read_norm(builder, c, name("attn_k_norm"), c.key_dim[layer]));
    }
  }
  if (options.v_norm && has_k) attend.v_norm = Norm{{}, c.eps};
  attend.rope = options.rope;
  attend.window = options.window;
  attend.scale = options.scale;
  attend.softcap = options.softcap;
  attend.output_gate = options.output_gate;
  if (options.sinks) {
    HC_ASSIGN(attend.sinks, builder.vector(name("attn_sinks.weight"), c.n_heads[layer]));
  }
  builder.step(name("attend"), layer, attend);

  program::Residual residual{builder.whole(buffers.x)};
  if (options.post_norm != nullptr) {
    HC_ASSIGN(residual.post_norm, read_norm(builder, c, name(options.post_norm), c.width));
  }
  HC_ASSIGN(const Matrix o, builder.matrix(name("attn_output.weight"), slices.out.width, c.width));
  HC_ASSIGN(const auto o_bias, builder.optional_vector(name("attn_output.bias"), c.width));
  builder.step(name("attn_output"), layer, program::Project{slices.out, {}, {o}, {o_bias}, residual});
  return attend.cache;
}

Result<void> add_feed_forward(Builder& builder, const Config& c, const DecoderBuffers& buffers, uint32_t layer,
                              const FeedForwardOptions& options) {
  const auto name = [&](const char* suffix) { return layer_name(layer, suffix); };
  const uint32_t ffn = c.ffn_width[layer];
  const Slice hidden{buffers.hidden, 0, ffn};

  HC_ASSIGN(const Norm norm, read_norm(builder, c, name(options.norm), c.width));
  HC_ASSIGN(const Matrix gate, builder.matrix(name("ffn_gate.weight"), c.width, ffn));
  HC_ASSIGN(const Matrix up, builder.matrix(name("ffn_up.weight"), c.width, ffn));
  HC_ASSIGN(const auto gate_bias, builder.optional_vector(name("ffn_gate.bias"), ffn));
  HC_ASSIGN(const auto up_bias, builder.optional_vector(name("ffn_up.bias"), ffn));
  builder.step(name("ffn_gate_up"), layer,
               program::Project{builder.whole(buffers.x),
                                norm,
                                {gate, up},
                                {gate_bias, up_bias},
                                program::Gate{options.activation, {}, hidden}});

  std::optional<Norm> post_norm;
  if (options.post_norm != nullptr) {
    HC_ASSIGN(post_norm, read_norm(builder, c, name(options.post_norm), c.width));
  }
  HC_ASSIGN(const Matrix down, builder.matrix(name("ffn_down.weight"), ffn, c.width));
  HC_ASSIGN(const auto down_bias, builder.optional_vector(name("ffn_down.bias"), c.width));
  program::Project project{hidden, {}, {down}, {down_bias}, {}};
  if (options.store_in)
    project.ending = program::Store{.outs = {*options.store_in}, .norm = post_norm};
  else
    project.ending = program::Residual{
        .x = builder.whole(buffers.x), .post_norm = post_norm, .residual_scale = options.residual_scale};
  builder.step(name("ffn_down"), layer, std::move(project));
  return {};
}

Result<void> add_logits(Builder& builder, const Config& c, const DecoderBuffers& buffers, float softcap) {
  HC_ASSIGN(const Norm norm, read_norm(builder, c, "output_norm", c.width));
  const char* table = builder.has("output.weight") ? "output.weight" : "token_embd.weight";
  HC_ASSIGN(const Matrix output, builder.matrix(table, c.width, c.vocabulary));
  builder.step("logits", {}, program::Logits{builder.whole(buffers.x), norm, output, 1, softcap});
  return {};
}

}  // namespace honeycrisp::model
