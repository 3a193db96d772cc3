// The bits of results against constants: every instruction set of every machine gives them, whatever the chunks, the
// threads and the neighbours. A change of the arithmetic changes the constants; a failing test tells the new ones.
#include "support/bits.h"

#include "backend/cpu/testing.h"
#include "support/op_cases.h"

#include <map>
#include <string>

namespace honeycrisp::backend::cpu {
namespace {

using namespace testing;
using namespace program;
using quant::Format;

constexpr CacheType kCacheTypes[] = {CacheType::kF32, CacheType::kF16, CacheType::kQ8_0};

const std::map<std::string, uint64_t>& case_bits() {
  static const std::map<std::string, uint64_t> all = {
      {"store_of_three_matrices_of_a_format", 0x21ba791233d650ec},
      {"store_of_mixed_formats", 0x45a6f185b7b5cf11},
      {"store_with_norm_per_slice_addend_and_scales", 0x1f51d5806d0ba20e},
      {"store_over_its_input_with_norm_of_the_row", 0x81c077d15af7ce08},
      {"store_over_its_input_with_addend", 0x1d2256ac3b2b5c74},
      {"gate_silu_of_a_format", 0x02b9f7cd24dfbf41},
      {"gate_gelu_of_two_formats", 0x7513d2b755a8596c},
      {"gate_gelu_with_given_operand", 0x222852f4a0b2d7f5},
      {"gate_clamped_swiglu", 0x28fccb9f156eeca2},
      {"residual_with_scales", 0x3620679c79e30dd8},
      {"residual_over_its_input", 0x1f021c1bbb865a53},
      {"residual_with_post_norm", 0x33a19b005cc958ae},
      {"residual_of_an_unpacked_format", 0x71f03645983a074d},
      {"attend_grouped_queries", 0xd04b95622d898a40},
      {"attend_head_norms_and_half_split_rope", 0x487b9ca31d0404ac},
      {"attend_whole_norms_and_interleaved_rope", 0x8dc0f09fdf087ced},
      {"attend_partial_rope_v_norm_and_v_of_k", 0xead6ca10d35eb1d7},
      {"attend_window", 0xa84889372fda13a7},
      {"attend_window_of_three", 0xe0a141e1dacf255e},
      {"attend_softcap_and_sinks", 0x4229f9129a6b6551},
      {"attend_temperature_by_position", 0x6d30e68f0a1a1d1b},
      {"attend_output_gate", 0x9e99c5ef97f4c9ea},
      {"attend_reading_another_layer", 0x02f49a8664afedbe},
      {"delta_net_of_one_head", 0x6cfbc8254b564be6},
      {"delta_net_heads_by_remainder", 0x5703a971890b740a},
      {"delta_net_grouped_heads_and_gates_in_runs", 0xe9a6099c471732aa},
      {"delta_net_large_heads", 0x58aa4805be025a41},
      {"delta_net_five_heads_of_odd_sizes", 0x7bc2fe115274b2cf},
      {"delta_net_without_past_inputs", 0xd0f03d169388b675},
      {"delta_net_of_two_taps", 0x7ba778ed96de6896},
      {"delta_net_after_another", 0x1c871f5abde1a9f6},
      {"mix_experts_of_one", 0x1ab3a8dbe45beda0},
      {"mix_experts_best_of_nine", 0x68674770e97e67f8},
      {"mix_experts_all_of_five", 0x2b54b5c1ff274b27},
      {"mix_experts_more_than_a_panel", 0xd586ef7cd5960757},
      {"mix_experts_softmax_of_the_chosen", 0x52eaafd4c21fb7f7},
      {"mix_experts_odd_hidden_size_and_biases", 0x733298849b0d1871},
      {"mix_experts_gate_and_up_in_one_tensor", 0x1091899376c047b4},
      {"mix_experts_router_with_norm_and_scales", 0x25430784d2bb944a},
      {"mix_experts_quantized_router", 0x6b46f37156346a4f},
      {"mix_experts_shared_expert", 0x98cbf52fb896946e},
      {"mix_experts_scaled_shared_expert_of_another_format", 0x445b4d8414334892},
      {"mix_experts_norms_dense_branch_and_scales", 0xfc27fdbd1d37183b},
      {"mix_experts_dense_branch_without_norms", 0xf0aed5f07cd2e513},
      {"mix_experts_input_without_norm_added_to_itself", 0x11ca954d654a8f0d},
      {"mix_experts_of_F32", 0x5c5d6da67502de14},
      {"mix_experts_of_F16", 0x9deff75321be097a},
      {"mix_experts_of_Q4_0", 0x29bf783fbfa8b7f1},
      {"mix_experts_of_Q4_1", 0xecfd35f60f69f913},
      {"mix_experts_of_Q5_0", 0xe2121cfd12fac7f9},
      {"mix_experts_of_Q5_1", 0x052d0c1b34babd4f},
      {"mix_experts_of_Q8_0", 0x028edfac058b2ca4},
      {"mix_experts_of_Q2_K", 0xe19c4018f374bcaa},
      {"mix_experts_of_Q3_K", 0xaa28cfbeb5847535},
      {"mix_experts_of_Q4_K", 0x54a6eb45883d1f60},
      {"mix_experts_of_Q5_K", 0x0b06acd091995892},
      {"mix_experts_of_Q6_K", 0x8a5df273bff04613},
      {"mix_experts_of_IQ2_XXS", 0xa35b64a9edcfc90a},
      {"mix_experts_of_IQ2_XS", 0x19c551107b557b5b},
      {"mix_experts_of_IQ3_XXS", 0x7a5cb985db44deca},
      {"mix_experts_of_IQ1_S", 0x07c2c96b4855185f},
      {"mix_experts_of_IQ4_NL", 0x7fd57b47be14789e},
      {"mix_experts_of_IQ3_S", 0x7f4d518b6377479e},
      {"mix_experts_of_IQ2_S", 0x4523771fd80aa60c},
      {"mix_experts_of_IQ4_XS", 0xc5756ca04fa90725},
      {"mix_experts_of_IQ1_M", 0x12a3d706012097cf},
      {"mix_experts_of_BF16", 0xdecf9196509baefa},
      {"mix_experts_of_TQ1_0", 0xa274b17a7085a743},
      {"mix_experts_of_TQ2_0", 0xe3b09190537ace6b},
      {"mix_experts_of_MXFP4", 0x520842d0a93392ee},
      {"mix_experts_of_NVFP4", 0x92c301e279fa0cf5},
  };
  return all;
}

class Bits : public ::testing::TestWithParam<size_t> {};

TEST_P(Bits, of_an_op_are_the_same_on_every_machine) {
  const OpCase& op_case = op_cases()[GetParam()];
  const TinyProgram t = op_case.build();
  const auto expected = case_bits().find(op_case.name);
  for (const Isa* isa : tested_isas()) {
    uint64_t hash = kNoBits;
    for (CacheType type : kCacheTypes) {
      hash = hash_bits(all_logits(*make(t, *isa, 2, type), t.program, op_case.positions, 50), hash);
      if (t.program.caches.empty()) break;
    }
    EXPECT_EQ(hash, expected == case_bits().end() ? 0 : expected->second)
        << isa->name << fmt::format(": {{\"{}\", 0x{:016x}}},", op_case.name, hash);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Bits, ::testing::Range(size_t{0}, op_cases().size()),
                         [](const auto& param_info) { return op_cases()[param_info.param].name; });

TEST(Bits, have_a_constant_for_each_op_case_and_for_no_other) { EXPECT_EQ(case_bits().size(), op_cases().size()); }

// ---- whole layers at every chunk size

struct Decoder {
  const char* name;
  uint32_t width, head_dim, window, hidden, positions;
  Format attention, gate, up, down;
  uint64_t bits[std::size(kCacheTypes)];  // 0: a head that is no whole block of q8_0
};

constexpr uint32_t kThreeChunks = 530, kTwoChunks = 270;  // of attention, the last of them not whole
constexpr uint32_t kMostRows = 512;

const Decoder kDecoders[] = {
    {"heads_of_64",
     96,
     64,
     0,
     160,
     kThreeChunks,
     Format::kQ4_1,
     Format::kQ4_0,
     Format::kQ4_0,
     Format::kQ8_0,
     {0x55f0d4b9845e57c2, 0x3668149495387eb4, 0x754dfe26676a5811}},
    {"heads_of_72_and_window",
     160,
     72,
     150,
     224,
     kThreeChunks,
     Format::kQ5_0,
     Format::kMXFP4,
     Format::kIQ4_NL,
     Format::kQ5_1,
     {0xea7fb7d077230100, 0x14a39d2362a6c4d7}},
    {"heads_of_256",
     256,
     256,
     0,
     512,
     kTwoChunks,
     Format::kQ4_K,
     Format::kQ5_K,
     Format::kQ3_K,
     Format::kQ6_K,
     {0x37b3d4c091b3071c, 0x5c64fa3fd80ffced, 0x2d1cd1611a574420}},
    {"heads_of_30",
     100,
     30,
     60,
     110,
     kThreeChunks,
     Format::kF16,
     Format::kBF16,
     Format::kF32,
     Format::kF16,
     {0x79af6293c7b62c8c, 0xf19e96dfb6927b2a}},
};

TinyProgram build(const Decoder& d) {
  TinyProgram t(d.width);
  t.head_dim = d.head_dim;
  for (uint32_t layer = 0; layer < 2; ++layer) {
    t.attention(
        [&](TinyProgram& tiny, Attend& a) {
          a.q_norm = tiny.norm(d.head_dim);
          a.k_norm = tiny.norm(d.head_dim);
          a.rope = tiny.rope(layer == 1, d.head_dim / 2 - layer, d.head_dim / 2);
          if (layer == 1) a.softcap = 20;
        },
        layer == 0 ? d.window : 0);
    const BufferId hidden = t.buffer(d.hidden);
    t.add(Project{t.all(0),
                  t.norm(t.width),
                  {t.matrix(d.gate, d.hidden, t.width), t.matrix(d.up, d.hidden, t.width)},
                  {std::nullopt, std::nullopt},
                  Gate{layer == 0 ? Activation::kSilu : Activation::kGeluTanh, std::nullopt, t.all(hidden)}},
          "gate");
    t.residual(t.matrix(d.down, t.width, d.hidden), t.all(hidden), {.branch_scale = 0.2f});
    t.residual(t.matrix(d.attention, t.width, t.width), t.all(0), {.branch_scale = 0.2f});
  }
  t.finish();
  return t;
}

class DecoderBits : public ::testing::TestWithParam<size_t> {
 protected:
  void expect(const std::vector<float>& logits, size_t type, const std::string& what) const {
    const uint64_t hash = hash_bits(logits);
    EXPECT_EQ(hash, decoder_.bits[type]) << decoder_.name << ", " << to_string(kCacheTypes[type]) << ", " << what
                                         << fmt::format(": 0x{:016x}", hash);
  }
  const Decoder& decoder_ = kDecoders[GetParam()];
  const TinyProgram tiny_ = build(decoder_);
};

TEST_P(DecoderBits, are_the_same_on_every_machine) {
  for (size_t type = 0; type < std::size(kCacheTypes); ++type) {
    if (decoder_.bits[type] == 0) continue;
    for (const Isa* isa : tested_isas())
      expect(
          all_logits(*make(tiny_, *isa, 2, kCacheTypes[type], kMostRows), tiny_.program, decoder_.positions, kMostRows),
          type, isa->name);
  }
}

TEST_P(DecoderBits, are_the_same_in_chunks_of_any_size_on_any_number_of_threads) {
  const std::pair<uint32_t, std::vector<uint32_t>> kChunksByThreads[] = {
      {1, {1, 3, 8, 64, 257, 512}}, {2, {2, 9, 33, 100, 255}}, {3, {5, 16, 256}}, {5, {7, 511}}};
  for (const auto& [threads, chunks] : kChunksByThreads) {
    const auto executor = make(tiny_, *available_isas()[0], threads, CacheType::kF16, kMostRows);
    for (const uint32_t chunk : chunks)
      expect(all_logits(*executor, tiny_.program, decoder_.positions, chunk), 1,
             fmt::format("{} threads, chunks of {}", threads, chunk));
  }
}

TEST_P(DecoderBits, are_the_same_beside_other_sequences) {
  const auto executor = make(tiny_, *available_isas()[0], 2, CacheType::kF16, kMostRows);
  Sequences sequences(*executor, tiny_.program, 3, decoder_.positions);
  std::vector<float> logits(size_t{decoder_.positions} * TinyProgram::kVocabulary);
  for (uint32_t first = 0, count = 1; first < decoder_.positions; first += count, count = 1 + count * 3 % 37) {
    count = std::min(count, decoder_.positions - first);
    std::vector<Row> rows;
    for (uint32_t i = first; i < first + count; ++i) {  // those of the others in between, and one of them behind
      rows.push_back(row(i));
      if (i % 2 == 0) rows.push_back(row(i / 2, 1));
      rows.push_back(row(i, 2));
    }
    const std::vector<float> all = sequences.step(rows);
    for (size_t i = 0; i < rows.size(); ++i)
      if (rows[i].sequence == 0)
        std::copy_n(&all[i * TinyProgram::kVocabulary], TinyProgram::kVocabulary,
                    &logits[size_t{rows[i].position} * TinyProgram::kVocabulary]);
  }
  expect(logits, 1, "beside others");
}

INSTANTIATE_TEST_SUITE_P(All, DecoderBits, ::testing::Range(size_t{0}, std::size(kDecoders)),
                         [](const auto& param_info) { return std::string(kDecoders[param_info.param].name); });

}  // namespace
}  // namespace honeycrisp::backend::cpu
