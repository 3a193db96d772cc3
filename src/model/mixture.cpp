#include "model/mixture.h"

namespace honeycrisp::model {
namespace {

constexpr uint32_t kMaxExperts = 4096, kMaxChosen = 256;  // several times any published model
constexpr uint32_t kMaxHidden = 1u << 20;

/// `expert_gating_func` as files number it.
enum GatingFunction : uint32_t { kUnstated, kSoftmax, kSigmoid, kSoftmaxOfChosen };

Result<program::Routing> read_routing(const HyperParameters& hyper, const MixtureKind& kind) {
  HC_ASSIGN(const uint32_t gating, hyper.get("expert_gating_func", kUnstated, 0, 255));
  if (gating != kUnstated && gating != kSoftmax && gating != kSoftmaxOfChosen)
    return unsupported("{}: {} is not supported (1, softmax, and 3, softmax of the chosen, are)",
                       hyper.key("expert_gating_func"), gating);
  HC_ASSIGN(const uint32_t normalised, hyper.get("expert_weights_norm", kind.normalised ? 1 : 0, 0, 1));
  return normalised == 1 || gating == kSoftmaxOfChosen ? program::Routing::kTopKSoftmax
                                                       : program::Routing::kSoftmaxTopK;
}

/// Keys of other families' mixtures, with the only values that mean nothing special.
Result<void> refuse_other_kinds(const HyperParameters& hyper) {
  struct Key {
    const char* suffix;
    uint32_t low, high;
  };
  constexpr Key kKeys[] = {{"expert_group_count", 0, 1},        {"expert_group_used_count", 0, 1},
                           {"expert_shared_count", 0, 1},       {"leading_dense_block_count", 0, 0},
                           {"interleave_moe_layer_step", 0, 1}, {"moe_every_n_layers", 0, 1}};
  for (const Key& key : kKeys) {
    HC_ASSIGN(const uint32_t value, hyper.get(key.suffix, key.low, 0, UINT32_MAX));
    if (value > key.high) return unsupported("{}: {} is not supported in this family", hyper.key(key.suffix), value);
  }
  return {};
}

}  // namespace

Result<Mixture> read_mixture(const HyperParameters& hyper, const Config& c, const MixtureKind& kind) {
  Mixture m{.kind = kind};
  HC_TRY(refuse_other_kinds(hyper));
  HC_ASSIGN(m.n_experts, hyper.per_layer("expert_count", c.n_layers, 1, kMaxExperts));
  HC_ASSIGN(m.top_k, hyper.per_layer("expert_used_count", c.n_layers, 1, kMaxChosen));
  for (uint32_t i = 0; i < c.n_layers; ++i)
    if (m.top_k[i] > m.n_experts[i])
      return invalid("{}: {} of {} experts (layer {})", hyper.key("expert_used_count"), m.top_k[i], m.n_experts[i], i);
  const uint32_t parts = kind.common_width ? 1 : m.top_k[0];  // of feed_forward_length, in files without the key
  const bool divides = c.ffn_width[0] != 0 && c.ffn_width[0] % parts == 0;
  HC_ASSIGN(m.hidden, hyper.per_layer("expert_feed_forward_length", c.n_layers, 1, kMaxHidden,
                                      divides ? std::optional(c.ffn_width[0] / parts) : std::nullopt));
  if (kind.shared) {
    HC_ASSIGN(m.shared_hidden, hyper.per_layer("expert_shared_feed_forward_length", c.n_layers, 1, kMaxHidden,
                                               c.ffn_width[0] != 0 ? std::optional(c.ffn_width[0]) : std::nullopt));
  }
  HC_ASSIGN(m.routing, read_routing(hyper, kind));
  HC_ASSIGN(const double scale, hyper.get_float("expert_weights_scale", 1, 0, 1e6));
  if (scale != 0) m.weights_scale = float(scale);  // 0: not set
  return m;
}

namespace {

Result<program::SharedExpert> make_shared(Builder& builder, const Config& c, uint32_t layer, uint32_t hidden) {
  const auto name = [&](const char* part) { return layer_name(layer, part) + ".weight"; };
  program::SharedExpert shared;
  HC_ASSIGN(shared.gate, builder.matrix(name("ffn_gate_shexp"), c.width, hidden));
  HC_ASSIGN(shared.up, builder.matrix(name("ffn_up_shexp"), c.width, hidden));
  HC_ASSIGN(shared.down, builder.matrix(name("ffn_down_shexp"), hidden, c.width));
  HC_ASSIGN(shared.scale, builder.matrix(name("ffn_gate_inp_shexp"), c.width, 1));
  return shared;
}

}  // namespace

Result<program::MixExperts> make_mixture(Builder& builder, const Config& c, const DecoderBuffers& buffers,
                                         uint32_t layer, const Mixture& mixture) {
  const auto name = [&](const char* part, const char* end = ".weight") { return layer_name(layer, part) + end; };
  const uint32_t n = mixture.n_experts[layer], hidden = mixture.hidden[layer];
  program::MixExperts m;
  m.in = m.ending.x = builder.whole(buffers.x);
  m.activation = mixture.kind.activation;
  m.router.routing = mixture.routing;
  m.router.top_k = mixture.top_k[layer];
  HC_ASSIGN(m.router.matrix, builder.matrix(name("ffn_gate_inp"), c.width, n));
  if (builder.has(name("exp_probs_b", ".bias")))
    return unsupported("tensor '{}': a bias for the choice of experts is not supported in this family",
                       name("exp_probs_b", ".bias"));
  if (mixture.weights_scale != 1)
    m.router.expert_scale = builder.computed_vector(layer_name(layer, "expert_weights_scale"),
                                                    std::vector<float>(n, mixture.weights_scale));
  if (builder.has(name("ffn_gate_up_exps"))) {
    HC_ASSIGN(const auto both, builder.expert_matrices(name("ffn_gate_up_exps"), c.width, uint64_t{2} * hidden, n));
    m.gate = {both.weight, 0, hidden};
    m.up = {both.weight, hidden, hidden};
  } else {
    if (!builder.has(name("ffn_gate_exps")))
      return invalid("tensor '{}' is missing, and there is no '{}' that holds it", name("ffn_gate_exps"),
                     name("ffn_gate_up_exps"));
    HC_ASSIGN(m.gate, builder.expert_matrices(name("ffn_gate_exps"), c.width, hidden, n));
    HC_ASSIGN(m.up, builder.expert_matrices(name("ffn_up_exps"), c.width, hidden, n));
  }
  HC_ASSIGN(m.down, builder.expert_matrices(name("ffn_down_exps"), hidden, c.width, n));
  if (mixture.kind.biases) {
    HC_ASSIGN(m.router.bias, builder.vector(name("ffn_gate_inp", ".bias"), n));
    HC_ASSIGN(m.gate_bias, builder.vector(name("ffn_gate_exps", ".bias"), hidden, n));
    HC_ASSIGN(m.up_bias, builder.vector(name("ffn_up_exps", ".bias"), hidden, n));
    HC_ASSIGN(m.down_bias, builder.vector(name("ffn_down_exps", ".bias"), c.width, n));
  }
  if (mixture.kind.shared) {
    HC_ASSIGN(m.shared, make_shared(builder, c, layer, mixture.shared_hidden[layer]));
  }
  return m;
}

Result<void> add_mixture(Builder& builder, const Config& c, const DecoderBuffers& buffers, uint32_t layer,
                         const Mixture& mixture, const char* norm) {
  HC_ASSIGN(program::MixExperts m, make_mixture(builder, c, buffers, layer, mixture));
  HC_ASSIGN(m.input_norm, read_norm(builder, c, layer_name(layer, norm), c.width));
  builder.step(layer_name(layer, "experts"), layer, std::move(m));
  return {};
}

}  // namespace honeycrisp::model
