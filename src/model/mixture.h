// The mixture-of-experts block that several families share: its hyper-parameters, checked, and its op.
// What no key of a file says (activation, whether the chosen weights are normalised) the family states.
#pragma once

#include "base/result.h"
#include "model/builder.h"
#include "model/config.h"
#include "model/decoder.h"
#include "program/program.h"

#include <vector>

namespace honeycrisp::model {

/// What a family fixes.
struct MixtureKind {
  program::Activation activation = program::Activation::kSilu;
  bool normalised = true;  // the chosen weights sum to 1; `expert_weights_norm` decides where a file has it
  bool biases = false;     // of the router and of all experts
  bool shared = false;     // a shared expert with a gate of its own
  // Where experts have no width of their own, feed_forward_length is that of one expert, not of all chosen together.
  bool common_width = false;
};

struct Mixture {
  MixtureKind kind;
  std::vector<uint32_t> n_experts;      // [n_layers]
  std::vector<uint32_t> top_k;          // [n_layers]
  std::vector<uint32_t> hidden;         // [n_layers], of one expert
  std::vector<uint32_t> shared_hidden;  // [n_layers]
  program::Routing routing = program::Routing::kTopKSoftmax;
  float weights_scale = 1;
};

/// Reads `expert_*`. Routing that no op computes is refused, by its key.
Result<Mixture> read_mixture(const HyperParameters& hyper, const Config& config, const MixtureKind& kind);

/// Router and experts of one layer over x, added to x; norms and dense branches are the caller's to set. Gate and up
/// may be the row ranges of one tensor (ffn_gate_up_exps).
Result<program::MixExperts> make_mixture(Builder& builder, const Config& config, const DecoderBuffers& buffers,
                                         uint32_t layer, const Mixture& mixture);

/// <norm> → experts → residual.
Result<void> add_mixture(Builder& builder, const Config& config, const DecoderBuffers& buffers, uint32_t layer,
                         const Mixture& mixture, const char* norm = "ffn_norm");

}  // namespace honeycrisp::model
