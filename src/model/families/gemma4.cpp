// Gemma 4, text part: dense, with per-layer embeddings (the E models), and with experts beside the dense block. Sliding
// and full layers differ in head size and KV heads; V is normed without weight, and is K before norm and rope where
// attn_v is absent; attention scale 1; the last layers may read the cache of the last earlier layer of their own kind;
// every layer scales the residual at its end. Facts beyond the files: the `transformers` implementation of the family.
#include "model/decoder.h"
#include "model/families/families.h"
#include "model/mixture.h"
#include "model/rope.h"

#include <cmath>
#include <utility>

namespace honeycrisp::model {
namespace {

constexpr double kSlidingBase = 10000;
constexpr double kFullBase = 1000000;

/// The per-layer inputs of the E models: [layers][dim] for each row, each layer's run one slice.
struct PerLayerInput {
  program::BufferId table;  // [layers · dim], from the per-layer embedding, then the normed sum
  program::BufferId gate;   // [dim]
  uint32_t dim = 0;
};

class Gemma4 {
 public:
  explicit Gemma4(const FamilyInput& in) : in_(in), c_(in.config) {}

  Result<void> build() {
    HC_TRY(read());
    const DecoderBuffers buffers = make_buffers(in_.builder, c_);
    HC_TRY(add_embedding(in_.builder, c_, buffers, float(std::sqrt(double(c_.width)))));
    if (mixture_) dense_ = in_.builder.buffer("dense", c_.width);
    if (per_layer_dim_ != 0) HC_TRY(add_per_layer_inputs(buffers));
    for (uint32_t layer = 0; layer < c_.n_layers; ++layer) HC_TRY(add_layer(buffers, layer));
    return add_logits(in_.builder, c_, buffers, final_softcap_);
  }

 private:
  Result<void> read() {
    const HyperParameters& hyper = in_.hyper;
    const uint32_t n = c_.n_layers;
    HC_ASSIGN(const uint32_t experts, hyper.get("expert_count", 0, 0, 1u << 16));
    if (experts != 0) {
      HC_ASSIGN(mixture_, read_mixture(hyper, c_, {.activation = program::Activation::kGeluTanh}));
    }
    HC_ASSIGN(window_, hyper.require("attention.sliding_window", 1, 1u << 30));
    if (!hyper.is_array("attention.sliding_window_pattern"))
      return invalid("{}: expected one flag per layer", hyper.key("attention.sliding_window_pattern"));
    HC_ASSIGN(sliding_, hyper.per_layer("attention.sliding_window_pattern", n, 0, 1));
    HC_ASSIGN(n_shared_, hyper.get("attention.shared_kv_layers", 0, 0, n - 1));
    HC_ASSIGN(per_layer_dim_, hyper.get("embedding_length_per_layer_input", 0, 0, 1u << 16));
    HC_ASSIGN(const double softcap, hyper.get_float("final_logit_softcapping", 0, 0, 1e9));
    final_softcap_ = float(softcap);

    HC_ASSIGN(const uint32_t key_swa, hyper.get("attention.key_length_swa", c_.key_dim[0], 1, kMaxHeadDim));
    HC_ASSIGN(const uint32_t value_swa, hyper.get("attention.value_length_swa", c_.value_dim[0], 1, kMaxHeadDim));
    const uint32_t full_head = c_.key_dim[0];
    for (uint32_t i = 0; i < n; ++i) {
      if (!sliding_[i]) continue;
      c_.key_dim[i] = key_swa;
      c_.value_dim[i] = value_swa;
    }
    return read_ropes(full_head, key_swa);
  }

