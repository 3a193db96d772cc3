// The same model written in another way: golden files whose change may not change a bit of the logits.
#include "runner.h"
#include "support/golden_families.h"
#include "support/read_raw.h"
#include "support/temporary_folder.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

namespace honeycrisp::testing {
namespace {

using namespace test_support;

/// Rows of several tensors as one.
RawTensor joined(const RawGguf& file, const std::string& name, const std::vector<std::string>& parts) {
  RawTensor all{name, 0, {}, "", {}, {}};
  for (const std::string& part : parts)
    for (const RawTensor& tensor : file.tensors) {
      if (tensor.name != part) continue;
      if (all.dims.empty())
        all.dims = tensor.dims;
      else
        all.dims.back() += tensor.dims.back();
      all.data += tensor.data;
    }
  return all;
}

void fuse_qkv(RawGguf& file) {
  for (int layer = 0; layer < 3; ++layer)
    for (const char* kind : {".weight", ".bias"}) {
      const std::string block = "blk." + std::to_string(layer) + ".attn_";
      const std::vector<std::string> parts = {block + "q" + kind, block + "k" + kind, block + "v" + kind};
      file.tensors.push_back(joined(file, block + "qkv" + kind, parts));
      for (const std::string& part : parts) file.remove_tensor(part);
    }
}

/// q, k, v and z key head by key head, as an early converter had them.
void interleave_delta_inputs(RawGguf& file) {
  constexpr uint64_t kWidth = 56, kKeyHeads = 2, kKeys = 16, kValues = 2 * 24;  // of each key head
  for (const int layer : {0, 1, 2}) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    const std::string qkv = file.tensor(block + "attn_qkv.weight").data,
                      z = file.tensor(block + "attn_gate.weight").data;
    RawTensor in{block + "ssm_in.weight", 0, {kWidth, 2 * kKeyHeads * (kKeys + kValues)}, "", {}, {}};
    const auto add = [&](const std::string& from, uint64_t row, uint64_t rows) {
      in.data += from.substr(row * kWidth * sizeof(float), rows * kWidth * sizeof(float));
    };
    for (uint64_t head = 0; head < kKeyHeads; ++head) {
      add(qkv, head * kKeys, kKeys);
      add(qkv, (kKeyHeads + head) * kKeys, kKeys);
      add(qkv, 2 * kKeyHeads * kKeys + head * kValues, kValues);
      add(z, head * kValues, kValues);
    }
    file.remove_tensor(block + "attn_qkv.weight");
    file.remove_tensor(block + "attn_gate.weight");
    file.tensors.push_back(in);
  }
}

/// Gate and up of each expert as rows of one tensor.
void fuse_experts(RawGguf& file) {
  for (const int layer : {0, 1, 2, 3}) {
    const std::string block = "blk." + std::to_string(layer) + ".ffn_";
    const RawTensor gate = file.tensor(block + "gate_exps.weight"), up = file.tensor(block + "up_exps.weight");
    RawTensor both{block + "gate_up_exps.weight", 0, {gate.dims[0], 2 * gate.dims[1], gate.dims[2]}, "", {}, {}};
    const size_t expert = gate.data.size() / gate.dims[2];
    for (size_t at = 0; at < gate.data.size(); at += expert)
      both.data += gate.data.substr(at, expert) + up.data.substr(at, expert);
    file.remove_tensor(gate.name);
    file.remove_tensor(up.name);
    file.tensors.push_back(both);
  }
}

RawTensor factors(std::vector<float> values) {
  std::string data;
  for (const float v : values) data += packed(v);
  return {"rope_freqs.weight", 0, {values.size()}, data, {}, {}};
}

struct Variant {
  const char* name;
  const char* golden;
  void (*first)(RawGguf&);  // both are changes of the golden file
  void (*second)(RawGguf&);
};
void PrintTo(const Variant& v, std::ostream* out) { *out << v.name; }

constexpr auto kUnchanged = [](RawGguf&) {};

const Variant kVariants[] = {
    {"q_k_v_as_rows_of_one_tensor", "llama-bias", kUnchanged, fuse_qkv},
    {"gate_and_up_of_experts_as_one_tensor", "qwen3moe", kUnchanged, fuse_experts},
    {"delta_inputs_by_key_head", "qwen3next", kUnchanged, interleave_delta_inputs},
    {"windows_by_layer", "gptoss", kUnchanged,
     [](RawGguf& f) {
       f.set("gpt-oss.attention.sliding_window_pattern", value(std::vector<uint32_t>{1, 0, 1, 0}));
       f.set("gpt-oss.rope.freq_base_swa", value(150000.0f));
     }},
    {"experts_width_from_that_of_all_chosen", "qwen3moe", kUnchanged,
     [](RawGguf& f) {
       f.remove("qwen3moe.expert_feed_forward_length");
       f.set("qwen3moe.feed_forward_length", value(uint32_t{3 * 64}));
     }},
    {"a_layer_more_that_predicts_further_tokens", "qwen35", kUnchanged,
     [](RawGguf& f) {
       f.set("qwen35.block_count", value(uint32_t{5}));
       f.set("qwen35.nextn_predict_layers", value(uint32_t{1}));
       f.set("qwen35.attention.recurrent_layers", value(std::vector<uint32_t>{1, 1, 1, 0, 0}));
       f.tensors.push_back({"blk.4.nextn.eh_proj.weight", 0, {8}, std::string(32, '\0'), {}, {}});
     }},
    {"frequency_factors_of_one", "llama", kUnchanged,
     [](RawGguf& f) { f.tensors.push_back(factors(std::vector<float>(8, 1))); }},
    {"frequency_factors_of_eight", "llama",
     [](RawGguf& f) {
       f.set("llama.rope.scaling.type", value("linear"));
       f.set("llama.rope.scaling.factor", value(8.0f));
     },
     [](RawGguf& f) { f.tensors.push_back(factors(std::vector<float>(8, 8))); }},
    {"an_output_table_that_is_the_embedding", "llama", [](RawGguf& f) { f.remove_tensor("output.weight"); },
     [](RawGguf& f) { f.tensor("output.weight").data = f.tensor("token_embd.weight").data; }},
    // Granite 4's dense models come from the hybrids' converter.
    {"granite_of_the_hybrids", "granite", kUnchanged,
     [](RawGguf& f) {
       f.set("granite.attention.head_count_kv", value(std::vector<uint32_t>(3, 2)));
       f.set("granite.rope.scaling.finetuned", value(true));
       f.set("granite.expert_count", value(uint32_t{0}));
       f.set("granite.ssm.state_size", value(uint32_t{128}));
     }},
    {"numbers_per_layer_and_of_another_width", "llama", kUnchanged,
     [](RawGguf& f) {
       f.set("llama.attention.head_count", value(std::vector<int32_t>(4, 4)));
       f.set("llama.feed_forward_length", value(std::vector<uint64_t>(4, 96)));
       f.set("llama.embedding_length", value(int16_t{64}));
     }},
    // A window longer than the sequence is none; a temperature whose period is not reached either.
    {"a_window_that_is_not_reached", "phi3", [](RawGguf& f) { f.set("phi3.attention.sliding_window", value(0)); },
     [](RawGguf& f) { f.set("phi3.attention.sliding_window", value(48)); }},
    {"a_temperature_that_is_not_reached", "mistral3",
     [](RawGguf& f) {
       f.set("mistral3.rope.scaling.type", value("none"));
       f.remove("mistral3.attention.temperature_scale");
     },
     [](RawGguf& f) {
       f.set("mistral3.rope.scaling.type", value("none"));
       f.set("mistral3.rope.scaling.original_context_length", value(48));
     }},
};

class Variants : public ::testing::TestWithParam<std::tuple<Variant, const char*>> {};

TEST_P(Variants, give_the_same_bits) {
  const auto& [variant, backend] = GetParam();
  const RawGguf golden = read_raw(golden_path(variant.golden, ".gguf"));
  const std::vector<int32_t> tokens = read_ids(golden_path(variant.golden, ".tokens.txt"));
  const TemporaryFolder folder;
  const auto logits = [&](const char* name, void (*change)(RawGguf&)) {
    RawGguf raw = golden;
    change(raw);
    Runner runner(folder.write(name, raw.bytes()), backend, f32_cache());
    return runner.ok() ? runner.all_logits(tokens, 512) : std::vector<float>();
  };
  const std::vector<float> first = logits("first.gguf", variant.first), second = logits("second.gguf", variant.second);
  ASSERT_FALSE(first.empty());
  ASSERT_EQ(first.size(), second.size());
  EXPECT_EQ(0, std::memcmp(first.data(), second.data(), first.size() * sizeof(float)));
}

INSTANTIATE_TEST_SUITE_P(All, Variants,
                         ::testing::Combine(::testing::ValuesIn(kVariants), ::testing::Values("reference", "cpu")),
                         [](const auto& tested) {
                           return std::string(std::get<0>(tested.param).name) + "_" + std::get<1>(tested.param);
                         });

// The trained context is no limit and no scale: only a scaling that the file names depends on it.
TEST(BeyondTheTrainedContext, positions_are_computed_as_within_it) {
  RawGguf raw = read_raw(golden_path("llama", ".gguf"));
  raw.set("llama.context_length", value(uint32_t{16}));
  const TemporaryFolder folder;
  const std::string path = folder.write("short.gguf", raw.bytes());
  const std::vector<int32_t> tokens = read_ids(golden_path("llama", ".tokens.txt"));
  const std::vector<float> expected = read_floats(golden_path("llama", ".logits.f32"));
  for (const char* backend : {"reference", "cpu"}) {
    Runner runner(path, backend, f32_cache());
    ASSERT_TRUE(runner.ok());
    EXPECT_LT(relative_error(runner.all_logits(tokens, 7), expected), 1e-5) << backend;
  }
}

}  // namespace
}  // namespace honeycrisp::testing
