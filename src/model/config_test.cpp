// Configurations that contradict the tensors beside them: the error names the key or tensor at fault.
#include "model/model.h"
#include "support/temporary_folder.h"
#include "support/tiny_gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <string>

namespace honeycrisp::model {
namespace {

using namespace test_support;

struct Contradiction {
  const char* name;
  void (*change)(RawGguf&);
  const char* words;
};

const Contradiction kContradictions[] = {
    {"fewer_layers_than_tensors", [](RawGguf& f) { f.set("llama.block_count", value(uint32_t{1})); },
     "llama.block_count: 1 layers, but the file has tensor 'blk.1."},
    {"more_layers_than_tensors", [](RawGguf& f) { f.set("llama.block_count", value(uint32_t{3})); }, "'blk.2."},
    {"layers_beyond_all_tensors", [](RawGguf& f) { f.set("llama.block_count", value(uint32_t{4096})); },
     "llama.block_count"},
    {"no_layers", [](RawGguf& f) { f.set("llama.block_count", value(uint32_t{0})); }, "llama.block_count"},
    {"layers_as_text", [](RawGguf& f) { f.set("llama.block_count", value("2")); }, "llama.block_count"},
    {"negative_width", [](RawGguf& f) { f.set("llama.embedding_length", value(int32_t{-1})); },
     "llama.embedding_length"},
    {"width_past_the_table", [](RawGguf& f) { f.set("llama.embedding_length", value(uint32_t{128})); },
     "tensor 'token_embd.weight' is"},
    {"heads_that_do_not_divide", [](RawGguf& f) { f.set("llama.attention.head_count_kv", value(uint32_t{3})); },
     "llama.attention.head_count"},
    {"heads_of_too_many_layers",
     [](RawGguf& f) { f.set("llama.attention.head_count_kv", value(std::vector<uint32_t>(100, 2))); },
     "llama.attention.head_count_kv"},
    {"feed_forward_of_another_size", [](RawGguf& f) { f.set("llama.feed_forward_length", value(uint32_t{127})); },
     "ffn_gate.weight"},
    {"epsilon_not_a_number",
     [](RawGguf& f) {
       f.set("llama.attention.layer_norm_rms_epsilon", value(std::numeric_limits<float>::quiet_NaN()));
     },
     "llama.attention.layer_norm_rms_epsilon"},
    {"values_that_differ_by_layer",
     [](RawGguf& f) { f.set("llama.embedding_length", value(std::vector<uint32_t>{64, 32})); },
     "llama.embedding_length: one value for all layers"},
    {"every_layer_predicts_further_tokens", [](RawGguf& f) { f.set("llama.nextn_predict_layers", value(uint32_t{2})); },
     "llama.nextn_predict_layers: 2 is outside 0..1"},
    {"a_scale_beside_a_weight",
     [](RawGguf& f) { f.tensors.push_back({"blk.1.ffn_up.scale", 0, {1}, std::string(4, '\0'), {}, {}}); },
     "'blk.1.ffn_up.scale': weights with a scale of their own"},
    {"a_tensor_away", [](RawGguf& f) { f.remove_tensor("blk.1.ffn_up.weight"); }, "'blk.1.ffn_up.weight' is missing"},
};

class Contradictions : public testing::TestWithParam<Contradiction> {};

TEST_P(Contradictions, are_refused_by_name) {
  RawGguf raw = tiny_llama();
  GetParam().change(raw);
  const TemporaryFolder folder;
  const auto file = gguf::File::open(folder.write("model.gguf", raw.bytes()));
  ASSERT_TRUE(file) << file.error().message;
  const auto model = load(*file);
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, testing::HasSubstr(GetParam().words));
}

INSTANTIATE_TEST_SUITE_P(Table, Contradictions, testing::ValuesIn(kContradictions),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(Notes, name_a_tensor_that_nothing_uses) {
  RawGguf raw = tiny_llama();
  raw.tensors.push_back({"blk.1.attn_gate.weight", 0, {8}, std::string(32, '\0'), {}, {}});
  const TemporaryFolder folder;
  const auto file = gguf::File::open(folder.write("model.gguf", raw.bytes()));
  ASSERT_TRUE(file) << file.error().message;
  const auto model = load(*file);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_THAT(model->summary.notes, testing::ElementsAre(testing::HasSubstr("'blk.1.attn_gate.weight' is not used")));
}

TEST(Notes, tell_of_layers_that_predict_further_tokens) {
  RawGguf raw = tiny_llama();
  raw.set("llama.nextn_predict_layers", value(uint32_t{1}));
  raw.set("llama.attention.head_count_kv", value(std::vector<uint32_t>(2, 2)));  // of both
  const TemporaryFolder folder;
  const auto file = gguf::File::open(folder.write("model.gguf", raw.bytes()));
  ASSERT_TRUE(file) << file.error().message;
  const auto model = load(*file);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->program.n_layers, 1u);
  EXPECT_THAT(model->summary.notes, testing::ElementsAre(testing::HasSubstr("layers from 1 on (9 tensors) predict")));
}

}  // namespace
}  // namespace honeycrisp::model
