// Small whole programs, one per variant of an op: near the reference backend, and the same bits with every thread count
// and grouping of rows (bits_test.cpp: and with every instruction set).
#include "backend/cpu/executor.h"

#include "backend/cpu/testing.h"
#include "backend/reference/reference_backend.h"
#include "support/allocations.h"
#include "support/op_cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

namespace honeycrisp::backend::cpu {
namespace {

using namespace testing;
using namespace program;
using quant::Format;

using Tiny = TinyProgram;
constexpr uint32_t kVocabulary = Tiny::kVocabulary;

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double(a[i]) - double(b[i]), 2);
    norm += double(b[i]) * double(b[i]);
  }
  return std::sqrt(difference / norm);
}

class Programs : public ::testing::TestWithParam<size_t> {
 protected:
  const OpCase& case_ = op_cases()[GetParam()];

  double error_against_reference(const Tiny& t, CacheType type, Activations activations = Activations::k14Bit) {
    auto reference = reference_backend().compile(t.program, options(type));
    EXPECT_TRUE(reference.has_value());
    const std::vector<float> expected = all_logits(**reference, t.program, case_.positions, kMaxRows);
    const auto executor = make(t, *available_isas()[0], 2, type, kMaxRows, activations);
    return relative_error(all_logits(*executor, t.program, case_.positions, kMaxRows), expected);
  }
};

TEST_P(Programs, agree_with_the_reference_in_f32) {
  EXPECT_LT(error_against_reference(case_.build(true), CacheType::kF32), 2e-6);
}

TEST_P(Programs, agree_with_the_reference_in_quantized_weights_and_caches) {
  // A product with 14-bit activations is off by 7e-5 to 1.3e-4; rounding to a narrow cache type may fall the other way
  // for a value near a tie: a step of 2^-11, or of 1/127.
  const struct {
    CacheType type;
    double bar;
  } kTypes[] = {{CacheType::kF32, 5e-4}, {CacheType::kF16, 5e-4}, {CacheType::kQ8_0, 3e-3}};
  const Tiny t = case_.build();
  for (const auto& type : kTypes) {
    EXPECT_LT(error_against_reference(t, type.type), type.bar) << to_string(type.type);
    if (t.program.caches.empty()) break;
  }
  // A step of 8 bits is 8127 / 127 = 64 times as large.
  EXPECT_LT(error_against_reference(t, CacheType::kF32, Activations::k8Bit), 64 * 5e-4) << "8-bit activations";
}

TEST_P(Programs, have_the_same_bits_with_any_threads_and_grouping) {
  struct Run {
    const Isa* isa;
    uint32_t threads, chunk;
  };
  const Isa* best = available_isas()[0];
  std::vector<Run> runs = {{best, 1, kMaxRows}, {best, 3, kMaxRows}, {best, 2, 1}, {best, 3, 7}, {best, 2, 33}};
  const Tiny t = case_.build();
  const auto expect_same = [&](CacheType type, Activations activations) {
    std::vector<float> expected;
    for (const auto& run : runs) {
      if (run.chunk == 1 && type != CacheType::kF16) continue;  // many steps; what they test does not see the type
      const auto executor = make(t, *run.isa, run.threads, type, kMaxRows, activations);
      const std::vector<float> logits = all_logits(*executor, t.program, case_.positions, run.chunk);
      if (expected.empty()) expected = logits;
      EXPECT_TRUE(same_bits(logits, expected))
          << to_string(type) << (activations == Activations::k8Bit ? ", 8-bit activations, " : ", ") << run.isa->name
          << ", " << run.threads << " threads, chunks of " << run.chunk;
    }
  };
  for (CacheType type : {CacheType::kF32, CacheType::kF16, CacheType::kQ8_0}) {
    expect_same(type, Activations::k14Bit);
    if (t.program.caches.empty()) break;
  }
  for (const Isa* isa : tested_isas()) runs.push_back({isa, 2, 19});
  expect_same(CacheType::kF32, Activations::k8Bit);
}

