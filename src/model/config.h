// Hyper-parameters of a model file, read under its architecture's prefix and checked for range.
// Any integer width is accepted, and a scalar or a per-layer array, as converters write either.
#pragma once

#include "base/result.h"
#include "gguf/file.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace honeycrisp::model {

/// Typed access to the keys "<architecture>.<suffix>". Errors name the full key, the value and the allowed range.
class HyperParameters {
 public:
  HyperParameters(const gguf::Metadata& metadata, std::string architecture)
      : metadata_(metadata), architecture_(std::move(architecture)) {}

  const std::string& architecture() const { return architecture_; }
  std::string key(std::string_view suffix) const { return architecture_ + "." + std::string(suffix); }
  bool has(std::string_view suffix) const { return metadata_.contains(key(suffix)); }
  bool is_array(std::string_view suffix) const;

  /// An array counts as its value if all its elements are the same.
  Result<uint32_t> require(std::string_view suffix, uint32_t low, uint32_t high) const;
  Result<uint32_t> get(std::string_view suffix, uint32_t fallback, uint32_t low, uint32_t high) const;
  /// A finite number in [low, high].
  Result<double> require_float(std::string_view suffix, double low, double high) const;
  Result<double> get_float(std::string_view suffix, double fallback, double low, double high) const;
  Result<bool> get_bool(std::string_view suffix, bool fallback) const;
  Result<std::string> get_string(std::string_view suffix, std::string_view fallback) const;
  /// One value per layer, from a scalar or from an array. Absent: the fallback, or an error without one. An array also
  /// has values for the layers that predict further tokens (nextn_predict_layers), which are left out.
  Result<std::vector<uint32_t>> per_layer(std::string_view suffix, uint32_t n_layers, uint32_t low, uint32_t high,
                                          std::optional<uint32_t> fallback = {}) const;

 private:
  const gguf::Metadata& metadata_;
  std::string architecture_;
};

/// Limits of what files may ask for: many times any published model, small enough that products fit 32 bits.
inline constexpr uint32_t kMaxHeads = 4096;
inline constexpr uint32_t kMaxHeadDim = 4096;

/// What every decoder-only transformer has.
struct Config {
  std::string architecture;
  uint32_t n_layers = 0;             // that compute the next token: block_count less nextn_predict_layers
  uint32_t width = 0;                // embedding_length
  uint32_t vocabulary = 0;           // rows of token_embd.weight
  uint32_t trained_context = 0;      // context_length
  std::vector<uint32_t> n_heads;     // [n_layers]
  std::vector<uint32_t> n_kv_heads;  // [n_layers]
  std::vector<uint32_t> ffn_width;   // [n_layers]; 0: a mixture that does not state it
  std::vector<uint32_t> key_dim;     // [n_layers], per head
  std::vector<uint32_t> value_dim;   // [n_layers], per head
  float eps = 0;                     // of the RMS norms
};

/// Which layers slide, from attention.sliding_window_pattern: a flag per layer, or a period whose last layer attends to
/// everything. Absent: that period.
Result<std::vector<bool>> read_sliding(const HyperParameters& hyper, uint32_t n_layers, uint32_t period);

/// The N of 'blk.N.…', if the tensor belongs to a layer.
std::optional<uint64_t> layer_of(std::string_view tensor);

/// Reads the common keys and checks them against each other and against token_embd.weight.
Result<Config> read_config(const gguf::File& file, const HyperParameters& hyper);

}  // namespace honeycrisp::model