  // Full layers: proportional rope, that is the whole head's pairing and denominators with some lanes' divisors so
  // large that they stay unrotated. Sliding layers: their own base, no divisors, no scaling.
  Result<void> read_ropes(uint32_t full_head, uint32_t sliding_head) {
    RopeSource source{.interleaved = false, .head_dim = full_head, .default_base = kFullBase, .needs_factors = true};
    HC_ASSIGN(auto full, read_rope(in_, source));
    full_rope_ = in_.builder.rope(std::move(full));
    source = {.interleaved = false,
              .head_dim = sliding_head,
              .rotated_key = "rope.dimension_count_swa",
              .base_key = "rope.freq_base_swa",
              .default_base = kSlidingBase,
              .scaled = false};
    HC_ASSIGN(auto slides, read_rope(in_, source));
    sliding_rope_ = in_.builder.rope(std::move(slides));
    return {};
  }

  // per_layer = (norm per slice(width^-1/2 · per_layer_model_proj · x) + √dim · row of per_layer_token_embd) · 2^-1/2
  Result<void> add_per_layer_inputs(const DecoderBuffers& buffers) {
    Builder& builder = in_.builder;
    const uint32_t dim = per_layer_dim_, total = c_.n_layers * dim;
    per_layer_ = {builder.buffer("per_layer", total), builder.buffer("per_layer_gate", dim), dim};
    const program::Slice table = builder.whole(per_layer_.table);
    HC_ASSIGN(const auto embedding, builder.matrix("per_layer_token_embd.weight", total, c_.vocabulary));
    builder.step("per_layer_embed", {}, program::Embed{embedding, table, float(std::sqrt(double(dim)))});

    HC_ASSIGN(const auto projection, builder.matrix("per_layer_model_proj.weight", c_.width, total));
    HC_ASSIGN(const auto norm, read_norm(builder, c_, "per_layer_proj_norm", dim));
    const program::Store store{.outs = {table},
                               .scale = float(1 / std::sqrt(double(c_.width))),
                               .norm = norm,
                               .norm_width = dim,
                               .add = table,
                               .out_scale = float(std::sqrt(0.5))};
    builder.step("per_layer_proj", {}, program::Project{builder.whole(buffers.x), {}, {projection}, {{}}, store});
    return {};
  }

  Result<void> add_layer(const DecoderBuffers& buffers, uint32_t layer) {
    const bool slides = sliding_[layer] == 1;
    AttentionOptions attention{.rope = slides ? sliding_rope_ : full_rope_,
                               .window = slides ? window_ : 0,
                               .scale = 1,
                               .qk_norm = true,
                               .v_norm = true,
                               .v_may_be_k = !slides,
                               .post_norm = "post_attention_norm"};
    std::optional<program::CacheId>& owner = slides ? sliding_cache_ : full_cache_;
    if (layer >= c_.n_layers - n_shared_) {
      if (!owner) return invalid("layer {} shares keys and values, but no earlier layer of its kind has any", layer);
      attention.shared_cache = owner;
    }
    HC_ASSIGN(owner, add_attention(in_.builder, c_, buffers, layer, attention));

    float output_scale = 1;
    if (const std::string name = layer_name(layer, "layer_output_scale.weight"); in_.builder.has_in_layers(name)) {
      HC_ASSIGN(const auto values, in_.builder.values(name, 1));
      output_scale = values[0];
    }
    FeedForwardOptions feed_forward{.activation = program::Activation::kGeluTanh, .post_norm = "post_ffw_norm"};
    if (per_layer_dim_ == 0) feed_forward.residual_scale = output_scale;
    HC_TRY(mixture_ ? add_experts(buffers, layer, feed_forward)
                    : add_feed_forward(in_.builder, c_, buffers, layer, feed_forward));
    return per_layer_dim_ == 0 ? Result<void>() : add_per_layer_block(buffers, layer, output_scale);
  }

