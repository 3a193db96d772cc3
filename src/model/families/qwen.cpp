// Qwen2 and Qwen2.5 (arXiv:2412.15115): Llama's graph with biases on q, k and v. Qwen3 (arXiv:2505.09388): no biases,
// q and k normed per head before the rotation. Both rotate halves. Their mixtures have experts in every layer: Qwen2's
// with a shared one and shares of a softmax over all, Qwen3's with weights that sum to 1.
#include "model/decoder.h"
#include "model/families/families.h"
#include "model/mixture.h"
#include "model/rope.h"

#include <cmath>

namespace honeycrisp::model {
namespace {

Result<void> build_qwen(const FamilyInput& in, bool is_qwen3, const std::optional<MixtureKind>& kind = {}) {
  const Config& c = in.config;
  HC_ASSIGN(auto rope, read_rope(in, {.interleaved = false, .head_dim = c.key_dim[0]}));

  std::optional<Mixture> mixture;
  if (kind) {
    HC_ASSIGN(mixture, read_mixture(in.hyper, c, *kind));
  }

  const DecoderBuffers buffers = make_buffers(in.builder, c, {.feed_forward = !mixture});
  const AttentionOptions attention{.rope = in.builder.rope(std::move(rope)),
                                   .scale = float(1 / std::sqrt(double(c.key_dim[0]))),
                                   .qk_norm = is_qwen3,
                                   .qkv_bias = !is_qwen3};
  HC_TRY(add_embedding(in.builder, c, buffers, 1));
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
    HC_TRY(add_attention(in.builder, c, buffers, layer, attention));
    HC_TRY(mixture ? add_mixture(in.builder, c, buffers, layer, *mixture)
                   : add_feed_forward(in.builder, c, buffers, layer, {}));
  }
  return add_logits(in.builder, c, buffers, 0);
}

}  // namespace

Result<void> build_qwen2(const FamilyInput& in) { return build_qwen(in, false); }
Result<void> build_qwen2moe(const FamilyInput& in) {
  return build_qwen(in, false, MixtureKind{.normalised = false, .shared = true});
}
Result<void> build_qwen3(const FamilyInput& in) { return build_qwen(in, true); }
Result<void> build_qwen3moe(const FamilyInput& in) { return build_qwen(in, true, MixtureKind{}); }

}  // namespace honeycrisp::model
