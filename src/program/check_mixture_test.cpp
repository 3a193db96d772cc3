// The check of recurrent layers and mixtures of experts, and the bytes that they count.
#include "program/check.h"
#include "program/testing.h"

namespace honeycrisp::program {
namespace {

using testing::Fault;

constexpr uint32_t kWidth = 64, kVocabulary = 10, kExperts = 4, kChosen = 2, kHidden = 32, kShared = 96;
constexpr uint32_t kKeyHeads = 2, kHeads = 4, kKeyDim = 8, kValueDim = 16, kTaps = 4;
constexpr uint32_t kKeys = kKeyHeads * kKeyDim, kValues = kHeads * kValueDim, kChannels = 2 * kKeys + kValues;

enum Buffers : BufferId { kX, kDelta, kGates, kOut };
enum Steps : size_t { kEmbedStep, kInputStep, kDeltaStep, kOutputStep, kMixStep, kLogitsStep };

uint64_t bytes_of(uint64_t cols, uint64_t rows) { return rows * (cols / 32 * 34); }  // Q8_0

/// One recurrent layer, one mixture. No data: the check does not read any.
Program make_program() {
  Program p;
  p.n_layers = 1;
  p.vocabulary = kVocabulary;
  p.buffers = {{"x", kWidth}, {"delta", kChannels + kValues}, {"gates", 2 * kHeads}, {"out", kValues}};
  p.states = {{kHeads, kKeyDim, kValueDim, kChannels, kTaps}};
  const auto vector = [&p](const char* name, size_t size) {
    p.vectors.push_back({name, std::vector<float>(size, 1.0f)});
    return VectorId(p.vectors.size() - 1);
  };
  const auto matrix = [&p](const char* name, uint32_t cols, uint32_t rows, uint32_t slices = 1) {
    p.weights.push_back({name, quant::Format::kQ8_0, cols, rows, slices, nullptr, slices * bytes_of(cols, rows)});
    return Matrix{WeightId(p.weights.size() - 1), 0, rows};
  };
  const Slice x{kX, 0, kWidth}, qkv{kDelta, 0, kChannels}, z{kDelta, kChannels, kValues}, out{kOut, 0, kValues};
  const Norm norm{vector("norm", kWidth), 1e-5f};
  const Matrix table = matrix("embed", kWidth, kVocabulary);

  DeltaNet delta;
  delta.n_key_heads = kKeyHeads;
  delta.qkv = qkv, delta.z = z, delta.out = out;
  delta.gate_run = 2, delta.gate_stride = 4;  // two key heads: [β β α α] each
  delta.beta = {kGates, 0, 6}, delta.alpha = {kGates, 2, 6};
  delta.conv = vector("conv", kChannels * kTaps);
  delta.a = vector("a", kHeads), delta.dt_bias = vector("dt_bias", kHeads);
  delta.norm = {vector("delta norm", kValueDim), 1e-6f};

  MixExperts mix;
  mix.in = x;
  mix.input_norm = norm;
  mix.router = {.norm = norm,
                .matrix = matrix("router", kWidth, kExperts),
                .bias = vector("router bias", kExperts),
                .routing = Routing::kTopKSoftmax,
                .top_k = kChosen,
                .expert_scale = vector("expert scale", kExperts)};
  mix.gate = matrix("gate", kWidth, kHidden, kExperts);
  mix.up = matrix("up", kWidth, kHidden, kExperts);
  mix.down = matrix("down", kHidden, kWidth, kExperts);
  mix.down_bias = vector("down bias", kExperts * kWidth);
  mix.shared = SharedExpert{matrix("shared gate", kWidth, kShared), matrix("shared up", kWidth, kShared),
                            matrix("shared down", kShared, kWidth), matrix("shared scale", kWidth, 1)};
  mix.ending = {x};

  p.steps = {
      {Embed{table, x}, "embed", {}},
      {Project{x,
               norm,
               {matrix("qkv", kWidth, kChannels), matrix("z", kWidth, kValues), matrix("ba", kWidth, 8)},
               {{}, {}, {}},
               Store{{qkv, z, {kGates, 0, 8}}}},
       "input", 0},
      {delta, "delta", 0},
      {Project{out, {}, {matrix("output", kValues, kWidth)}, {{}}, Residual{x}}, "output", 0},
      {mix, "experts", 0},
      {Logits{x, norm, table}, "logits", {}},
  };
  return p;
}

DeltaNet& delta(Program& p) { return std::get<DeltaNet>(p.steps[kDeltaStep].op); }
MixExperts& mix(Program& p) { return std::get<MixExperts>(p.steps[kMixStep].op); }

const std::vector<Fault>& faults() {
  static const std::vector<Fault> table = {
      {"no_such_state", "delta: no such recurrent layer", [](Program& p) { delta(p).state = 1; }},
      {"state_advanced_twice", "delta: recurrent layer 0 is advanced twice",
       [](Program& p) { p.steps.insert(p.steps.begin() + kDeltaStep, p.steps[kDeltaStep]); }},
      {"state_without_taps", "without a geometry", [](Program& p) { p.states[0].kernel_size = 0; }},
      {"state_out_of_proportion", "out of all proportion",
       [](Program& p) { p.states[0].n_heads = p.states[0].key_dim = p.states[0].value_dim = 1u << 31; }},
      {"key_heads_that_do_not_divide", "4 value heads are no multiple of 3",
       [](Program& p) { delta(p).n_key_heads = 3; }},
      {"channels_that_are_not_q_k_v", "but q, k and v have", [](Program& p) { p.states[0].channels += 1; }},
      {"gates_past_their_slice", "alpha: 6 columns, expected 7", [](Program& p) { delta(p).gate_stride = 5; }},
      {"runs_that_do_not_divide", "in runs of 3", [](Program& p) { delta(p).gate_run = 3; }},
      {"short_convolution", "convolution conv has", [](Program& p) { p.vectors[delta(p).conv].values.pop_back(); }},
      {"short_decay", "decay a has 3 values", [](Program& p) { p.vectors[delta(p).a].values.pop_back(); }},
      {"output_over_its_gate", "buffer delta is read and written", [](Program& p) { delta(p).out = delta(p).z; }},
      {"more_chosen_than_there_are", "experts: the 5 best of 4 experts", [](Program& p) { mix(p).router.top_k = 5; }},
      {"none_chosen", "the 0 best of 4", [](Program& p) { mix(p).router.top_k = 0; }},
      {"experts_without_slices", "experts' gate router has 1 slices, expected 4",
       [](Program& p) { mix(p).gate = mix(p).router.matrix; }},
      {"unequal_gate_and_up", "gate has 32 rows, up has 16", [](Program& p) { mix(p).up.rows = 16; }},
      {"down_of_another_width", "experts' down down has 32 columns, its input 16",
       [](Program& p) { mix(p).gate.rows = mix(p).up.rows = 16; }},
      {"short_bias", "experts' down bias down bias has",
       [](Program& p) { p.vectors[*mix(p).down_bias].values.pop_back(); }},
      {"shared_of_another_width", "the shared expert gives 32 values, the experts 64",
       [](Program& p) { mix(p).shared->down.rows = 32; }},
      {"shared_scale_of_two", "scale has 2 rows",
       [](Program& p) { mix(p).shared->scale = mix(p).router.matrix, mix(p).shared->scale->rows = 2; }},
      {"dense_branch_of_another_width", "dense branch: 63 columns", [](Program& p) { mix(p).add = Slice{kX, 0, 63}; }},
      {"rows_past_an_expert", "has 32 rows, needs 32 from 1", [](Program& p) { mix(p).gate.first_row = 1; }},
  };
  return table;
}

class FaultyMixture : public ::testing::TestWithParam<Fault> {};

TEST_P(FaultyMixture, is_refused_by_name) { testing::expect_refused_by_name(make_program(), GetParam()); }

INSTANTIATE_TEST_SUITE_P(Table, FaultyMixture, ::testing::ValuesIn(faults()), testing::fault_name);

TEST(MixtureCheck, a_valid_program_passes) {
  const Result<void> checked = check(make_program());
  EXPECT_TRUE(checked) << checked.error().message;
}

TEST(MixtureBytes, count_the_chosen_experts_and_the_whole_of_the_shared_one) {
  const Program p = make_program();
  const uint64_t expert = 2 * bytes_of(kWidth, kHidden) + bytes_of(kHidden, kWidth);
  const uint64_t shared = 2 * bytes_of(kWidth, kShared) + bytes_of(kShared, kWidth) + bytes_of(kWidth, 1);
  EXPECT_EQ(weight_bytes(p, p.steps[kMixStep].op), bytes_of(kWidth, kExperts) + kChosen * expert + shared);
  EXPECT_EQ(state_bytes(p), (kHeads * kKeyDim * kValueDim + kChannels * (kTaps - 1)) * sizeof(float));
}

}  // namespace
}  // namespace honeycrisp::program
