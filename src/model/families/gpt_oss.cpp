// gpt-oss (arXiv:2508.10925): a mixture of experts with biases everywhere, attention sinks, and windows on every other
// layer from the first. The rotation is stretched by YaRN, whose factor on cos and sin the rope table carries.
// post_attention_norm is the norm *before* the experts.
#include "model/decoder.h"
#include "model/families/families.h"
#include "model/mixture.h"
#include "model/rope.h"

#include <cmath>

namespace honeycrisp::model {

Result<void> build_gpt_oss(const FamilyInput& in) {
  const Config& c = in.config;
  HC_ASSIGN(const uint32_t window, in.hyper.require("attention.sliding_window", 1, 1u << 30));
  HC_ASSIGN(
      auto rope,
      read_rope(in, {.interleaved = false, .head_dim = c.key_dim[0], .default_base = 150000, .yarn_rounded = false}));
  const MixtureKind kind{.activation = program::Activation::kClampedSwiglu, .biases = true};
  HC_ASSIGN(const Mixture mixture, read_mixture(in.hyper, c, kind));

  AttentionOptions attention{.rope = in.builder.rope(std::move(rope)),
                             .scale = float(1 / std::sqrt(double(c.key_dim[0]))),
                             .qkv_bias = true,
                             .output_bias = true,
                             .sinks = true};
  const DecoderBuffers buffers = make_buffers(in.builder, c, {.feed_forward = false});
  HC_TRY(add_embedding(in.builder, c, buffers, 1));
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
    attention.window = layer % 2 == 0 ? window : 0;
    HC_TRY(add_attention(in.builder, c, buffers, layer, attention));
    HC_TRY(add_mixture(in.builder, c, buffers, layer, mixture, "post_attention_norm"));
  }
  return add_logits(in.builder, c, buffers, 0);
}

}  // namespace honeycrisp::model
