// Gemma 3, text part (arXiv:2503.19786): norms before and after both branches, q and k normed per head, GELU,
// embeddings scaled by √width. Five sliding layers, then a full one. Base *and* scaling of the rotation belong to the
// kind of layer: sliding layers use their own base and no scaling. The norm weights in GGUF files already contain their
// +1.
#include "model/decoder.h"
#include "model/families/families.h"
#include "model/rope.h"

#include <cmath>

namespace honeycrisp::model {
namespace {

constexpr uint32_t kPattern = 6;       // every sixth layer attends to everything
constexpr uint32_t kLayersOf27B = 62;  // whose query scale is 1/√(width / heads) instead of 1/√key_length
constexpr double kSlidingBase = 10000;
constexpr double kFullBase = 1000000;

}  // namespace

Result<void> build_gemma3(const FamilyInput& in) {
  const Config& c = in.config;
  HC_ASSIGN(const uint32_t window, in.hyper.require("attention.sliding_window", 1, 1u << 30));
  HC_ASSIGN(const std::vector<bool> sliding, read_sliding(in.hyper, c.n_layers, kPattern));
  RopeSource source{.interleaved = false, .head_dim = c.key_dim[0], .default_base = kFullBase};
  HC_ASSIGN(auto full, read_rope(in, source));
  source.base_key = "rope.freq_base_swa";
  source.default_base = kSlidingBase;
  source.scaled = false;
  HC_ASSIGN(auto slides, read_rope(in, source));
  const program::RopeId full_rope = in.builder.rope(std::move(full)), sliding_rope = in.builder.rope(std::move(slides));
  HC_ASSIGN(const double attention_softcap, in.hyper.get_float("attn_logit_softcapping", 0, 0, 1e9));
  HC_ASSIGN(const double final_softcap, in.hyper.get_float("final_logit_softcapping", 0, 0, 1e9));

  const double head = c.n_layers == kLayersOf27B ? double(c.width) / c.n_heads[0] : double(c.key_dim[0]);
  AttentionOptions attention{.scale = float(1 / std::sqrt(head)),
                             .softcap = float(attention_softcap),
                             .qk_norm = true,
                             .post_norm = "post_attention_norm"};
  const FeedForwardOptions feed_forward{.activation = program::Activation::kGeluTanh, .post_norm = "post_ffw_norm"};
  const DecoderBuffers buffers = make_buffers(in.builder, c);
  HC_TRY(add_embedding(in.builder, c, buffers, float(std::sqrt(double(c.width)))));
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
    attention.window = sliding[layer] ? window : 0;
    attention.rope = sliding[layer] ? sliding_rope : full_rope;
    HC_TRY(add_attention(in.builder, c, buffers, layer, attention));
    HC_TRY(add_feed_forward(in.builder, c, buffers, layer, feed_forward));
  }
  return add_logits(in.builder, c, buffers, float(final_softcap));
}

}  // namespace honeycrisp::model
