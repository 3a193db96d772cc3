// The check of programs: a valid one of every op passes, and each single fault in it is refused by name.
#include "program/check.h"

#include "program/testing.h"

#include <cmath>
#include <limits>

namespace honeycrisp::program {
namespace {

using testing::Fault;

constexpr uint32_t kWidth = 64, kHidden = 96, kVocabulary = 10, kHeads = 4, kKvHeads = 2, kHeadDim = 16;
constexpr uint32_t kQ = kHeads * kHeadDim, kKv = kKvHeads * kHeadDim;

enum Buffers : BufferId { kX, kQkv, kAttn, kHiddenBuffer };
enum Steps : size_t { kEmbedStep, kQkvStep, kAttendStep, kOutputStep, kGateStep, kDownStep, kLogitsStep };

/// One layer of every op. No data: the check does not read any.
Program make_program() {
  Program p;
  p.n_layers = 1;
  p.vocabulary = kVocabulary;
  p.buffers = {{"x", kWidth}, {"qkv", kQ + 2 * kKv}, {"attn", kQ}, {"hidden", kHidden}};
  p.vectors = {{"norm", std::vector<float>(kWidth, 1.0f)}, {"head norm", std::vector<float>(kHeadDim, 1.0f)}};
  Rope rope;
  rope.pair_distance = kHeadDim / 2;
  rope.inverse_frequency.assign(kHeadDim / 2, 0.5);
  p.ropes = {rope};
  p.caches = {{kKvHeads, kHeadDim, kHeadDim}};
  const auto matrix = [&p](const char* name, uint32_t cols, uint32_t rows) {
    p.weights.push_back({name, quant::Format::kQ8_0, cols, rows, 1, nullptr, rows * (cols / 32 * 34)});
    return Matrix{WeightId(p.weights.size() - 1), 0, rows};
  };
  const Slice x{kX, 0, kWidth}, q{kQkv, 0, kQ}, k{kQkv, kQ, kKv}, v{kQkv, kQ + kKv, kKv};
  const Slice attn{kAttn, 0, kQ}, hidden{kHiddenBuffer, 0, kHidden};
  const Norm norm{0, 1e-5f}, head_norm{1, 1e-5f};
  const Matrix table = matrix("embed", kWidth, kVocabulary);
  Attend attend;
  attend.n_heads = kHeads;
  attend.q = q, attend.k = k, attend.v = v, attend.out = attn;
  attend.q_norm = attend.k_norm = head_norm;
  attend.rope = 0;
  p.steps = {
      {Embed{table, x}, "embed", {}},
      {Project{x,
               norm,
               {matrix("q", kWidth, kQ), matrix("k", kWidth, kKv), matrix("v", kWidth, kKv)},
               {{}, {}, {}},
               Store{{q, k, v}}},
       "qkv", 0},
      {attend, "attend", 0},
      {Project{attn, {}, {matrix("o", kQ, kWidth)}, {{}}, Residual{x}}, "output", 0},
      {Project{x,
               norm,
               {matrix("gate", kWidth, kHidden), matrix("up", kWidth, kHidden)},
               {{}, {}},
               Gate{Activation::kSilu, {}, hidden}},
       "gate_up", 0},
      {Project{hidden, {}, {matrix("down", kHidden, kWidth)}, {{}}, Residual{x}}, "down", 0},
      {Logits{x, norm, table}, "logits", {}},
  };
  assign_pools(p);
  return p;
}

template <class Op>
Op& op(Program& p, size_t step) {
  return std::get<Op>(p.steps[step].op);
}

const std::vector<Fault>& faults() {
  static const std::vector<Fault> table = {
      {"no_logits", "does not end in logits", [](Program& p) { p.steps.pop_back(); }},
      {"layer_outside", "qkv: layer 1 of 1", [](Program& p) { p.steps[kQkvStep].layer = 1; }},
      {"weight_without_rows", "empty dimension", [](Program& p) { p.weights[0].rows = 0; }},
      {"weight_of_other_bytes", "do not match its shape", [](Program& p) { ++p.weights[0].bytes; }},
      {"weight_of_broken_blocks", "no multiple of Q8_0's block", [](Program& p) { p.weights[0].cols = 65; }},
      {"short_embedding", "embed: an embedding of 9 rows", [](Program& p) { op<Embed>(p, kEmbedStep).table.rows = 9; }},
      {"rows_past_a_weight", "has 10 rows, needs 10 from 1",
       [](Program& p) { op<Embed>(p, kEmbedStep).table.first_row = 1; }},
      {"read_before_written", "qkv: input: buffer x is read before",
       [](Program& p) { p.steps.erase(p.steps.begin()); }},
      {"slice_past_a_buffer", "outside buffer x of 64", [](Program& p) { op<Project>(p, kQkvStep).in.column = 1; }},
      {"five_matrices", "5 matrices, expected 1 to 4",
       [](Program& p) {
         Project& project = op<Project>(p, kQkvStep);
         project.matrices.resize(5, project.matrices[0]);
       }},
      {"a_bias_too_few", "2 biases for 3", [](Program& p) { op<Project>(p, kQkvStep).biases.resize(2); }},
      {"norm_of_another_size", "input norm norm has 63 values", [](Program& p) { p.vectors[0].values.pop_back(); }},
      {"epsilon_nan", "epsilon nan",
       [](Program& p) { op<Logits>(p, kLogitsStep).norm.eps = std::numeric_limits<float>::quiet_NaN(); }},
      {"attention_over_its_query", "attend: buffer qkv is read and written",
       [](Program& p) { op<Attend>(p, kAttendStep).out = {kQkv, 0, kQ}; }},
      {"gate_of_unequal_rows", "gate has 96 rows, up has 64",
       [](Program& p) { op<Project>(p, kGateStep).matrices[1] = op<Project>(p, kQkvStep).matrices[0]; }},
      {"residual_of_two", "a residual takes 1",
       [](Program& p) {
         Project& project = op<Project>(p, kOutputStep);
         project.matrices.push_back(project.matrices[0]);
         project.biases.push_back({});
       }},
      {"heads_that_do_not_divide", "3 heads are no multiple",
       [](Program& p) { op<Attend>(p, kAttendStep).n_heads = 3; }},
      {"no_such_cache", "no such cache layer", [](Program& p) { op<Attend>(p, kAttendStep).cache = 1; }},
      {"cache_appended_twice", "is appended to twice",
       [](Program& p) { p.steps.insert(p.steps.begin() + kAttendStep, p.steps[kAttendStep]); }},
      {"cache_read_before_appended", "is read before it was appended to",
       [](Program& p) { op<Attend>(p, kAttendStep).k = op<Attend>(p, kAttendStep).v = std::nullopt; }},
      {"temperature_without_a_period", "temperature 0.1 every 0 positions",
       [](Program& p) { op<Attend>(p, kAttendStep).temperature = {.beta = 0.1, .period = 0}; }},
      {"window_wider_than_the_cache", "is wider than the cache's 8",
       [](Program& p) {
         p.caches[0].window = 8;
         op<Attend>(p, kAttendStep).window = 9;
       }},
      {"rope_wider_than_a_head", "does not fit a head of 16",
       [](Program& p) { p.ropes[0].inverse_frequency.resize(9, 1.0); }},
      {"rope_infinite", "holds the frequency inf", [](Program& p) { p.ropes[0].inverse_frequency[0] = INFINITY; }},
      {"other_vocabulary", "10 logits, the vocabulary has 9", [](Program& p) { p.vocabulary = 9; }},
  };
  return table;
}

class FaultyProgram : public ::testing::TestWithParam<Fault> {};

TEST_P(FaultyProgram, is_refused_by_name) { testing::expect_refused_by_name(make_program(), GetParam()); }

INSTANTIATE_TEST_SUITE_P(Table, FaultyProgram, ::testing::ValuesIn(faults()), testing::fault_name);

TEST(ProgramCheck, a_valid_program_passes) {
  const Result<void> checked = check(make_program());
  EXPECT_TRUE(checked) << checked.error().message;
}

TEST(ProgramCheck, a_store_may_add_to_its_own_output) {
  Program program = make_program();
  Project again = op<Project>(program, kQkvStep);
  Store& store = std::get<Store>(again.ending);
  again.matrices.resize(1), again.biases.resize(1), store.outs.resize(1);
  store.add = store.outs[0];
  program.steps.insert(program.steps.begin() + kAttendStep, {again, "add", 0});
  const Result<void> checked = check(program);
  EXPECT_TRUE(checked) << checked.error().message;
}

TEST(Pools, hold_the_layers_of_one_geometry_and_window) {
  Program program;
  program.caches = {{2, 16, 16, 0}, {2, 16, 16, 8}, {2, 16, 16, 0}, {1, 16, 16, 8}};
  assign_pools(program);
  ASSERT_EQ(program.pools.size(), 3u);
  EXPECT_EQ(program.pools[0].n_layers, 2u);
  EXPECT_EQ(program.caches[2].pool, 0u);
  EXPECT_EQ(program.caches[2].layer_in_pool, 1u);
  EXPECT_EQ(program.caches[3].pool, 2u);
}

TEST(WeightBytes, count_one_row_of_an_embedding_and_a_tied_table_once) {
  const Program program = make_program();
  const uint64_t row = kWidth / 32 * 34, table = kVocabulary * row;
  EXPECT_EQ(weight_bytes(program, program.steps[kEmbedStep].op), row);
  EXPECT_EQ(weight_bytes(program, program.steps[kLogitsStep].op), table);
  EXPECT_EQ(weight_bytes(program, program.steps[kAttendStep].op), 0u);
  EXPECT_EQ(weight_bytes(program), resident_bytes(program) + row);
}

}  // namespace
}  // namespace honeycrisp::program