  // x = residual_scale · (x + post_norm(norm₁(dense block of x) + norm₂(experts of x))). The router reads x with a norm
  // of its own, whose weight is a learned scale · width^-1/2.
  Result<void> add_experts(const DecoderBuffers& buffers, uint32_t layer, FeedForwardOptions options) {
    Builder& builder = in_.builder;
    const auto norm = [&](const char* suffix) { return read_norm(builder, c_, layer_name(layer, suffix), c_.width); };
    options.store_in = builder.whole(dense_);
    const char* const post_norm = std::exchange(options.post_norm, "post_ffw_norm_1");
    HC_TRY(add_feed_forward(builder, c_, buffers, layer, options));

    HC_ASSIGN(program::MixExperts experts, make_mixture(builder, c_, buffers, layer, *mixture_));
    HC_ASSIGN(experts.input_norm, norm("pre_ffw_norm_2"));
    HC_ASSIGN(auto scale, builder.values(layer_name(layer, "ffn_gate_inp.scale"), c_.width));
    for (float& s : scale) s = float(double(s) / std::sqrt(double(c_.width)));
    experts.router.norm =
        program::Norm{builder.computed_vector(layer_name(layer, "ffn_gate_inp.norm"), std::move(scale)), c_.eps};
    const std::string expert_scale = layer_name(layer, "ffn_down_exps.scale");
    if (builder.has_in_layers(expert_scale)) {
      if (experts.router.expert_scale)
        return unsupported("tensor '{}' beside {}: only one of them is supported", expert_scale,
                           in_.hyper.key("expert_weights_scale"));
      HC_ASSIGN(experts.router.expert_scale, builder.vector(expert_scale, mixture_->n_experts[layer]));
    }
    HC_ASSIGN(experts.branch_norm, norm("post_ffw_norm_2"));
    experts.add = options.store_in;
    HC_ASSIGN(experts.ending.post_norm, norm(post_norm));
    experts.ending.residual_scale = options.residual_scale;
    builder.step(layer_name(layer, "experts"), layer, std::move(experts));
    return {};
  }

  // x = output_scale · (x + post_norm(proj · (GELU(inp_gate · x) · per_layer[layer])))
  Result<void> add_per_layer_block(const DecoderBuffers& buffers, uint32_t layer, float output_scale) {
    Builder& builder = in_.builder;
    const uint32_t dim = per_layer_.dim;
    const program::Slice slice{per_layer_.table, layer * dim, dim}, gated = builder.whole(per_layer_.gate);
    HC_ASSIGN(const auto gate, builder.matrix(layer_name(layer, "inp_gate.weight"), c_.width, dim));
    builder.step(
        layer_name(layer, "inp_gate"), layer,
        program::Project{
            builder.whole(buffers.x), {}, {gate}, {{}}, program::Gate{program::Activation::kGeluTanh, slice, gated}});
    HC_ASSIGN(const auto projection, builder.matrix(layer_name(layer, "proj.weight"), dim, c_.width));
    HC_ASSIGN(const auto norm, read_norm(builder, c_, layer_name(layer, "post_norm"), c_.width));
    builder.step(
        layer_name(layer, "proj"), layer,
        program::Project{
            gated,
            {},
            {projection},
            {{}},
            program::Residual{.x = builder.whole(buffers.x), .post_norm = norm, .residual_scale = output_scale}});
    return {};
  }

  const FamilyInput& in_;
  Config c_;                       // with each layer's own geometry
  std::vector<uint32_t> sliding_;  // [layers] 1: slides
  uint32_t window_ = 0, n_shared_ = 0, per_layer_dim_ = 0;
  float final_softcap_ = 0;
  std::optional<Mixture> mixture_;
  program::BufferId dense_ = 0;  // [width] the dense block's part of a mixture's layer
  program::RopeId full_rope_ = 0, sliding_rope_ = 0;
  std::optional<program::CacheId> full_cache_, sliding_cache_;  // of the last layer of each kind
  PerLayerInput per_layer_;
};

}  // namespace

Result<void> build_gemma4(const FamilyInput& in) { return Gemma4(in).build(); }

}  // namespace honeycrisp::model
