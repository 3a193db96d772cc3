// Qwen3.5 and Qwen3-Next: gated delta rule in most layers, in every fourth attention with a gate on its output and a
// partial rotation. Qwen3.5's feed-forward is dense or a mixture, Qwen3-Next's a mixture, both with a shared expert.
// post_attention_norm is the norm *before* the feed-forward. rope.dimension_sections spreads positions in space; in
// text all of them are the same. Facts beyond the files: the `transformers` implementations.
#include "model/decoder.h"
#include "model/delta_net.h"
#include "model/families/families.h"
#include "model/mixture.h"
#include "model/rope.h"

#include <cmath>

namespace honeycrisp::model {
namespace {

constexpr const char* kFeedForwardNorm = "post_attention_norm";

Result<void> build(const FamilyInput& in, HeadOrder order, bool has_experts) {
  const Config& c = in.config;
  HC_ASSIGN(auto rope, read_rope(in, {.interleaved = false, .head_dim = c.key_dim[0], .default_base = 10000000}));
  HC_ASSIGN(const DeltaShape delta, read_delta_shape(in.hyper, c, order));
  Mixture mixture;
  if (has_experts) {
    HC_ASSIGN(mixture, read_mixture(in.hyper, c, MixtureKind{.shared = true}));
  }

  const AttentionOptions attention{.rope = in.builder.rope(std::move(rope)),
                                   .scale = float(1 / std::sqrt(double(c.key_dim[0]))),
                                   .qk_norm = true,
                                   .output_gate = true};
  const DecoderBuffers buffers = make_buffers(in.builder, c, {.output_gate = true, .feed_forward = !has_experts});
  const DeltaBuffers delta_buffers = make_delta_buffers(in.builder, delta);
  HC_TRY(add_embedding(in.builder, c, buffers, 1));
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
    if (delta.recurrent[layer]) {
      HC_TRY(add_delta_net(in.builder, c, buffers, delta_buffers, layer, delta));
    } else {
      HC_TRY(add_attention(in.builder, c, buffers, layer, attention));
    }
    HC_TRY(has_experts ? add_mixture(in.builder, c, buffers, layer, mixture, kFeedForwardNorm)
                       : add_feed_forward(in.builder, c, buffers, layer, {.norm = kFeedForwardNorm}));
  }
  return add_logits(in.builder, c, buffers, 0);
}

}  // namespace

Result<void> build_qwen35(const FamilyInput& in) { return build(in, HeadOrder::kTiled, false); }
Result<void> build_qwen35moe(const FamilyInput& in) { return build(in, HeadOrder::kTiled, true); }
Result<void> build_qwen3next(const FamilyInput& in) { return build(in, HeadOrder::kGrouped, true); }

}  // namespace honeycrisp::model
