// OLMo 2 (arXiv:2501.00656): norms after the blocks instead of before, q and k normed over the whole projection before
// the rotation. OLMo 3 (same name): all but every fourth layer slide, and only full layers have scaled rotation.
#include "model/decoder.h"
#include "model/families/families.h"
#include "model/rope.h"

#include <cmath>

namespace honeycrisp::model {
namespace {

constexpr uint32_t kPeriod = 4;  // of full layers, where the file has no pattern

}  // namespace

Result<void> build_olmo2(const FamilyInput& in) {
  const Config& c = in.config;
  HC_ASSIGN(const uint32_t window, in.hyper.get("attention.sliding_window", 0, 0, 1u << 30));
  std::vector<bool> sliding(c.n_layers, false);
  if (window != 0) {
    HC_ASSIGN(sliding, read_sliding(in.hyper, c.n_layers, kPeriod));
  }
  RopeSource source{.interleaved = false, .head_dim = c.key_dim[0]};
  HC_ASSIGN(auto full, read_rope(in, source));
  const program::RopeId full_rope = in.builder.rope(std::move(full));
  program::RopeId sliding_rope = full_rope;
  if (window != 0) {
    source.scaled = false;
    if (in.hyper.has("rope.freq_base_swa")) source.base_key = "rope.freq_base_swa";
    HC_ASSIGN(auto slides, read_rope(in, source));
    sliding_rope = in.builder.rope(std::move(slides));
  }

  AttentionOptions attention{.scale = float(1 / std::sqrt(double(c.key_dim[0]))),
                             .qk_norm_whole = true,
                             .norm = nullptr,
                             .post_norm = "post_attention_norm"};
  const FeedForwardOptions feed_forward{.norm = nullptr, .post_norm = "post_ffw_norm"};
  const DecoderBuffers buffers = make_buffers(in.builder, c);
  HC_TRY(add_embedding(in.builder, c, buffers, 1));
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
    attention.window = sliding[layer] ? window : 0;
    attention.rope = sliding[layer] ? sliding_rope : full_rope;
    HC_TRY(add_attention(in.builder, c, buffers, layer, attention));
    HC_TRY(add_feed_forward(in.builder, c, buffers, layer, feed_forward));
  }
  return add_logits(in.builder, c, buffers, 0);
}

}  // namespace honeycrisp::model
