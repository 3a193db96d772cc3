// The gated delta rule's block (arXiv:2412.06464) that recurrent families share: its hyper-parameters, checked, which
// layers have it, and its ops.
#pragma once

#include "base/result.h"
#include "model/builder.h"
#include "model/config.h"
#include "model/decoder.h"
#include "program/program.h"

#include <vector>

namespace honeycrisp::model {

/// How a file orders what belongs to a value head.
enum class HeadOrder : uint8_t {
  kTiled,    // value head h goes with key head h mod key heads; ssm_alpha and ssm_beta are tensors of their own
  kGrouped,  // value heads of one key head together; ssm_ba holds [beta, alpha] of each key head's value heads
};

struct DeltaShape {
  HeadOrder order = HeadOrder::kTiled;
  uint32_t n_key_heads = 0;
  uint32_t n_heads = 0;         // value heads
  uint32_t key_dim = 0;         // per head
  uint32_t value_dim = 0;       // per head
  uint32_t kernel_size = 0;     // of the convolution
  std::vector<bool> recurrent;  // [n_layers]; the others attend

  uint32_t keys() const { return n_key_heads * key_dim; }
  uint32_t values() const { return n_heads * value_dim; }
  uint32_t channels() const { return 2 * keys() + values(); }
  uint32_t heads_per_key() const { return n_heads / n_key_heads; }
};

/// Reads `ssm.*`, and `attention.recurrent_layers` or else `full_attention_interval`.
Result<DeltaShape> read_delta_shape(const HyperParameters& hyper, const Config& config, HeadOrder order);

/// The block's own buffers.
struct DeltaBuffers {
  program::BufferId in;   // [q | k | v | z | gates]
  program::BufferId out;  // [n_heads · value_dim]
};
DeltaBuffers make_delta_buffers(Builder& builder, const DeltaShape& shape);

/// attn_norm → attn_qkv, attn_gate (or ssm_in), ssm_alpha, ssm_beta (or ssm_ba) → delta rule → ssm_out → residual.
Result<void> add_delta_net(Builder& builder, const Config& config, const DecoderBuffers& buffers,
                           const DeltaBuffers& delta_buffers, uint32_t layer, const DeltaShape& shape);

}  // namespace honeycrisp::model
