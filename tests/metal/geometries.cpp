#include "geometries.h"

#include "quant/formats.h"
#include "support/tiny_gguf.h"

#include <filesystem>
#include <fstream>

namespace honeycrisp::backend::metal::testing {
namespace {

using quant::Format;
using test_support::RawGguf;
using test_support::value;

class SparseModel {
 public:
  explicit SparseModel(std::string architecture) : architecture_(std::move(architecture)) {
    file_.set("general.architecture", value(architecture_));
    file_.set("tokenizer.ggml.model", value("none"));
  }
  template <class T>
  void key(const char* name, const T& v) {
    file_.set(architecture_ + "." + name, value(v));
  }
  void matrix(const std::string& name, Format format, std::vector<uint64_t> dims) {
    uint64_t rows = 1;
    for (size_t i = 1; i < dims.size(); ++i) rows *= dims[i];
    const uint64_t bytes = quant::row_bytes(format, uint32_t(dims[0])) * rows;
    file_.tensors.push_back({name, uint32_t(format), std::move(dims), "", {}, at_});
    at_ = (at_ + bytes + 31) / 32 * 32;
  }
  /// All its elements are `fill`.
  void vector(const std::string& name, uint64_t n, float fill = 0) {
    if (fill != 0) filled_.push_back({at_, std::vector<float>(n, fill)});
    matrix(name, Format::kF32, {n});
  }
  void write(const std::string& path) const {
    const std::string header = file_.bytes();
    std::ofstream out(path, std::ios::binary);
    out << header;
    for (const auto& [at, values] : filled_) {
      out.seekp(std::streamoff(header.size() + at));
      out.write(reinterpret_cast<const char*>(values.data()), std::streamsize(values.size() * sizeof(float)));
    }
    out.close();
    std::filesystem::resize_file(path, header.size() + at_);
  }