// So many outputs that prompts take two or four panels together, the last ones fewer (50 and 33 panels), and so many
// inputs that four are worth it; every ending, matrices and columns that begin within an item's width.
TEST(WideProducts, have_the_same_bits_with_any_panels_together) {
  constexpr uint32_t kWidth = 5632, kFirst = 797, kSecond = 515;
  Tiny t(kWidth);
  const BufferId both = t.buffer(kFirst + kSecond), gated = t.buffer(kFirst), operand = t.buffer(kFirst);
  Store stored{.outs = {{both, 0, kFirst}, {both, kFirst, kSecond}}, .scale = 0.05f, .out_scale = 1.5f};
  t.add(Project{t.all(0),
                t.norm(kWidth),
                {t.matrix(Format::kQ4_0, kFirst, kWidth), t.matrix(Format::kQ6_K, kSecond, kWidth)},
                {t.vector(kFirst, -1, 1), std::nullopt},
                stored},
        "both");
  t.add(Project{t.all(0),
                t.norm(kWidth),
                {t.matrix(Format::kQ4_K, kFirst, kWidth), t.matrix(Format::kF16, kFirst, kWidth)},
                {std::nullopt, t.vector(kFirst, -1, 1)},
                Gate{.out = t.all(gated)}},
        "gate");
  t.add(Project{t.all(0),
                std::nullopt,
                {t.matrix(Format::kQ8_0, kFirst, kWidth)},
                {std::nullopt},
                Gate{.operand = t.all(gated), .out = t.all(operand)}},
        "gate of a vector");
  t.residual(t.matrix(Format::kQ5_0, kWidth, kFirst + kSecond), t.all(both), {.branch_scale = 0.3f});
  t.residual(t.matrix(Format::kF16, kWidth, kFirst), t.all(operand),
             {.branch_scale = 0.1f, .post_norm = t.norm(kWidth)});
  t.finish();
  for (const Isa* isa : tested_isas())
    for (const Activations activations : {Activations::k14Bit, Activations::k8Bit}) {
      std::vector<float> alone;
      for (const uint32_t threads : {1u, 2u})
        for (const uint32_t chunk : {8u, kMaxRows, 19u}) {
          if (chunk == 8 && threads == 2) continue;  // one panel at a time, as the first
          const auto executor = make(t, *isa, threads, CacheType::kF32, kMaxRows, activations);
          const std::vector<float> logits = all_logits(*executor, t.program, kMaxRows, chunk);
          if (alone.empty()) alone = logits;
          EXPECT_TRUE(same_bits(logits, alone)) << isa->name << ", " << threads << " threads, chunks of " << chunk;
        }
    }
}

TEST_P(Programs, rows_of_other_sequences_change_no_bit) {
  const Tiny t = case_.build();
  const uint32_t positions = std::min(case_.positions, 30u);
  const auto executor = make(t, *available_isas()[0], 3);
  const std::vector<float> alone = all_logits(*executor, t.program, positions, 7);
  Sequences sequences(*executor, t.program, 3, positions);
  // Beside two others, one of them ahead, the rows in several runs.
  std::vector<float> beside(alone.size());
  for (uint32_t i = 0; i < positions / 2; ++i) sequences.step({row(i, 2)});
  for (uint32_t first = 0; first < positions; first += 5) {
    std::vector<Row> rows;
    for (uint32_t i = first; i < std::min(first + 5, positions); ++i) {
      rows.push_back(row(i));
      if (i % 3 == 1) rows.push_back(row(i / 3, 1));
      if (i >= positions / 2) rows.push_back(row(i, 2));
    }
    const std::vector<float> logits = sequences.step(rows);
    for (size_t i = 0; i < rows.size(); ++i)
      if (rows[i].sequence == 0)
        std::copy_n(&logits[i * kVocabulary], kVocabulary, &beside[size_t{rows[i].position} * kVocabulary]);
  }
  EXPECT_TRUE(same_bits(beside, alone));
}

