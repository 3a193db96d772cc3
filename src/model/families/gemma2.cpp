// Gemma 2 (arXiv:2408.00118): norms before and after both branches, GELU, softcaps on attention scores and logits,
// embeddings scaled by √width. Even layers slide. The norm weights in GGUF files already contain their +1.
#include "model/decoder.h"
#include "model/families/families.h"
#include "model/rope.h"

#include <cmath>

namespace honeycrisp::model {
namespace {

constexpr uint32_t kLayersOf27B = 46;  // whose query scale is 1/√(width / heads) instead of 1/√key_length

}  // namespace

Result<void> build_gemma2(const FamilyInput& in) {
  const Config& c = in.config;
  HC_ASSIGN(const uint32_t window, in.hyper.require("attention.sliding_window", 1, 1u << 30));
  HC_ASSIGN(auto rope, read_rope(in, {.interleaved = false, .head_dim = c.key_dim[0]}));
  HC_ASSIGN(const double attention_softcap, in.hyper.require_float("attn_logit_softcapping", 0, 1e9));
  HC_ASSIGN(const double final_softcap, in.hyper.require_float("final_logit_softcapping", 0, 1e9));

  const double head = c.n_layers == kLayersOf27B ? double(c.width) / c.n_heads[0] : double(c.key_dim[0]);
  AttentionOptions attention{.rope = in.builder.rope(std::move(rope)),
                             .scale = float(1 / std::sqrt(head)),
                             .softcap = float(attention_softcap),
                             .post_norm = "post_attention_norm"};
  const FeedForwardOptions feed_forward{.activation = program::Activation::kGeluTanh, .post_norm = "post_ffw_norm"};
  const DecoderBuffers buffers = make_buffers(in.builder, c);
  HC_TRY(add_embedding(in.builder, c, buffers, float(std::sqrt(double(c.width)))));
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
    attention.window = layer % 2 == 0 ? window : 0;
    HC_TRY(add_attention(in.builder, c, buffers, layer, attention));
    HC_TRY(add_feed_forward(in.builder, c, buffers, layer, feed_forward));
  }
  return add_logits(in.builder, c, buffers, float(final_softcap));
}

}  // namespace honeycrisp::model