 private:
  std::string architecture_;
  RawGguf file_;
  uint64_t at_ = 0;
  std::vector<std::pair<uint64_t, std::vector<float>>> filled_;
};

struct Attention {
  uint32_t width, heads, kv_heads, head;
  Format format = Format::kQ4_K, value_format = Format::kQ6_K;
  bool biases = false, head_norms = false, value = true;
};

void add_attention(SparseModel& m, const std::string& blk, const Attention& a) {
  const uint64_t q = uint64_t{a.heads} * a.head, kv = uint64_t{a.kv_heads} * a.head;
  m.vector(blk + "attn_norm.weight", a.width);
  m.matrix(blk + "attn_q.weight", a.format, {a.width, q});
  m.matrix(blk + "attn_k.weight", a.format, {a.width, kv});
  if (a.value) m.matrix(blk + "attn_v.weight", a.value_format, {a.width, kv});
  m.matrix(blk + "attn_output.weight", a.format, {q, a.width});
  if (a.biases) {
    m.vector(blk + "attn_q.bias", q);
    m.vector(blk + "attn_k.bias", kv);
    m.vector(blk + "attn_v.bias", kv);
  }
  if (a.head_norms) {
    m.vector(blk + "attn_q_norm.weight", a.head);
    m.vector(blk + "attn_k_norm.weight", a.head);
  }
}

void add_feed_forward(SparseModel& m, const std::string& blk, uint64_t width, uint64_t hidden, Format format,
                      Format down_format) {
  m.matrix(blk + "ffn_gate.weight", format, {width, hidden});
  m.matrix(blk + "ffn_up.weight", format, {width, hidden});
  m.matrix(blk + "ffn_down.weight", down_format, {hidden, width});
}

void add_ends(SparseModel& m, uint64_t width, uint64_t vocabulary, bool tied) {
  m.matrix("token_embd.weight", tied ? Format::kQ6_K : Format::kQ4_K, {width, vocabulary});
  m.vector("output_norm.weight", width);
  if (!tied) m.matrix("output.weight", Format::kQ6_K, {width, vocabulary});
}

std::string block(uint32_t layer) { return "blk." + std::to_string(layer) + "."; }

}  // namespace

void write_dense(const std::string& path, const Dense& d) {
  SparseModel m(d.architecture);
  m.key("block_count", d.layers);
  m.key("context_length", 32768u);
  m.key("embedding_length", d.width);
  m.key("feed_forward_length", d.hidden);
  m.key("attention.head_count", d.heads);
  m.key("attention.head_count_kv", d.kv_heads);
  m.key("attention.key_length", d.head);
  m.key("attention.value_length", d.head);
  m.key("attention.layer_norm_rms_epsilon", 1e-6f);
  m.key("rope.freq_base", 1e6f);
  m.key("rope.dimension_count", d.head);
  add_ends(m, d.width, d.vocabulary, d.tied);
  const Format format = d.k_quants ? Format::kQ4_K : Format::kQ4_0;
  const Format better = d.k_quants ? Format::kQ6_K : Format::kQ4_0;
  for (uint32_t layer = 0; layer < d.layers; ++layer) {
    const std::string blk = block(layer);
    add_attention(m, blk,
                  {.width = d.width,
                   .heads = d.heads,
                   .kv_heads = d.kv_heads,
                   .head = d.head,
                   .format = format,
                   .value_format = better,
                   .biases = d.biases,
                   .head_norms = d.head_norms});
    m.vector(blk + "ffn_norm.weight", d.width);
    add_feed_forward(m, blk, d.width, d.hidden, format, better);
  }
  m.write(path);
}

void write_gemma4_31b(const std::string& path) {
  constexpr uint32_t kLayers = 60, kWidth = 5376, kHidden = 21504, kHeads = 32, kHead = 256, kFullHead = 512;
  std::vector<bool> sliding;
  std::vector<uint32_t> kv_heads;
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    sliding.push_back(layer % 6 != 5);
    kv_heads.push_back(sliding.back() ? 16 : 4);
  }
  SparseModel m("gemma4");
  m.key("block_count", kLayers);
  m.key("context_length", 131072u);
  m.key("embedding_length", kWidth);
  m.key("feed_forward_length", kHidden);
  m.key("attention.head_count", kHeads);
  m.key("attention.head_count_kv", kv_heads);
  m.key("attention.key_length", kFullHead);
  m.key("attention.value_length", kFullHead);
  m.key("attention.key_length_swa", kHead);
  m.key("attention.value_length_swa", kHead);
  m.key("attention.layer_norm_rms_epsilon", 1e-6f);
  m.key("attention.sliding_window", 1024u);
  m.key("attention.sliding_window_pattern", sliding);
  m.key("attention.shared_kv_layers", 0u);
  m.key("embedding_length_per_layer_input", 0u);
  m.key("rope.freq_base", 1e6f);
  m.key("rope.freq_base_swa", 1e4f);
  m.key("rope.dimension_count", kFullHead);
  m.key("rope.dimension_count_swa", kHead);
  m.key("final_logit_softcapping", 30.0f);
  add_ends(m, kWidth, 262144, true);
  m.vector("rope_freqs.weight", kFullHead / 2, 1);
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    const std::string blk = block(layer);
    add_attention(m, blk,
                  {.width = kWidth,
                   .heads = kHeads,
                   .kv_heads = kv_heads[layer],
                   .head = sliding[layer] ? kHead : kFullHead,
                   .head_norms = true,
                   .value = sliding[layer]});
    add_feed_forward(m, blk, kWidth, kHidden, Format::kQ4_K, Format::kQ6_K);
    for (const char* norm : {"post_attention_norm", "ffn_norm", "post_ffw_norm"})
      m.vector(blk + norm + ".weight", kWidth);
    m.vector(blk + "layer_output_scale.weight", 1, 1);
  }
  m.write(path);
}

void write_qwen3_30b_a3b(const std::string& path) {
  constexpr uint32_t kLayers = 48, kWidth = 2048, kHidden = 768, kExperts = 128, kHead = 128;
  SparseModel m("qwen3moe");
  m.key("block_count", kLayers);
  m.key("context_length", 40960u);
  m.key("embedding_length", kWidth);
  m.key("feed_forward_length", 6144u);
  m.key("attention.head_count", 32u);
  m.key("attention.head_count_kv", 4u);
  m.key("attention.key_length", kHead);
  m.key("attention.value_length", kHead);
  m.key("attention.layer_norm_rms_epsilon", 1e-6f);
  m.key("rope.freq_base", 1e6f);
  m.key("expert_count", kExperts);
  m.key("expert_used_count", 8u);
  m.key("expert_feed_forward_length", kHidden);
  add_ends(m, kWidth, 151936, false);
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    const std::string blk = block(layer);
    add_attention(m, blk, {.width = kWidth, .heads = 32, .kv_heads = 4, .head = kHead, .head_norms = true});
    m.vector(blk + "ffn_norm.weight", kWidth);
    m.matrix(blk + "ffn_gate_inp.weight", Format::kF32, {kWidth, kExperts});
    m.matrix(blk + "ffn_gate_exps.weight", Format::kQ4_K, {kWidth, kHidden, kExperts});
    m.matrix(blk + "ffn_up_exps.weight", Format::kQ4_K, {kWidth, kHidden, kExperts});
    m.matrix(blk + "ffn_down_exps.weight", Format::kQ6_K, {kHidden, kWidth, kExperts});
  }
  m.write(path);
}

}  // namespace honeycrisp::backend::metal::testing
