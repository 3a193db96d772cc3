// gpt-oss (arXiv:2508.10925): a mixture of experts with biases everywhere, attention sinks, and windows on every other
// layer from the first. The rotation is stretched by YaRN, whose factor on cos and sin the rope table carries.
// post_attention_norm is the norm *before* the experts.
#include "model/decoder.h"
#include "model/families/families.h"
#include "model/mixture.h"
#include "model/rope.h"

#include <cmath>

namespace honeycrisp::model {
namespace {

constexpr uint32_t kPattern = 2;  // every other layer attends to everything

}  // namespace

Result<void> build_gpt_oss(const FamilyInput& in) {
  const Config& c = in.config;
  HC_ASSIGN(const uint32_t window, in.hyper.require("attention.sliding_window", 1, 1u << 30));
  HC_ASSIGN(const std::vector<bool> sliding, read_sliding(in.hyper, c.n_layers, kPattern));
  RopeSource source{.interleaved = false, .head_dim = c.key_dim[0], .default_base = 150000, .yarn_rounded = false};
  HC_ASSIGN(auto table, read_rope(in, source));
  const program::RopeId full_rope = in.builder.rope(std::move(table));
  program::RopeId sliding_rope = full_rope;
  if (in.hyper.has("rope.freq_base_swa")) {
    source.base_key = "rope.freq_base_swa";
    HC_ASSIGN(auto slides, read_rope(in, source));
    sliding_rope = in.builder.rope(std::move(slides));
  }
  const MixtureKind kind{.activation = program::Activation::kClampedSwiglu, .biases = true};
  HC_ASSIGN(const Mixture mixture, read_mixture(in.hyper, c, kind));

  AttentionOptions attention{
      .scale = float(1 / std::sqrt(double(c.key_dim[0]))), .qkv_bias = true, .output_bias = true, .sinks = true};
  const DecoderBuffers buffers = make_buffers(in.builder, c, {.feed_forward = false});
  HC_TRY(add_embedding(in.builder, c, buffers, 1));
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
    attention.window = sliding[layer] ? window : 0;
    attention.rope = sliding[layer] ? sliding_rope : full_rope;
    HC_TRY(add_attention(in.builder, c, buffers, layer, attention));
    HC_TRY(add_mixture(in.builder, c, buffers, layer, mixture, "post_attention_norm"));
  }
  return add_logits(in.builder, c, buffers, 0);
}

}  // namespace honeycrisp::model
