#include "model/config.h"

#include "base/text_escape.h"

#include <charconv>
#include <cmath>

namespace honeycrisp::model {
namespace {

// Generous bounds: far above any published model, low enough that products of a few of them stay within 64 bits.
constexpr uint32_t kMaxLayers = 4096;
constexpr uint32_t kMaxWidth = 1u << 20;
constexpr uint32_t kMaxContext = 1u << 30;

/// Layers after the last one that predict tokens beyond the next; block_count includes them.
constexpr const char* kFurtherLayers = "nextn_predict_layers";

Result<uint32_t> in_range(const std::string& key, std::optional<int64_t> value, uint32_t low, uint32_t high) {
  if (!value) return invalid("{}: is not an integer", key);
  if (*value < int64_t{low} || *value > int64_t{high})
    return invalid("{}: {} is outside {}..{}", key, *value, low, high);
  return uint32_t(*value);
}

/// A count below the layers that are there would run, and answer nonsense.
Result<void> check_layer_count(const gguf::File& file, const std::string& key, uint32_t n_layers) {
  for (const gguf::Tensor& t : file.tensors())
    if (const auto layer = layer_of(t.name); layer && *layer >= n_layers)
      return invalid("{}: {} layers, but the file has tensor '{}'", key, n_layers, escape_for_display(t.name, 64));
  return {};
}

}  // namespace

std::optional<uint64_t> layer_of(std::string_view tensor) {
  constexpr std::string_view kPrefix = "blk.";
  if (!tensor.starts_with(kPrefix)) return std::nullopt;
  const char* const begin = tensor.data() + kPrefix.size();
  uint64_t layer = 0;
  const auto [end, fault] = std::from_chars(begin, tensor.data() + tensor.size(), layer);
  if (fault != std::errc() || end == tensor.data() + tensor.size() || *end != '.') return std::nullopt;
  return layer;
}

bool HyperParameters::is_array(std::string_view suffix) const {
  const gguf::Value* value = metadata_.find(key(suffix));
  return value != nullptr && value->is_array();
}

Result<uint32_t> HyperParameters::require(std::string_view suffix, uint32_t low, uint32_t high) const {
  const std::string full = key(suffix);
  const gguf::Value* value = metadata_.find(full);
  if (value == nullptr) return invalid("{}: the key is missing", full);
  if (!value->is_array()) return in_range(full, value->as_int(), low, high);
  if (value->size() == 0) return invalid("{}: is an empty array", full);
  for (uint64_t i = 1; i < value->size(); ++i)
    if (value->int_at(i) != value->int_at(0)) return unsupported("{}: one value for all layers is expected", full);
  return in_range(full, value->int_at(0), low, high);
}

Result<uint32_t> HyperParameters::get(std::string_view suffix, uint32_t fallback, uint32_t low, uint32_t high) const {
  return has(suffix) ? require(suffix, low, high) : Result<uint32_t>(fallback);
}

Result<double> HyperParameters::require_float(std::string_view suffix, double low, double high) const {
  const std::string full = key(suffix);
  const gguf::Value* value = metadata_.find(full);
  if (value == nullptr) return invalid("{}: the key is missing", full);
  const auto number = value->as_float();
  if (!number) return invalid("{}: is not a number", full);
  if (!(*number >= low && *number <= high)) return invalid("{}: {} is outside {}..{}", full, *number, low, high);
  return *number;
}

Result<double> HyperParameters::get_float(std::string_view suffix, double fallback, double low, double high) const {
  return has(suffix) ? require_float(suffix, low, high) : Result<double>(fallback);
}

Result<bool> HyperParameters::get_bool(std::string_view suffix, bool fallback) const {
  const std::string full = key(suffix);
  const gguf::Value* value = metadata_.find(full);
  if (value == nullptr) return fallback;
  const std::optional<bool> flag = value->as_bool();
  if (!flag) return invalid("{}: is not true or false", full);
  return *flag;
}

Result<std::string> HyperParameters::get_string(std::string_view suffix, std::string_view fallback) const {
  HC_ASSIGN(const std::string_view text, metadata_.get_string(key(suffix), fallback));
  return std::string(text);
}

Result<std::vector<uint32_t>> HyperParameters::per_layer(std::string_view suffix, uint32_t n_layers, uint32_t low,
                                                         uint32_t high, std::optional<uint32_t> fallback) const {
  const std::string full = key(suffix);
  const gguf::Value* value = metadata_.find(full);
  if (value == nullptr) {
    if (!fallback) return invalid("{}: the key is missing", full);
    return std::vector<uint32_t>(n_layers, *fallback);
  }
  if (!value->is_array()) {
    HC_ASSIGN(const uint32_t scalar, in_range(full, value->as_int(), low, high));
    return std::vector<uint32_t>(n_layers, scalar);
  }
  HC_ASSIGN(const uint32_t further, get(kFurtherLayers, 0, 0, kMaxLayers));
  if (value->size() != uint64_t{n_layers} + further)
    return invalid("{}: {} values for {} layers", full, value->size(), n_layers + further);
  std::vector<uint32_t> result(n_layers);
  for (uint32_t i = 0; i < n_layers; ++i) {
    HC_ASSIGN(result[i], in_range(fmt::format("{}[{}]", full, i), value->int_at(i), low, high));
  }
  return result;
}

Result<std::vector<bool>> read_sliding(const HyperParameters& hyper, uint32_t n_layers, uint32_t period) {
  constexpr const char* kKey = "attention.sliding_window_pattern";
  std::vector<bool> sliding(n_layers);
  if (hyper.is_array(kKey)) {
    HC_ASSIGN(const auto flags, hyper.per_layer(kKey, n_layers, 0, 1));
    for (uint32_t i = 0; i < n_layers; ++i) sliding[i] = flags[i] == 1;
  } else {
    HC_ASSIGN(const uint32_t stated, hyper.get(kKey, period, 1, 1u << 16));
    for (uint32_t i = 0; i < n_layers; ++i) sliding[i] = (i + 1) % stated != 0;
  }
  return sliding;
}

Result<Config> read_config(const gguf::File& file, const HyperParameters& hyper) {
  Config c;
  c.architecture = hyper.architecture();
  HC_ASSIGN(const uint32_t blocks, hyper.require("block_count", 1, kMaxLayers));
  if (blocks > file.tensors().size())
    return invalid("{}: {} layers, but the file has only {} tensors", hyper.key("block_count"), blocks,
                   file.tensors().size());
  HC_TRY(check_layer_count(file, hyper.key("block_count"), blocks));
  HC_ASSIGN(const uint32_t further, hyper.get(kFurtherLayers, 0, 0, blocks - 1));
  c.n_layers = blocks - further;
  HC_ASSIGN(c.width, hyper.require("embedding_length", 1, kMaxWidth));
  HC_ASSIGN(c.trained_context, hyper.require("context_length", 1, kMaxContext));
  HC_ASSIGN(c.n_heads, hyper.per_layer("attention.head_count", c.n_layers, 1, kMaxHeads));
  HC_ASSIGN(c.n_kv_heads, hyper.per_layer("attention.head_count_kv", c.n_layers, 1, kMaxHeads, c.n_heads[0]));
  const bool mixture = hyper.has("expert_feed_forward_length");
  HC_ASSIGN(c.ffn_width, hyper.per_layer("feed_forward_length", c.n_layers, 1, kMaxWidth,
                                         mixture ? std::optional(0u) : std::nullopt));
  for (uint32_t i = 0; i < c.n_layers; ++i)
    if (c.n_heads[i] % c.n_kv_heads[i] != 0)
      return invalid("{}: {} does not divide the {} of {} (layer {})", hyper.key("attention.head_count_kv"),
                     c.n_kv_heads[i], c.n_heads[i], hyper.key("attention.head_count"), i);

  if (!hyper.has("attention.key_length") && c.width % c.n_heads[0] != 0)
    return invalid("{}: {} is no multiple of {} heads, and {} is missing", hyper.key("embedding_length"), c.width,
                   c.n_heads[0], hyper.key("attention.key_length"));
  const uint32_t head_dim = std::max(1u, c.width / c.n_heads[0]);
  HC_ASSIGN(const uint32_t key_dim, hyper.get("attention.key_length", head_dim, 1, kMaxHeadDim));
  HC_ASSIGN(const uint32_t value_dim, hyper.get("attention.value_length", key_dim, 1, kMaxHeadDim));
  c.key_dim.assign(c.n_layers, key_dim);
  c.value_dim.assign(c.n_layers, value_dim);
  HC_ASSIGN(const double eps, hyper.require_float("attention.layer_norm_rms_epsilon", 0, 1));
  c.eps = float(eps);

  const gguf::Tensor* embedding = file.find_tensor("token_embd.weight");
  if (embedding == nullptr) return invalid("tensor 'token_embd.weight' is missing");
  if (embedding->rows() > uint32_t(INT32_MAX)) return invalid("tensor 'token_embd.weight' has too many rows");
  c.vocabulary = uint32_t(embedding->rows());
  HC_ASSIGN(const uint32_t stated, hyper.get("vocab_size", c.vocabulary, 1, uint32_t(INT32_MAX)));
  if (stated != c.vocabulary)
    return invalid("{}: {}, but token_embd.weight has {} rows", hyper.key("vocab_size"), stated, c.vocabulary);
  if (const gguf::Value* tokens = file.metadata().find("tokenizer.ggml.tokens");
      tokens != nullptr && tokens->size() > c.vocabulary)
    return invalid("tokenizer.ggml.tokens: {} tokens, but token_embd.weight has {} rows", tokens->size(), c.vocabulary);
  return c;
}

}  // namespace honeycrisp::model
