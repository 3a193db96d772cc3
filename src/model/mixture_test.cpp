// Files of mixtures and recurrent families that contradict themselves, or ask for what no op computes: refused by the
// name of the key or tensor at fault. And what such files may vary without harm.
#include "model/model.h"
#include "support/golden_families.h"
#include "support/read_raw.h"
#include "support/temporary_folder.h"
#include "support/tiny_gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

namespace honeycrisp::model {
namespace {

using namespace test_support;

struct Contradiction {
  const char* name;
  const char* golden;  // the file that is changed
  void (*change)(RawGguf&);
  const char* words;  // of the error
};
void PrintTo(const Contradiction& c, std::ostream* out) { *out << c.name; }

/// A change that sets one key to an integer.
#define SET(key, number) [](RawGguf& f) { f.set(key, value(uint32_t{number})); }
#define REMOVE_TENSOR(tensor) [](RawGguf& f) { f.remove_tensor(tensor); }
#define REMOVE_KEY(key) [](RawGguf& f) { f.remove(key); }

const Contradiction kContradictions[] = {
    // experts
    {"fewer_experts_than_tensors_have", "qwen3moe", SET("qwen3moe.expert_count", 7), "'blk.0.ffn_gate_inp.weight' is"},
    {"no_experts", "qwen3moe", SET("qwen3moe.expert_count", 0), "qwen3moe.expert_count: 0 is outside"},
    {"experts_unstated", "qwen3moe", REMOVE_KEY("qwen3moe.expert_count"), "qwen3moe.expert_count: the key is missing"},
    {"more_chosen_than_there_are", "qwen3moe", SET("qwen3moe.expert_used_count", 9),
     "qwen3moe.expert_used_count: 9 of 8 experts"},
    {"none_chosen", "qwen3moe", SET("qwen3moe.expert_used_count", 0), "qwen3moe.expert_used_count: 0 is outside"},
    {"experts_of_another_width", "qwen3moe", SET("qwen3moe.expert_feed_forward_length", 63),
     "'blk.0.ffn_gate_exps.weight' is"},
    {"experts_width_unstated", "qwen3moe", REMOVE_KEY("qwen3moe.expert_feed_forward_length"),
     "'blk.0.ffn_gate_exps.weight' is"},
    {"no_width_stated", "qwen35moe", REMOVE_KEY("qwen35moe.expert_feed_forward_length"),
     "qwen35moe.feed_forward_length: the key is missing"},
    {"shared_expert_of_another_width", "qwen2moe", SET("qwen2moe.expert_shared_feed_forward_length", 40),
     "'blk.0.ffn_gate_shexp.weight' is"},
    {"sigmoid_routing", "qwen3moe", SET("qwen3moe.expert_gating_func", 2), "qwen3moe.expert_gating_func: 2 is not"},
    {"weights_norm_no_flag", "qwen3moe", SET("qwen3moe.expert_weights_norm", 2),
     "qwen3moe.expert_weights_norm: 2 is outside"},
    {"groups_of_experts", "qwen3moe", SET("qwen3moe.expert_group_count", 4), "qwen3moe.expert_group_count: 4 is not"},
    {"several_shared_experts", "qwen2moe", SET("qwen2moe.expert_shared_count", 2),
     "qwen2moe.expert_shared_count: 2 is not"},
    {"dense_layers_first", "qwen3moe", SET("qwen3moe.leading_dense_block_count", 1),
     "qwen3moe.leading_dense_block_count: 1 is not"},
    {"a_router_away", "qwen3moe", REMOVE_TENSOR("blk.2.ffn_gate_inp.weight"), "'blk.2.ffn_gate_inp.weight' is missing"},
    {"a_shared_gate_away", "qwen2moe", REMOVE_TENSOR("blk.1.ffn_gate_inp_shexp.weight"),
     "'blk.1.ffn_gate_inp_shexp.weight' is missing"},
    {"an_expert_bias_away", "gptoss", REMOVE_TENSOR("blk.1.ffn_up_exps.bias"), "'blk.1.ffn_up_exps.bias' is missing"},
    {"a_router_bias_away", "gptoss", REMOVE_TENSOR("blk.0.ffn_gate_inp.bias"), "'blk.0.ffn_gate_inp.bias' is missing"},
    {"sinks_away", "gptoss", REMOVE_TENSOR("blk.3.attn_sinks.weight"), "'blk.3.attn_sinks.weight' is missing"},
    {"window_unstated", "gptoss", REMOVE_KEY("gpt-oss.attention.sliding_window"),
     "gpt-oss.attention.sliding_window: the key is missing"},
    {"a_dense_gemma_with_experts", "gemma4-moe", REMOVE_KEY("gemma4.expert_count"), "'blk.0.ffn_down_exps.scale'"},
    {"fused_experts_of_another_width", "gemma4-moe", SET("gemma4.expert_feed_forward_length", 23),
     "'blk.0.ffn_gate_up_exps.weight' is"},
    {"a_branch_norm_away", "gemma4-moe", REMOVE_TENSOR("blk.0.post_ffw_norm_2.weight"),
     "'blk.0.post_ffw_norm_2.weight' is missing"},
    {"the_router_s_scale_away", "gemma4-moe", REMOVE_TENSOR("blk.0.ffn_gate_inp.scale"),
     "'blk.0.ffn_gate_inp.scale' is missing"},
    // recurrent layers
    {"key_heads_that_do_not_divide", "qwen35", SET("qwen35.ssm.group_count", 3),
     "qwen35.ssm.time_step_rank: 4 is no multiple of qwen35.ssm.group_count = 3"},
    {"no_key_heads", "qwen35", SET("qwen35.ssm.group_count", 0), "qwen35.ssm.group_count: 0 is outside"},
    {"fewer_key_heads", "qwen35", SET("qwen35.ssm.group_count", 1), "'blk.0.attn_qkv.weight' is"},
    {"fewer_value_heads", "qwen35", SET("qwen35.ssm.time_step_rank", 2), "'blk.0.ssm_alpha.weight' is"},
    {"keys_of_another_size", "qwen35", SET("qwen35.ssm.state_size", 8), "'blk.0.attn_qkv.weight' is"},
    {"values_that_do_not_divide", "qwen35", SET("qwen35.ssm.inner_size", 66),
     "qwen35.ssm.inner_size: 66 is no multiple of qwen35.ssm.time_step_rank = 4"},
    {"values_of_another_size", "qwen35", SET("qwen35.ssm.inner_size", 128), "'blk.0.attn_qkv.weight' is"},
    {"fewer_taps", "qwen35", SET("qwen35.ssm.conv_kernel", 3), "'blk.0.ssm_conv1d.weight' is 4×128"},
    {"taps_unstated", "qwen35", REMOVE_KEY("qwen35.ssm.conv_kernel"), "qwen35.ssm.conv_kernel: the key is missing"},
    {"flags_of_too_few_layers", "qwen35",
     [](RawGguf& f) { f.set("qwen35.attention.recurrent_layers", value(std::vector<uint32_t>{1, 1, 1})); },
     "qwen35.attention.recurrent_layers: 3 values for 4 layers"},
    {"flags_of_other_layers", "qwen35",
     [](RawGguf& f) { f.set("qwen35.attention.recurrent_layers", value(std::vector<uint32_t>{1, 1, 0, 1})); },
     "'blk.2.attn_qkv.weight' is 64"},
    {"another_interval", "qwen35",
     [](RawGguf& f) {
       f.remove("qwen35.attention.recurrent_layers");
       f.set("qwen35.full_attention_interval", value(uint32_t{2}));
     },
     "'blk.1.attn_qkv.weight' is 64"},
    {"no_room_for_the_gate_in_q", "qwen35", SET("qwen35.attention.key_length", 16), "'blk.3.attn_q.weight' is"},
    {"decay_away", "qwen35", REMOVE_TENSOR("blk.1.ssm_a"), "'blk.1.ssm_a' is missing"},
    {"an_early_converter_s_tensor_of_another_size", "qwen3next",
     [](RawGguf& f) { f.tensor("blk.0.attn_qkv.weight").name = "blk.0.ssm_in.weight"; }, "'blk.0.ssm_in.weight' is"},
    {"the_other_order_of_heads", "qwen3next",
     [](RawGguf& f) { f.tensor("blk.0.ssm_ba.weight").name = "blk.0.ssm_beta.weight"; },
     "'blk.0.ssm_ba.weight' is missing"},
};

#undef SET
#undef REMOVE_TENSOR
#undef REMOVE_KEY

struct Loaded {
  TemporaryFolder folder;
  std::optional<gguf::File> file;  // what the model points into
  Result<Model> model = Model();
};

void load_raw(Loaded& loaded, const RawGguf& raw) {
  auto file = gguf::File::open(loaded.folder.write("model.gguf", raw.bytes()));
  ASSERT_TRUE(file) << file.error().message;
  loaded.file = std::move(*file);
  loaded.model = model::load(*loaded.file);
}

class MixtureContradictions : public testing::TestWithParam<Contradiction> {};

TEST_P(MixtureContradictions, are_refused_by_name) {
  RawGguf raw = read_raw(golden_path(GetParam().golden, ".gguf"));
  GetParam().change(raw);
  Loaded loaded;
  load_raw(loaded, raw);
  ASSERT_FALSE(loaded.model);
  EXPECT_THAT(loaded.model.error().message, testing::HasSubstr(GetParam().words));
}

INSTANTIATE_TEST_SUITE_P(Table, MixtureContradictions, testing::ValuesIn(kContradictions),
                         [](const auto& tested) { return std::string(tested.param.name); });

const program::MixExperts& first_mixture(const program::Program& program) {
  for (const program::Step& s : program.steps)
    if (const auto* m = std::get_if<program::MixExperts>(&s.op)) return *m;
  ADD_FAILURE() << "no mixture";
  static const program::MixExperts none;
  return none;
}

TEST(Mixtures, what_a_file_says_of_the_weights_is_heeded) {
  RawGguf raw = read_raw(golden_path("qwen3moe", ".gguf"));
  raw.set("qwen3moe.expert_weights_norm", value(false));
  raw.set("qwen3moe.expert_weights_scale", value(2.5f));
  Loaded loaded;
  load_raw(loaded, raw);
  ASSERT_TRUE(loaded.model) << loaded.model.error().message;
  const program::Program& program = loaded.model->program;
  const program::Router& router = first_mixture(program).router;
  EXPECT_EQ(router.routing, program::Routing::kSoftmaxTopK);
  ASSERT_TRUE(router.expert_scale);
  EXPECT_EQ(program.vectors[*router.expert_scale].values, std::vector<float>(8, 2.5f));

  raw.set("qwen3moe.expert_weights_norm", value(true));
  raw.set("qwen3moe.expert_weights_scale", value(0.0f));  // not set
  load_raw(loaded, raw);
  ASSERT_TRUE(loaded.model) << loaded.model.error().message;
  EXPECT_EQ(first_mixture(loaded.model->program).router.routing, program::Routing::kTopKSoftmax);
  EXPECT_FALSE(first_mixture(loaded.model->program).router.expert_scale);
}

TEST(Mixtures, numbers_may_be_of_any_width_and_by_layer) {
  RawGguf raw = read_raw(golden_path("qwen35moe", ".gguf"));
  raw.set("qwen35moe.expert_count", value(uint64_t{5}));
  raw.set("qwen35moe.expert_used_count", value(std::vector<int32_t>{3, 2, 1, 5}));
  raw.set("qwen35moe.expert_feed_forward_length", value(std::vector<uint16_t>(4, 24)));
  raw.set("qwen35moe.ssm.group_count", value(int8_t{2}));
  raw.set("qwen35moe.attention.recurrent_layers", value(std::vector<int32_t>{1, 1, 0, 1}));
  Loaded loaded;
  load_raw(loaded, raw);
  ASSERT_TRUE(loaded.model) << loaded.model.error().message;
  std::vector<uint32_t> chosen;
  for (const program::Step& s : loaded.model->program.steps)
    if (const auto* m = std::get_if<program::MixExperts>(&s.op)) chosen.push_back(m->router.top_k);
  EXPECT_THAT(chosen, testing::ElementsAre(3, 2, 1, 5));
}

TEST(Mixtures, a_layer_that_predicts_further_tokens_is_left_out) {
  RawGguf raw = read_raw(golden_path("qwen35", ".gguf"));
  raw.set("qwen35.block_count", value(uint32_t{5}));
  raw.set("qwen35.nextn_predict_layers", value(uint32_t{1}));
  raw.set("qwen35.attention.recurrent_layers", value(std::vector<uint32_t>{1, 1, 1, 0, 0}));
  raw.tensors.push_back({"blk.4.nextn.eh_proj.weight", 0, {8}, std::string(32, '\0'), {}, {}});
  Loaded loaded;
  load_raw(loaded, raw);
  ASSERT_TRUE(loaded.model) << loaded.model.error().message;
  EXPECT_EQ(loaded.model->summary.n_layers, 4u);
  EXPECT_EQ(loaded.model->program.states.size(), 3u);
  EXPECT_THAT(loaded.model->summary.notes,
              testing::ElementsAre(testing::HasSubstr("layers from 4 on (1 tensor) predict further tokens")));
}

}  // namespace
}  // namespace honeycrisp::model