TEST_P(Programs, extreme_rows_are_finite_where_the_reference_is_and_change_no_other_row) {
  Tiny t = case_.build();
  // Tokens 0 to 4 are zeros, huge, tiny, infinite and no number (one value of it).
  auto* table = reinterpret_cast<float*>(t.bytes[0].data());
  std::fill_n(table, t.width, 0.0f);
  for (uint32_t i = 0; i < t.width; ++i) table[t.width + i] *= 1e30f;
  for (uint32_t i = 0; i < t.width; ++i) table[2 * t.width + i] *= 1e-30f;
  table[3 * t.width + 5] = INFINITY;
  table[4 * t.width + 7] = NAN;
  std::vector<Row> rows;
  for (uint32_t i = 0; i < 10; ++i) rows.push_back({i % 2 == 0 ? int32_t(i / 2) : 5, 0, i, true, Role::kPrompt});
  auto reference = reference_backend().compile(t.program, options(CacheType::kF32));
  ASSERT_TRUE(reference.has_value());
  const std::vector<float> expected = Sequences(**reference, t.program, 10, 1).step(rows);
  for (const Isa* isa : available_isas()) {
    const auto executor = make(t, *isa, 2);
    const std::vector<float> logits = Sequences(*executor, t.program, 10, 1).step(rows);
    const std::vector<float> alone = Sequences(*executor, t.program, 1, 1).step({{5, 0, 0, true, Role::kPrompt}});
    for (size_t i = 0; i < 10; ++i) {
      const std::vector<float> here(&logits[i * kVocabulary], &logits[(i + 1) * kVocabulary]);
      for (size_t j = 0; j < kVocabulary; ++j)
        ASSERT_EQ(std::isfinite(here[j]), std::isfinite(expected[i * kVocabulary + j])) << isa->name << ", row " << i;
      EXPECT_TRUE(i % 2 == 0 || same_bits(here, alone)) << isa->name << ", row " << i;
    }
  }
}

TEST_P(Programs, a_row_that_is_no_number_changes_no_earlier_row_of_its_sequence) {
  Tiny t = case_.build();
  auto* table = reinterpret_cast<float*>(t.bytes[0].data());
  std::fill_n(table, t.width, NAN);  // token 0
  const uint32_t n = std::min(case_.positions, kMaxRows);
  std::vector<Row> rows;
  for (uint32_t i = 0; i < n; ++i) rows.push_back({int32_t(1 + i % 30), i, 0, true, Role::kPrompt});
  const auto executor = make(t, *available_isas()[0], 2);
  const std::vector<float> expected = Sequences(*executor, t.program, 1, n).step(rows);
  const uint32_t bad = n / 2;
  rows[bad].token = 0;
  const std::vector<float> logits = Sequences(*executor, t.program, 1, n).step(rows);
  EXPECT_EQ(0, std::memcmp(logits.data(), expected.data(), size_t{bad} * kVocabulary * sizeof(float)));
  EXPECT_TRUE(std::isnan(logits[size_t{bad} * kVocabulary]));
}

TEST_P(Programs, a_step_of_known_size_allocates_nothing) {
  const Tiny t = case_.build();
  const uint32_t n = std::min(case_.positions, kMaxRows);
  const auto executor = make(t, *available_isas()[0], 2);
  all_logits(*executor, t.program, n, n);
  Sequences sequences(*executor, t.program, 1, n);
  std::vector<Row> rows;
  for (uint32_t i = 0; i < n; ++i) rows.push_back(row(i));
  std::vector<float> logits(size_t{n} * kVocabulary);
  const size_t before = test_support::allocated_bytes();
  sequences.step(rows, logits);
  EXPECT_EQ(test_support::allocated_bytes(), before);
}

INSTANTIATE_TEST_SUITE_P(All, Programs, ::testing::Range(size_t{0}, op_cases().size()),
                         [](const auto& param_info) { return op_cases()[param_info.param].name; });

// ---- the executor itself

class CpuExecutor : public ::testing::Test {
 protected:
  void SetUp() override {
    tiny_.attention([](Tiny&, Attend&) {});
    tiny_.finish();
    executor_ = make(tiny_, *available_isas()[0], 2);
    ASSERT_TRUE(executor_->reserve_pages(0, 4).has_value());
  }
  Result<void> step(const std::vector<Row>& rows, std::vector<PageId> a, std::vector<PageId> b = {},
                    size_t logit_rows = 1) {
    SequencePages sequences[2];
    sequences[0].tables = {a};
    sequences[1].tables = {b};
    logits_.assign(logit_rows * kVocabulary, 0);
    return executor_->step({rows, sequences}, logits_);
  }
  Tiny tiny_;
  std::unique_ptr<Executor> executor_;
  std::vector<float> logits_;
};

