// The parts that decoder-only families share, as building blocks over Builder: embedding, attention block, gated
// feed-forward block, logits. A family chooses among their options; what only one family does stays in its file.
#pragma once

#include "base/result.h"
#include "model/builder.h"
#include "model/config.h"
#include "program/program.h"

#include <optional>
#include <string>

namespace honeycrisp::model {

/// The buffers that a decoder passes its activations through.
struct DecoderBuffers {
  program::BufferId x;       // [width] residual stream
  program::BufferId qkv;     // [q | k | v] of the widest layer
  program::BufferId attn;    // [n_heads · value_dim]
  program::BufferId hidden;  // [ffn_width] of the widest layer; only with a dense feed-forward block
};
struct BufferOptions {
  bool output_gate = false;  // q is twice as wide
  bool feed_forward = true;  // some layer has a dense feed-forward block
};
DecoderBuffers make_buffers(Builder& builder, const Config& config, const BufferOptions& options = {});

/// x = scale · embedding of the token.
Result<void> add_embedding(Builder& builder, const Config& config, const DecoderBuffers& buffers, float scale);

struct AttentionOptions {
  std::optional<program::RopeId> rope;
  uint32_t window = 0;
  float scale = 1;
  std::optional<program::Temperature> temperature;
  float softcap = 0;
  bool qk_norm = false;                          // attn_q_norm, attn_k_norm [key_dim] before rope
  bool qk_norm_whole = false;                    // the same over all heads together: [n_heads · key_dim]
  bool v_norm = false;                           // weightless
  bool v_may_be_k = false;                       // where attn_v is absent, V is K before norm and rope
  bool output_gate = false;                      // attn_q holds [query, gate] per head
  bool qkv_bias = false, output_bias = false;    // must be there
  bool sinks = false;                            // attn_sinks [n_heads]
  std::optional<program::CacheId> shared_cache;  // set: no K and V of its own, reads this layer's
  const char* norm = "attn_norm";                // suffix of the norm before the block; null: none
  const char* post_norm = nullptr;               // of a norm after the output projection, e.g. "post_attention_norm"
  float branch_scale = 1;                        // of what is added to the residual stream
};
/// norm → attn_q/k/v, or rows of one attn_qkv (biases where the file has them, in all layers) → attend → attn_output →
/// residual. Gives the cache layer used.
Result<program::CacheId> add_attention(Builder& builder, const Config& config, const DecoderBuffers& buffers,
                                       uint32_t layer, const AttentionOptions& options);

struct FeedForwardOptions {
  program::Activation activation = program::Activation::kSilu;
  bool fused_gate_up = false;              // ffn_up holds the gate's rows, then its own
  const char* norm = "ffn_norm";           // before the block; null: none
  const char* post_norm = nullptr;         // e.g. "post_ffw_norm"
  float branch_scale = 1;                  // of what is added to the residual stream
  float residual_scale = 1;                // of the sum, at the end of the block
  std::optional<program::Slice> store_in;  // set: post_norm(ffn_down) is stored here, x stays as it is
};
/// norm → activation(ffn_gate) · ffn_up → ffn_down → residual.
Result<void> add_feed_forward(Builder& builder, const Config& config, const DecoderBuffers& buffers, uint32_t layer,
                              const FeedForwardOptions& options);

/// output_norm → output.weight, or the embedding table where that is absent (tied); scale · softcap(…).
Result<void> add_logits(Builder& builder, const Config& config, const DecoderBuffers& buffers, float softcap,
                        float scale = 1);

/// "blk.<layer>.<suffix>"
std::string layer_name(uint32_t layer, std::string_view suffix);

/// The norm whose weight is "<name>.weight" [size], with the model's epsilon.
Result<program::Norm> read_norm(Builder& builder, const Config& config, const std::string& name, uint32_t size);

}  // namespace honeycrisp::model
