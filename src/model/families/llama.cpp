// Llama (arXiv:2307.09288, arXiv:2407.21783), and what shares its graph under the same name: Mistral, SmolLM2,
// TinyLlama. The files are permuted for interleaved rotation; rope_freqs.weight holds Llama 3's frequency divisors.
#include "model/decoder.h"
#include "model/families/families.h"
#include "model/rope.h"

#include <cmath>

namespace honeycrisp::model {

Result<void> build_llama(const FamilyInput& in) {
  const Config& c = in.config;
  HC_ASSIGN(const uint32_t experts, in.hyper.get("expert_count", 0, 0, 1u << 16));
  if (experts != 0)
    return unsupported("{}: mixtures of experts are not supported in this family", in.hyper.key("expert_count"));
  HC_ASSIGN(auto rope, read_rope(in, {.interleaved = true, .head_dim = c.key_dim[0]}));

  const DecoderBuffers buffers = make_buffers(in.builder, c);
  const AttentionOptions attention{.rope = in.builder.rope(std::move(rope)),
                                   .scale = float(1 / std::sqrt(double(c.key_dim[0])))};
  HC_TRY(add_embedding(in.builder, c, buffers, 1));
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
    HC_TRY(add_attention(in.builder, c, buffers, layer, attention));
    HC_TRY(add_feed_forward(in.builder, c, buffers, layer, {}));
  }
  return add_logits(in.builder, c, buffers, 0);
}

}  // namespace honeycrisp::model