TEST_F(CpuExecutor, rows_of_other_sequences_change_no_bit) {
  ASSERT_TRUE(step({{5, 0, 0, false}, {6, 1, 0, true}}, {0}));
  const std::vector<float> alone = logits_;
  ASSERT_TRUE(step({{9, 0, 1, false}, {8, 1, 1, true}, {5, 0, 0, false}, {6, 1, 0, true}}, {2}, {1}, 2));
  EXPECT_TRUE(same_bits({logits_.begin() + kVocabulary, logits_.end()}, alone));
}

TEST_F(CpuExecutor, a_copied_page_continues_with_the_same_bits) {
  ASSERT_TRUE(step({{5, 0, 0, false}, {6, 1, 0, false}}, {0}, {}, 0));
  executor_->copy_page(0, 0, 3);
  ASSERT_TRUE(step({{7, 2, 0, true}}, {0}));
  const std::vector<float> original = logits_;
  ASSERT_TRUE(step({{7, 2, 0, true}}, {3}));
  EXPECT_TRUE(same_bits(logits_, original));
}

TEST_F(CpuExecutor, pages_keep_their_content_when_more_are_reserved) {
  ASSERT_TRUE(step({{5, 0, 0, false}}, {0}, {}, 0));
  ASSERT_TRUE(executor_->reserve_pages(0, 2000).has_value());
  ASSERT_TRUE(step({{6, 1, 0, true}}, {0}));
  const std::vector<float> grown = logits_;
  ASSERT_TRUE(step({{5, 0, 0, false}, {6, 1, 0, true}}, {1}));
  EXPECT_TRUE(same_bits(logits_, grown));
}

TEST_F(CpuExecutor, malformed_batches_are_errors) {
  EXPECT_FALSE(step({}, {0}, {}, 0));
  EXPECT_FALSE(step(std::vector<Row>(kMaxRows + 1), {0}, {}, 0));
  EXPECT_FALSE(step({{int32_t(kVocabulary), 0, 0, true}}, {0}));
  EXPECT_FALSE(step({{-1, 0, 0, true}}, {0}));
  EXPECT_FALSE(step({{0, 0, 2, true}}, {0}));            // no such sequence
  EXPECT_FALSE(step({{0, 64, 0, true}}, {0}));           // no page for it
  EXPECT_FALSE(step({{0, 64, 0, true}}, {kNoPage, 0}));  // the past is absent
  EXPECT_FALSE(step({{0, 0, 0, true}}, {4}));            // page was not reserved
  EXPECT_FALSE(step({{0, 2048, 0, true}}, std::vector<PageId>(40, 0)));
  EXPECT_FALSE(step({{0, 0, 0, true}}, {0}, {}, 2));  // logits of the wrong size
  EXPECT_TRUE(step({{0, 0, 0, true}}, {0}));
}

TEST_F(CpuExecutor, logits_only_where_wanted) {
  ASSERT_TRUE(step({{1, 0, 0, true}, {2, 1, 0, false}, {3, 2, 0, true}}, {0}, {}, 2));
  const std::vector<float> some = logits_;
  ASSERT_TRUE(step({{1, 0, 0, true}, {2, 1, 0, true}, {3, 2, 0, true}}, {0}, {}, 3));
  EXPECT_TRUE(same_bits({some.begin(), some.begin() + kVocabulary}, {logits_.begin(), logits_.begin() + kVocabulary}));
  EXPECT_TRUE(same_bits({some.begin() + kVocabulary, some.end()}, {logits_.begin() + 2 * kVocabulary, logits_.end()}));
}

