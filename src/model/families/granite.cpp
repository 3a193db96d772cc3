// Granite 3 and 4, dense (arXiv:2405.04324 and IBM's model cards): Llama's graph with multipliers on the embedding, on
// attention scores, on each branch before it joins the residual stream, and a divisor of the logits. Files are permuted
// for interleaved rotation. rope.scaling.finetuned = false: no rotation at all (models made from Granite 4's hybrids).
#include "model/decoder.h"
#include "model/families/families.h"
#include "model/rope.h"

#include <cmath>

namespace honeycrisp::model {

Result<void> build_granite(const FamilyInput& in) {
  const Config& c = in.config;
  const auto multiplier = [&](const char* key, double fallback) {
    return in.hyper.get_float(key, fallback, 1e-6, 1e6);
  };
  HC_ASSIGN(const double embedding, multiplier("embedding_scale", 1));
  HC_ASSIGN(const double attention_scale, multiplier("attention.scale", 1 / std::sqrt(double(c.key_dim[0]))));
  HC_ASSIGN(const double residual, multiplier("residual_scale", 1));
  HC_ASSIGN(const double logits_divisor, in.hyper.require_float("logit_scale", 1e-6, 1e6));
  HC_ASSIGN(const bool rotates, in.hyper.get_bool("rope.scaling.finetuned", true));
  std::optional<program::RopeId> rope;
  if (rotates) {
    HC_ASSIGN(auto table, read_rope(in, {.interleaved = true, .head_dim = c.key_dim[0]}));
    rope = in.builder.rope(std::move(table));
  }

  const DecoderBuffers buffers = make_buffers(in.builder, c);
  const AttentionOptions attention{.rope = rope, .scale = float(attention_scale), .branch_scale = float(residual)};
  const FeedForwardOptions feed_forward{.branch_scale = float(residual)};
  HC_TRY(add_embedding(in.builder, c, buffers, float(embedding)));
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
    HC_TRY(add_attention(in.builder, c, buffers, layer, attention));
    HC_TRY(add_feed_forward(in.builder, c, buffers, layer, feed_forward));
  }
  return add_logits(in.builder, c, buffers, 0, float(1 / logits_divisor));
}

}  // namespace honeycrisp::model
