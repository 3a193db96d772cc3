// Llama (arXiv:2307.09288, arXiv:2407.21783), and what shares its graph under the same name: Mistral, SmolLM2,
// TinyLlama; with experts, Mixtral (arXiv:2401.04088). The files are permuted for interleaved rotation;
// rope_freqs.weight holds Llama 3's frequency divisors. Under names of their own: Mistral's later models (mistral3:
// Mistral Small 3.1, Ministral 3), and SmolLM3, whose every fourth layer does not rotate.
#include "model/decoder.h"
#include "model/families/families.h"
#include "model/mixture.h"
#include "model/rope.h"

#include <cmath>

namespace honeycrisp::model {
namespace {

constexpr uint32_t kSmolLm3Period = 4;  // not in the files

/// Every `plain_period`th layer does not rotate; 0: all do.
Result<void> build(const FamilyInput& in, uint32_t plain_period,
                   const std::optional<program::Temperature>& temperature = {}) {
  const Config& c = in.config;
  HC_ASSIGN(auto table, read_rope(in, {.interleaved = true, .head_dim = c.key_dim[0]}));
  const program::RopeId rope = in.builder.rope(std::move(table));

  HC_ASSIGN(const uint32_t experts, in.hyper.get("expert_count", 0, 0, UINT32_MAX));
  std::optional<Mixture> mixture;
  if (experts != 0) {
    HC_ASSIGN(mixture, read_mixture(in.hyper, c, {.common_width = true}));
  }

  const DecoderBuffers buffers = make_buffers(in.builder, c, {.feed_forward = !mixture});
  AttentionOptions attention{.scale = float(1 / std::sqrt(double(c.key_dim[0]))), .temperature = temperature};
  HC_TRY(add_embedding(in.builder, c, buffers, 1));
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
    const bool rotates = plain_period == 0 || (layer + 1) % plain_period != 0;
    attention.rope = rotates ? std::optional(rope) : std::nullopt;
    HC_TRY(add_attention(in.builder, c, buffers, layer, attention));
    HC_TRY(mixture ? add_mixture(in.builder, c, buffers, layer, *mixture)
                   : add_feed_forward(in.builder, c, buffers, layer, {}));
  }
  return add_logits(in.builder, c, buffers, 0);
}

/// Ministral 3 sharpens attention beyond the original context.
Result<std::optional<program::Temperature>> read_temperature(const HyperParameters& hyper) {
  std::optional<program::Temperature> temperature;
  HC_ASSIGN(const double beta, hyper.get_float("attention.temperature_scale", 0, 0, 1e3));
  if (beta == 0) return temperature;
  HC_ASSIGN(const uint32_t period, hyper.require("rope.scaling.original_context_length", 1, 1u << 30));
  temperature = {beta, period};
  return temperature;
}

}  // namespace

Result<void> build_llama(const FamilyInput& in) { return build(in, 0); }
Result<void> build_smollm3(const FamilyInput& in) { return build(in, kSmolLm3Period); }
Result<void> build_mistral3(const FamilyInput& in) {
  HC_ASSIGN(const auto temperature, read_temperature(in.hyper));
  return build(in, 0, temperature);
}

}  // namespace honeycrisp::model