TEST_F(CpuExecutor, the_plan_names_kernels_and_counts_passes) {
  const Plan& plan = executor_->plan();
  ASSERT_EQ(plan.steps.size(), tiny_.program.steps.size());
  const std::string isa = available_isas()[0]->name;
  EXPECT_EQ(plan.steps[1].kernel, "project.q4_0." + isa);
  EXPECT_EQ(plan.steps[1].launches, 1u);  // one row: every thread prepares the input for itself
  EXPECT_EQ(plan.steps[1].barriers, 1u);
  EXPECT_EQ(plan.steps[1].why_not_fast, "");
  EXPECT_EQ(plan.steps.back().kernel, "logits.q8_0." + isa);
}

// ---- recurrent states

class CpuStates : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto of_this_name = [](const OpCase& c) { return c.name == "delta_net_after_another"; };
    tiny_ = std::find_if(op_cases().begin(), op_cases().end(), of_this_name)->build();
    executor_ = make(tiny_, *available_isas()[0], 2);
    ASSERT_TRUE(executor_->reserve_states(3).has_value());
  }
  std::vector<float> step(StateId state, uint32_t position) {
    const SequencePages sequence{.tables = {}, .state = state};
    const Row one = row(position);
    std::vector<float> logits(kVocabulary);
    EXPECT_TRUE(executor_->step({{&one, 1}, {&sequence, 1}}, logits));
    return logits;
  }
  Tiny tiny_;
  std::unique_ptr<Executor> executor_;
};

TEST_F(CpuStates, a_copied_state_continues_with_the_same_bits) {
  for (uint32_t i = 0; i < 5; ++i) step(0, i);
  executor_->copy_state(0, 2);
  const std::vector<float> original = step(0, 5);
  step(1, 0);
  EXPECT_TRUE(same_bits(step(2, 5), original));
}

TEST_F(CpuStates, position_0_starts_anew) {
  const std::vector<float> first = step(1, 0), second = step(1, 1);
  EXPECT_FALSE(same_bits(step(1, 1), second));  // the state has moved on
  EXPECT_TRUE(same_bits(step(1, 0), first));
  EXPECT_TRUE(same_bits(step(1, 1), second));
}

TEST_F(CpuStates, keep_their_content_when_more_are_reserved) {
  step(0, 0);
  executor_->copy_state(0, 1);
  const std::vector<float> expected = step(0, 1);
  ASSERT_TRUE(executor_->reserve_states(50).has_value());
  EXPECT_TRUE(same_bits(step(1, 1), expected));
}

TEST_F(CpuStates, their_bytes_are_told_and_an_absent_one_is_an_error) {
  EXPECT_GE(executor_->state_bytes(), program::state_bytes(tiny_.program));
  const Tiny without = op_cases().front().build();
  EXPECT_EQ(make(without, *available_isas()[0], 1)->state_bytes(), 0u);
  std::vector<float> logits(kVocabulary);
  const Row one = row(0);
  for (StateId absent : {StateId{3}, kNoState}) {
    const SequencePages sequence{.tables = {}, .state = absent};
    EXPECT_FALSE(executor_->step({{&one, 1}, {&sequence, 1}}, logits));
  }
}

TEST(CpuPlan, tells_what_is_unpacked_to_floats) {
  Tiny t(64);
  t.store(t.matrix(Format::kNVFP4, t.width, t.width), t.all(0), t.all(0));
  t.finish();
  const auto executor = make(t, *available_isas()[0], 1);
  EXPECT_NE(executor->plan().steps[1].why_not_fast.find("nvfp4"), std::string::npos);
  EXPECT_EQ(executor->plan().steps[1].barriers, 0u);  // one thread waits for nobody
}

TEST(CpuPlan, more_memory_than_exists_is_an_error) {
  Tiny t;
  t.finish();
  CompileOptions huge = options(CacheType::kF32);
  huge.max_rows = UINT32_MAX;
  for (program::Buffer& b : t.program.buffers) b.width = std::max(b.width, t.width);
  t.program.buffers.push_back({"wide", UINT32_MAX});
  EXPECT_FALSE(make_executor(t.program, huge, *available_isas()[0], 1, "test").has_value());
  huge.max_rows = 0;
  EXPECT_FALSE(make_executor(t.program, huge, *available_isas()[0], 1, "test").has_value());
}

}  // namespace
}  // namespace honeycrisp::backend::cpu
