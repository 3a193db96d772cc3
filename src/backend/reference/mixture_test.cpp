// The reference bodies of DeltaNet and MixExperts against numbers of a few lines of NumPy in f64, and what is easy to
// get wrong at their edges: who wins a tie, what a NaN does, when a state begins anew.
#include "backend/reference/ops.h"

#include <cmath>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

namespace honeycrisp::backend::reference {
namespace {

using program::Matrix;
using program::Slice;

using Rows = std::vector<std::vector<float>>;

testing::Matcher<std::vector<float>> near(std::vector<float> expected, float tolerance = 2e-6f) {
  std::vector<testing::Matcher<float>> each;
  for (float e : expected) each.push_back(testing::FloatNear(e, tolerance * std::max(1.0f, std::abs(e))));
  return testing::ElementsAreArray(each);
}

/// A program of one op, its weights, and runs of it.
class OneOp {
 public:
  program::VectorId vector(std::vector<float> values) {
    program_.vectors.push_back({"v", std::move(values)});
    return program::VectorId(program_.vectors.size() - 1);
  }
  /// [slices · rows][cols], all of them.
  Matrix matrix(uint32_t slices, const Rows& rows) {
    std::vector<float>& flat = *data_.emplace_back(std::make_unique<std::vector<float>>());
    for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
    const uint32_t n = uint32_t(rows.size()) / slices;
    program_.weights.push_back({"w", quant::Format::kF32, uint32_t(rows[0].size()), n, slices,
                                reinterpret_cast<const std::byte*>(flat.data()), flat.size() * sizeof(float)});
    return {program::WeightId(program_.weights.size() - 1), 0, n};
  }
  Slice buffer(uint32_t width) {
    program_.buffers.push_back({"b", width});
    inputs_.emplace_back();
    return {program::BufferId(program_.buffers.size() - 1), 0, width};
  }
  void set(const Slice& buffer, const Rows& rows) { inputs_[buffer.buffer] = rows; }
  program::Program& program() { return program_; }
  void reserve_states(uint32_t n) {
    states_.emplace(program_);
    ASSERT_TRUE(states_->reserve(n));
  }

  /// Rows [first, first + n) of the inputs, at these positions, of one sequence with this state: `out` afterwards.
  template <class Op>
  Rows run(const Op& op, const Slice& out, size_t first, size_t n, uint32_t state = 0) {
    if (!states_) states_.emplace(program_);
    std::vector<Row> rows;
    for (size_t i = first; i < first + n; ++i) rows.push_back({0, uint32_t(i), 0, false, Role::kPrompt});
    SequencePages pages;
    pages.state = state;
    const Batch batch{rows, std::span(&pages, 1)};
    KvStore kv(program_, CacheType::kF32);
    StepState step{program_, batch, {}, kv, *states_, {}};
    std::vector<std::vector<float>> memory;
    for (size_t b = 0; b < program_.buffers.size(); ++b) {
      std::vector<float>& values = memory.emplace_back(n * program_.buffers[b].width);
      if (inputs_[b].empty()) continue;
      for (size_t i = 0; i < n; ++i)
        std::copy(inputs_[b][first + i].begin(), inputs_[b][first + i].end(),
                  values.begin() + ptrdiff_t(i * program_.buffers[b].width));
    }
    step.buffers.assign(memory.begin(), memory.end());
    reference::run(step, op);
    Rows result;
    for (size_t i = 0; i < n; ++i) {
      const std::span<const float> row = step.row(out, i);
      result.emplace_back(row.begin(), row.end());
    }
    return result;
  }

