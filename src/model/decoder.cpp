#include "model/decoder.h"

#include <algorithm>

namespace honeycrisp::model {

using program::Matrix;
using program::Norm;
using program::Slice;

std::string layer_name(uint32_t layer, std::string_view suffix) { return fmt::format("blk.{}.{}", layer, suffix); }

DecoderBuffers make_buffers(Builder& builder, const Config& c) {
  uint64_t qkv = 0, attn = 0, hidden = 0;
  for (uint32_t i = 0; i < c.n_layers; ++i) {
    qkv = std::max(qkv, uint64_t{c.n_heads[i]} * c.key_dim + uint64_t{c.n_kv_heads[i]} * (c.key_dim + c.value_dim));
    attn = std::max(attn, uint64_t{c.n_heads[i]} * c.value_dim);
    hidden = std::max(hidden, uint64_t{c.ffn_width[i]});
  }
  return {builder.buffer("x", c.width), builder.buffer("qkv", qkv), builder.buffer("attn", attn),
          builder.buffer("hidden", hidden)};
}

Result<void> add_embedding(Builder& builder, const Config& c, const DecoderBuffers& buffers, float scale) {
  HC_ASSIGN(const Matrix table, builder.matrix("token_embd.weight", c.width, c.vocabulary));
  builder.step("embed", {}, program::Embed{table, builder.whole(buffers.x), scale});
  return {};
}

Result<void> add_attention(Builder& builder, const Config& c, const DecoderBuffers& buffers, uint32_t layer,
                           const AttentionOptions& options) {
  const auto name = [&](const char* suffix) { return layer_name(layer, suffix); };
  const uint32_t q_width = c.n_heads[layer] * c.key_dim, k_width = c.n_kv_heads[layer] * c.key_dim,
                 v_width = c.n_kv_heads[layer] * c.value_dim, out_width = c.n_heads[layer] * c.value_dim;
  const Slice q{buffers.qkv, 0, q_width}, k{buffers.qkv, q_width, k_width}, v{buffers.qkv, q_width + k_width, v_width},
      out{buffers.attn, 0, out_width};

  program::Project project{builder.whole(buffers.x), {}, {}, {}, program::Store{{q, k, v}}};
  HC_ASSIGN(const auto norm, builder.vector(name("attn_norm.weight"), c.width));
  project.input_norm = Norm{norm, c.eps};
  const std::pair<const char*, uint32_t> parts[] = {{"attn_q", q_width}, {"attn_k", k_width}, {"attn_v", v_width}};
  for (const auto& [part, rows] : parts) {
    HC_ASSIGN(const Matrix m, builder.matrix(name(part) + ".weight", c.width, rows));
    HC_ASSIGN(const auto bias, builder.optional_vector(name(part) + ".bias", rows));
    project.matrices.push_back(m);
    project.biases.push_back(bias);
  }
  builder.step(name("qkv"), layer, std::move(project));

  program::Attend attend;
  attend.n_heads = c.n_heads[layer];
  attend.q = q;
  attend.k = k;
  attend.v = v;
  attend.out = out;
  attend.cache = builder.cache({c.n_kv_heads[layer], c.key_dim, c.value_dim, options.window});
  if (options.qk_norm) {
    HC_ASSIGN(const auto q_norm, builder.vector(name("attn_q_norm.weight"), c.key_dim));
    HC_ASSIGN(const auto k_norm, builder.vector(name("attn_k_norm.weight"), c.key_dim));
    attend.q_norm = Norm{q_norm, c.eps};
    attend.k_norm = Norm{k_norm, c.eps};
  }
  attend.rope = options.rope;
  attend.window = options.window;
  attend.scale = options.scale;
  attend.softcap = options.softcap;
  builder.step(name("attend"), layer, attend);

  program::Residual residual{builder.whole(buffers.x)};
  if (options.post_norm != nullptr) {
    HC_ASSIGN(const auto post, builder.vector(name(options.post_norm) + ".weight", c.width));
    residual.post_norm = Norm{post, c.eps};
  }
  HC_ASSIGN(const Matrix o, builder.matrix(name("attn_output.weight"), out_width, c.width));
  HC_ASSIGN(const auto o_bias, builder.optional_vector(name("attn_output.bias"), c.width));
  builder.step(name("attn_output"), layer, program::Project{out, {}, {o}, {o_bias}, residual});
  return {};
}

Result<void> add_feed_forward(Builder& builder, const Config& c, const DecoderBuffers& buffers, uint32_t layer,
                              const FeedForwardOptions& options) {
  const auto name = [&](const char* suffix) { return layer_name(layer, suffix); };
  const uint32_t ffn = c.ffn_width[layer];
  const Slice hidden{buffers.hidden, 0, ffn};

  HC_ASSIGN(const auto norm, builder.vector(name("ffn_norm.weight"), c.width));
  HC_ASSIGN(const Matrix gate, builder.matrix(name("ffn_gate.weight"), c.width, ffn));
  HC_ASSIGN(const Matrix up, builder.matrix(name("ffn_up.weight"), c.width, ffn));
  HC_ASSIGN(const auto gate_bias, builder.optional_vector(name("ffn_gate.bias"), ffn));
  HC_ASSIGN(const auto up_bias, builder.optional_vector(name("ffn_up.bias"), ffn));
  builder.step(name("ffn_gate_up"), layer,
               program::Project{builder.whole(buffers.x),
                                Norm{norm, c.eps},
                                {gate, up},
                                {gate_bias, up_bias},
                                program::Gate{options.activation, {}, hidden}});

  program::Residual residual{builder.whole(buffers.x)};
  if (options.post_norm != nullptr) {
    HC_ASSIGN(const auto post, builder.vector(name(options.post_norm) + ".weight", c.width));
    residual.post_norm = Norm{post, c.eps};
  }
  HC_ASSIGN(const Matrix down, builder.matrix(name("ffn_down.weight"), ffn, c.width));
  HC_ASSIGN(const auto down_bias, builder.optional_vector(name("ffn_down.bias"), c.width));
  builder.step(name("ffn_down"), layer, program::Project{hidden, {}, {down}, {down_bias}, residual});
  return {};
}

Result<void> add_logits(Builder& builder, const Config& c, const DecoderBuffers& buffers, float softcap) {
  HC_ASSIGN(const auto norm, builder.vector("output_norm.weight", c.width));
  const char* table = builder.has("output.weight") ? "output.weight" : "token_embd.weight";
  HC_ASSIGN(const Matrix output, builder.matrix(table, c.width, c.vocabulary));
  builder.step("logits", {}, program::Logits{builder.whole(buffers.x), Norm{norm, c.eps}, output, 1, softcap});
  return {};
}

}  // namespace honeycrisp::model
