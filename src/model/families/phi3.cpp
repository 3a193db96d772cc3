// Phi-3 (arXiv:2404.14219), Phi-3.5, Phi-4: Llama's graph with q, k and v as rows of one tensor, and the gate's rows
// above those of ffn_up. Rotates halves, part of the head in Phi-4-mini. Windows, where there are any, are on all
// layers, as in the `transformers` implementation; 0 in the file means none.
#include "model/decoder.h"
#include "model/families/families.h"
#include "model/rope.h"

#include <cmath>

namespace honeycrisp::model {

Result<void> build_phi3(const FamilyInput& in) {
  const Config& c = in.config;
  HC_ASSIGN(const uint32_t window, in.hyper.get("attention.sliding_window", 0, 0, 1u << 30));
  HC_ASSIGN(auto rope, read_rope(in, {.interleaved = false, .head_dim = c.key_dim[0]}));

  const DecoderBuffers buffers = make_buffers(in.builder, c);
  const AttentionOptions attention{
      .rope = in.builder.rope(std::move(rope)), .window = window, .scale = float(1 / std::sqrt(double(c.key_dim[0])))};
  const FeedForwardOptions feed_forward{.fused_gate_up = true};
  HC_TRY(add_embedding(in.builder, c, buffers, 1));
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
    HC_TRY(add_attention(in.builder, c, buffers, layer, attention));
    HC_TRY(add_feed_forward(in.builder, c, buffers, layer, feed_forward));
  }
  return add_logits(in.builder, c, buffers, 0);
}

}  // namespace honeycrisp::model