 private:
  program::Program program_;
  std::vector<std::unique_ptr<std::vector<float>>> data_;  // of the weights
  std::vector<Rows> inputs_;                               // [buffers]
  std::optional<StateStore> states_;
};

// ---- DeltaNet

/// One key head of two lanes, two value heads of one, two taps.
struct SmallDelta : OneOp {
  SmallDelta() {
    program().states = {{2, 2, 1, 6, 2}};
    op.n_key_heads = 1;
    op.qkv = buffer(6), op.z = buffer(2), op.out = buffer(2);
    const Slice gates = buffer(4);
    op.alpha = {gates.buffer, 0, 2}, op.beta = {gates.buffer, 2, 2};
    op.gate_run = op.gate_stride = 2;
    op.conv = vector({0.5f, 1, -0.25f, 0.75f, 1, 0.5f, 0.5f, -1, 0.25f, 1.25f, -0.5f, 1});
    op.a = vector({-0.5f, -2}), op.dt_bias = vector({0.25f, -0.75f});
    op.norm = {vector({1.5f}), 0.01f};
    set(op.qkv, {{1, -0.5f, 0.25f, 2, 0.5f, -1}, {0.5f, 1.5f, -1, 0.75f, 1, 2}, {-2, 0.5f, 1, 1, -0.5f, 0.25f}});
    set(op.z, {{1, -1}, {0.5f, 2}, {-0.25f, 1.5f}});
    set(gates, {{0.5f, -0.5f, 1, 0}, {0.25f, 1, -1, 2}, {2, -2, 0.5f, 0.5f}});
    reserve_states(2);
  }
  program::DeltaNet op;
};

// NumPy: c = silu(w0·previous + w1·x); q, k = c[:2], c[2:4] over √(Σ² + 1e-6), q/√2; per head d = exp(a·log1p(exp(α +
// dt))), b = 1/(1 + exp(−β)); S = d·S; S += k·b·(v − k·S); o = q·S; o/√(o² + 0.01)·1.5·silu(z).
TEST(DeltaNet, three_positions_equal_the_formula) {
  SmallDelta delta;
  const Rows out = delta.run(delta.op, delta.op.out, 0, 3);
  EXPECT_THAT(out[0], near({0.7624205644f, 0.1615613798f}));
  EXPECT_THAT(out[1], near({-0.0728791245f, 2.5565935104f}));
  EXPECT_THAT(out[2], near({0.0197901176f, 1.8257183876f}));
}

TEST(DeltaNet, chunks_have_the_same_bits) {
  SmallDelta delta;
  const Rows whole = delta.run(delta.op, delta.op.out, 0, 3);
  EXPECT_EQ(delta.run(delta.op, delta.op.out, 0, 1), Rows(whole.begin(), whole.begin() + 1));
  EXPECT_EQ(delta.run(delta.op, delta.op.out, 1, 2), Rows(whole.begin() + 1, whole.end()));
}

TEST(DeltaNet, position_0_begins_anew_and_states_are_apart) {
  SmallDelta delta;
  const Rows first = delta.run(delta.op, delta.op.out, 0, 2, 0);
  EXPECT_EQ(delta.run(delta.op, delta.op.out, 0, 2, 1), first);
  EXPECT_EQ(delta.run(delta.op, delta.op.out, 0, 2, 0), first);  // over what the first run left
  const Rows third = delta.run(delta.op, delta.op.out, 2, 1, 0);
  EXPECT_EQ(delta.run(delta.op, delta.op.out, 2, 1, 1), third);
  EXPECT_NE(delta.run(delta.op, delta.op.out, 2, 1, 1), third);  // once more, over a state that has moved on
}

// The second of two key heads is nothing, so its value heads' outputs are 0.
TEST(DeltaNet, value_heads_read_the_key_head_of_their_order) {
  OneOp one;
  one.program().states = {{4, 1, 1, 8, 1}};
  program::DeltaNet op;
  op.n_key_heads = 2;
  op.qkv = one.buffer(8), op.z = one.buffer(4), op.out = one.buffer(4);
  const Slice gates = one.buffer(8);
  op.alpha = {gates.buffer, 0, 4}, op.beta = {gates.buffer, 4, 4};
  op.gate_run = op.gate_stride = 4;
  op.conv = one.vector(std::vector<float>(8, 1));
  op.a = one.vector(std::vector<float>(4, -1)), op.dt_bias = one.vector(std::vector<float>(4, 0));
  op.norm = {one.vector({1}), 0.01f};
  one.set(op.qkv, {{1, 0, 1, 0, 1, 1, 1, 1}});
  one.set(op.z, {{1, 1, 1, 1}});
  one.reserve_states(1);
  const auto is_zero = [](float v) { return v == 0; };
  std::vector<float> out = one.run(op, op.out, 0, 1)[0];
  EXPECT_THAT(std::vector<bool>({is_zero(out[0]), is_zero(out[1]), is_zero(out[2]), is_zero(out[3])}),
              testing::ElementsAre(false, true, false, true));
  op.grouped_heads = true;
  out = one.run(op, op.out, 0, 1)[0];
  EXPECT_THAT(std::vector<bool>({is_zero(out[0]), is_zero(out[1]), is_zero(out[2]), is_zero(out[3])}),
              testing::ElementsAre(false, false, true, true));
}

// Gates as [β β α α] per key head or as [α α α α β β β β]: the same numbers, so the same outputs.
TEST(DeltaNet, gates_are_found_by_run_and_stride) {
  OneOp one;
  one.program().states = {{4, 1, 1, 8, 1}};
  program::DeltaNet op;
  op.n_key_heads = 2;
  op.grouped_heads = true;
  op.qkv = one.buffer(8), op.z = one.buffer(4), op.out = one.buffer(4);
  const Slice plain = one.buffer(8), mixed = one.buffer(8);
  op.conv = one.vector(std::vector<float>(8, 1));
  op.a = one.vector({-1, -0.5f, -2, -0.25f}), op.dt_bias = one.vector({0, 1, -1, 2});
  op.norm = {one.vector({1}), 0.01f};
  one.set(op.qkv, {{1, 2, 3, 4, 5, 6, 7, 8}, {2, 1, 1, 2, 0.5f, 0.25f, -1, 3}});
  one.set(op.z, {{1, 2, 3, 4}, {4, 3, 2, 1}});
  one.set(plain, {{1, 2, 3, 4, 5, 6, 7, 8}, {-1, 0, 1, 0.5f, 0.25f, 2, -2, 1}});
  one.set(mixed, {{5, 6, 1, 2, 7, 8, 3, 4}, {0.25f, 2, -1, 0, -2, 1, 1, 0.5f}});
  one.reserve_states(1);
  op.alpha = {plain.buffer, 0, 4}, op.beta = {plain.buffer, 4, 4};
  op.gate_run = op.gate_stride = 4;
  const Rows expected = one.run(op, op.out, 0, 2);
  op.beta = {mixed.buffer, 0, 6}, op.alpha = {mixed.buffer, 2, 6};
  op.gate_run = 2, op.gate_stride = 4;
  EXPECT_EQ(one.run(op, op.out, 0, 2), expected);
}

// ---- MixExperts

/// Three experts of width 2 and one hidden lane, two of them chosen; x = [1, 2]; scores 1, 2, −1.
struct SmallMixture : OneOp {
  SmallMixture() {
    op.in = op.ending.x = buffer(2);
    op.router.matrix = matrix(1, {{1, 0}, {0, 1}, {1, -1}});
    op.router.routing = program::Routing::kTopKSoftmax;
    op.router.top_k = 2;
    op.gate = matrix(3, {{1, 0}, {0.5f, 0.5f}, {2, -0.5f}});
    op.up = matrix(3, {{0, 1}, {1, 1}, {1, 0}});
    op.down = matrix(3, {{1}, {2}, {3}, {-1}, {0.5f}, {0.5f}});
    set(op.in, {{1, 2}});
  }
  std::vector<float> out() { return run(op, op.in, 0, 1)[0]; }
  program::MixExperts op;
};

// NumPy: s = R x; y[e] = d[e]·silu(g[e]·x)·(u[e]·x); x + Σ over the chosen of weight · y[e].
TEST(MixExperts, both_routings_equal_the_formula) {
  SmallMixture mix;
  EXPECT_THAT(mix.out(), near({9.46210413f, 0.09682098f}));
  mix.op.router.routing = program::Routing::kSoftmaxTopK;
  EXPECT_THAT(mix.out(), near({9.16492327f, 0.16365877f}));
  mix.op.router.top_k = 3;
  EXPECT_THAT(mix.out(), near({9.1777603f, 0.17649581f}));
  mix.op.router.routing = program::Routing::kTopKSoftmax;
  EXPECT_THAT(mix.out(), near({9.1777603f, 0.17649581f}));  // of all: the same
}

TEST(MixExperts, an_expert_s_scale_multiplies_its_weight) {
  SmallMixture mix;
  mix.op.router.expert_scale = mix.vector({2, 0.5f, 7});
  EXPECT_THAT(mix.out(), near({5.82088787f, 2.22808209f}));
}

TEST(MixExperts, clamped_swiglu_and_biases) {
  SmallMixture mix;
  mix.op.router.top_k = 1;  // expert 1: gate 1.5 + 6.5 = 8 → 7, up 3 − 11 = −8 → −7
  mix.op.activation = program::Activation::kClampedSwiglu;
  mix.op.gate_bias = mix.vector({0.5f, 6.5f, 0});
  mix.op.up_bias = mix.vector({1, -11, 0});
  mix.op.down_bias = mix.vector({1, 1, 0.25f, -0.25f, 0, 0});
  EXPECT_THAT(mix.out(), near({-124.74915631f, 43.74971877f}));
}

/// shared = [2, 1]·silu([1, −1]·x)·([0.5, 1]·x)·σ([1, 0.25]·x)
void add_shared(SmallMixture& mix) {
  mix.op.shared = program::SharedExpert{.gate = mix.matrix(1, {{1, -1}}),
                                        .up = mix.matrix(1, {{0.5f, 1}}),
                                        .down = mix.matrix(1, {{2}, {1}}),
                                        .scale = mix.matrix(1, {{1, 0.25f}})};
}

TEST(MixExperts, a_shared_expert_adds_with_its_gate) {
  SmallMixture mix;
  add_shared(mix);
  EXPECT_THAT(mix.out(), near({8.36270592f, -0.45287813f}));
}

// b = experts; b = b/√(mean b² + 0.5)·[1, 2] + [10, −10]; b = b/√(mean b²)·[3, 1]; 0.5·(x + 2 b)
TEST(MixExperts, branch_norm_then_dense_branch_then_ending) {
  SmallMixture mix;
  add_shared(mix);
  mix.op.branch_norm = program::Norm{mix.vector({1, 2}), 0.5f};
  mix.op.add = mix.buffer(2);
  mix.set(*mix.op.add, {{10, -10}});
  mix.op.ending.post_norm = program::Norm{mix.vector({3, 1}), 0};
  mix.op.ending.branch_scale = 2;
  mix.op.ending.residual_scale = 0.5f;
  EXPECT_THAT(mix.out(), near({3.55935039f, 0.02018283f}, 5e-6f));
}

TEST(MixExperts, the_router_s_norm_is_the_router_s_alone) {
  SmallMixture mix;
  mix.op.router.norm = program::Norm{mix.vector({1, -1}), 0};  // scores 0.63, −1.26, 1.90: experts 2, 0
  EXPECT_THAT(mix.out(), near({1.60692078f, 2.9287761f}));
  SmallMixture plain;
  plain.op.input_norm = program::Norm{plain.vector({1, 0.3f}), 0};  // of router and experts: scores 0.63, 0.38, 0.25
  EXPECT_THAT(plain.out(), near({1.50706618f, 2.03683752f}));
}

TEST(MixExperts, the_chosen_may_be_a_row_range_of_one_tensor) {
  SmallMixture mix;
  const std::vector<float> expected = mix.out();
  // [gate; up] of each expert in one weight, as ffn_gate_up_exps.
  const Matrix both = mix.matrix(3, {{1, 0}, {0, 1}, {0.5f, 0.5f}, {1, 1}, {2, -0.5f}, {1, 0}});
  mix.op.gate = {both.weight, 0, 1};
  mix.op.up = {both.weight, 1, 1};
  EXPECT_EQ(mix.out(), expected);
}

/// Which single expert is taken: experts answer [1, 0], [0, 1] and [−1, −1] times something above 0.
std::vector<float> signs(SmallMixture& mix) {
  mix.op.router.top_k = 1;
  mix.op.up = mix.matrix(3, {{1, 1}, {1, 1}, {1, 1}});
  mix.op.down = mix.matrix(3, {{1}, {0}, {0}, {1}, {-1}, {-1}});
  const std::vector<float> out = mix.out();
  std::vector<float> result;
  for (size_t i = 0; i < 2; ++i) result.push_back(out[i] == float(i + 1) ? 0 : out[i] > float(i + 1) ? 1 : -1);
  return result;
}

TEST(MixExperts, ties_go_to_the_lowest_index) {
  const auto chosen = [](std::vector<float> bias) {
    SmallMixture mix;
    mix.op.router.matrix = mix.matrix(1, {{0, 0}, {0, 0}, {0, 0}});
    mix.op.router.bias = mix.vector(std::move(bias));
    return signs(mix);
  };
  const auto expert_0 = testing::ElementsAre(1, 0), expert_1 = testing::ElementsAre(0, 1);
  EXPECT_THAT(chosen({0, 0, 0}), expert_0);
  EXPECT_THAT(chosen({0, 1, 1}), expert_1);
  EXPECT_THAT(chosen({-0.0f, 0, 0}), expert_0);  // the two zeros are equal
}

TEST(MixExperts, a_score_that_is_no_number_ranks_last) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const auto chosen = [](std::vector<float> bias) {
    SmallMixture mix;
    mix.op.router.bias = mix.vector(std::move(bias));
    return signs(mix);
  };
  EXPECT_THAT(chosen({0, nan, 0}), testing::ElementsAre(1, 0));
  EXPECT_THAT(chosen({nan, nan, 0}), testing::ElementsAre(-1, -1));
  SmallMixture mix;  // the others' weights are as if it were not there
  mix.op.router.bias = mix.vector({0, 0, nan});
  EXPECT_THAT(mix.out(), near({9.46210413f, 0.09682098f}));
  mix.op.router.bias = mix.vector({-infinity, 0, 0});
  for (float v : mix.out()) EXPECT_TRUE(std::isfinite(v));
}

}  // namespace
}  // namespace honeycrisp::backend::reference
