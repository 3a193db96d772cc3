// Small whole programs, one per variant of an op: near the reference backend, and the same bits with every instruction
// set, thread count and grouping of rows.
#include "backend/cpu/executor.h"

#include "backend/cpu/testing.h"
#include "backend/reference/reference_backend.h"
#include "base/checked.h"
#include "program/check.h"

#include <cmath>
#include <deque>
#include <functional>
#include <gtest/gtest.h>
#include <numeric>

namespace honeycrisp::backend::cpu {
namespace {

using namespace testing;
using namespace program;
using quant::Format;

constexpr uint32_t kWidth = 64, kVocabulary = 40, kHeads = 4, kKvHeads = 2, kHeadDim = 32;

// A program with the memory of its weights: embedding, what the case adds, logits of buffer 0.
struct Tiny {
  Program program;
  std::deque<std::vector<std::byte>> bytes;
  Random random{42};
  bool plain;  // every weight f32

  explicit Tiny(bool all_f32 = false) : plain(all_f32) {
    buffer(kWidth);
    program.steps.push_back({Embed{matrix(Format::kF32, kVocabulary, kWidth), all(0), 1.0f}, "embed", {}});
    program.vocabulary = kVocabulary;
    program.n_layers = 1;
  }
  Matrix matrix(Format format, uint32_t rows, uint32_t cols) {
    if (plain) format = Format::kF32;
    bytes.push_back(random_weights(random, format, uint64_t{rows} * cols));
    program.weights.push_back({.name = "w" + std::to_string(program.weights.size()),
                               .format = format,
                               .cols = cols,
                               .rows = rows,
                               .data = bytes.back().data(),
                               .bytes = bytes.back().size()});
    return {uint32_t(program.weights.size() - 1), 0, rows};
  }
  VectorId vector(uint32_t n, float low = 0.5f, float high = 1.5f) {
    program.vectors.push_back({"v", random.floats(n, low, high)});
    return VectorId(program.vectors.size() - 1);
  }
  BufferId buffer(uint32_t width) {
    program.buffers.push_back({"b", width});
    return BufferId(program.buffers.size() - 1);
  }
  Slice all(BufferId b) const { return {b, 0, program.buffers[b].width}; }
  Norm norm(uint32_t n) { return {vector(n), 1e-5f}; }
  void add(Op op, const char* label) { program.steps.push_back({std::move(op), label, {}}); }
  void store(Matrix m, Slice in, Slice out, Store ending = {}) {
    ending.outs = {out};
    add(Project{in, norm(in.width), {m}, {std::nullopt}, ending}, "store");
  }
  void finish() {
    add(Logits{all(0), norm(kWidth), matrix(Format::kQ8_0, kVocabulary, kWidth), 1.5f, 30.0f}, "logits");
    assign_pools(program);
    const auto checked = check(program);
    ASSERT_TRUE(checked.has_value()) << checked.error().message;
  }

  /// q, k, v of the input, an Attend with the case's changes, and its output added to the input.
  void attention(const std::function<void(Tiny&, Attend&)>& change, uint32_t window = 0) {
    program.caches.push_back({.n_kv_heads = kKvHeads, .key_dim = kHeadDim, .value_dim = kHeadDim, .window = window});
    Attend a{.n_heads = kHeads, .q = {}, .scale = 0.02f};
    a.cache = CacheId(program.caches.size() - 1);
    a.window = window;
    a.k = all(buffer(kKvHeads * kHeadDim));
    a.v = all(buffer(kKvHeads * kHeadDim));
    a.out = all(buffer(kHeads * kHeadDim));
    change(*this, a);
    a.q = all(buffer(kHeads * kHeadDim * (a.output_gate ? 2 : 1)));
    store(matrix(Format::kQ4_0, a.q.width, kWidth), all(0), a.q);
    if (a.k) store(matrix(Format::kQ8_0, a.k->width, kWidth), all(0), *a.k);
    if (a.v) store(matrix(Format::kQ5_1, a.v->width, kWidth), all(0), *a.v);
    add(a, "attend");
    add(Project{a.out, std::nullopt, {matrix(Format::kQ4_1, kWidth, a.out.width)}, {std::nullopt}, Residual{all(0)}},
        "o");
  }
  RopeId rope(bool interleaved, uint32_t pairs, uint32_t distance) {
    Rope r{.interleaved = interleaved, .pair_distance = distance};
    for (uint32_t i = 0; i < pairs; ++i) r.inverse_frequency.push_back(std::pow(1e-3, double(i) / pairs));
    program.ropes.push_back(r);
    return RopeId(program.ropes.size() - 1);
  }
};

struct Case {
  const char* name;
  std::function<void(Tiny&)> build;
  uint32_t positions = 24;
};

void gate(Tiny& t, Activation activation, bool given) {
  const BufferId hidden = t.buffer(100);  // no multiple of 16
  Gate g{activation, std::nullopt, t.all(hidden)};
  std::vector<Matrix> matrices = {t.matrix(Format::kQ4_1, 100, kWidth)};
  if (given) {
    const BufferId operand = t.buffer(100);
    t.store(t.matrix(Format::kF16, 100, kWidth), t.all(0), t.all(operand));
    g.operand = t.all(operand);
  } else {
    matrices.push_back(t.matrix(Format::kQ5_0, 100, kWidth));
  }
  std::vector<std::optional<VectorId>> biases(matrices.size());
  biases.back() = t.vector(100, -1, 1);
  t.add(Project{t.all(0), t.norm(kWidth), matrices, biases, g}, "gate");
  t.add(
      Project{t.all(hidden), std::nullopt, {t.matrix(Format::kBF16, kWidth, 100)}, {std::nullopt}, Residual{t.all(0)}},
      "down");
}

void attend_case(Tiny& t, const std::function<void(Tiny&, Attend&)>& change) { t.attention(change); }

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"store_of_mixed_formats_with_biases_and_row_range",
       [](Tiny& t) {
         const BufferId wide = t.buffer(20 + 17 + 64);
         Matrix part = t.matrix(Format::kQ4_0, 50, kWidth);
         part.first_row = 13;
         part.rows = 17;
         t.add(Project{t.all(0),
                       t.norm(kWidth),
                       {t.matrix(Format::kF32, 20, kWidth), part, t.matrix(Format::kMXFP4, 64, kWidth)},
                       {t.vector(20, -1, 1), std::nullopt, t.vector(64, -1, 1)},
                       Store{.outs = {{wide, 0, 20}, {wide, 20, 17}, {wide, 37, 64}}}},
               "store");
         t.add(
             Project{
                 t.all(wide), std::nullopt, {t.matrix(Format::kF16, kWidth, 101)}, {std::nullopt}, Residual{t.all(0)}},
             "fold");
       }},
      {"store_with_norm_per_slice_addend_and_scales",
       [](Tiny& t) {
         const BufferId other = t.buffer(kWidth);
         t.store(t.matrix(Format::kQ8_0, kWidth, kWidth), t.all(0), t.all(other));
         t.store(t.matrix(Format::kQ4_0, kWidth, kWidth), t.all(0), t.all(0),
                 Store{.scale = 0.5f, .norm = t.norm(16), .norm_width = 16, .add = t.all(other), .out_scale = 0.7f});
       }},
      {"store_with_norm_of_the_row",
       [](Tiny& t) {
         t.store(t.matrix(Format::kQ5_0, kWidth, kWidth), t.all(0), t.all(0),
                 Store{.scale = 3, .norm = Norm{std::nullopt, 1e-6f}});
       }},
      {"store_with_addend_without_norm",
       [](Tiny& t) {
         const BufferId other = t.buffer(kWidth);
         t.store(t.matrix(Format::kIQ4_NL, kWidth, kWidth), t.all(0), t.all(other));
         t.store(t.matrix(Format::kQ4_0, kWidth, kWidth), t.all(0), t.all(0),
                 Store{.scale = 0.5f, .add = t.all(other), .out_scale = 0.7f});
       }},
      {"gate_silu_of_two_matrices", [](Tiny& t) { gate(t, Activation::kSilu, false); }},
      {"gate_gelu_of_two_matrices", [](Tiny& t) { gate(t, Activation::kGeluTanh, false); }},
      {"gate_clamped_swiglu_of_two_matrices", [](Tiny& t) { gate(t, Activation::kClampedSwiglu, false); }},
      {"gate_gelu_with_given_operand", [](Tiny& t) { gate(t, Activation::kGeluTanh, true); }},
      {"residual_with_scales",
       [](Tiny& t) {
         t.add(Project{t.all(0),
                       t.norm(kWidth),
                       {t.matrix(Format::kQ4_0, kWidth, kWidth)},
                       {t.vector(kWidth, -1, 1)},
                       Residual{.x = t.all(0), .branch_scale = 0.4f, .residual_scale = 0.9f}},
               "residual");
       }},
      {"residual_with_post_norm",
       [](Tiny& t) {
         t.add(Project{t.all(0),
                       t.norm(kWidth),
                       {t.matrix(Format::kNVFP4, kWidth, kWidth)},
                       {std::nullopt},
                       Residual{.x = t.all(0), .branch_scale = 0.4f, .post_norm = t.norm(kWidth)}},
               "residual");
       }},
      {"attend_grouped_queries", [](Tiny& t) { attend_case(t, [](Tiny&, Attend&) {}); }, 530},
      {"attend_head_norms_and_half_split_rope",
       [](Tiny& t) {
         attend_case(t, [](Tiny& tiny, Attend& a) {
           a.q_norm = tiny.norm(kHeadDim);
           a.k_norm = tiny.norm(kHeadDim);
           a.rope = tiny.rope(false, kHeadDim / 2, kHeadDim / 2);
         });
       },
       80},
      {"attend_whole_norms_and_interleaved_rope",
       [](Tiny& t) {
         attend_case(t, [](Tiny& tiny, Attend& a) {
           a.q_norm = tiny.norm(kHeads * kHeadDim);
           a.k_norm = tiny.norm(kKvHeads * kHeadDim);
           a.norm_whole_projection = true;
           a.rope = tiny.rope(true, kHeadDim / 2, 0);
         });
       },
       80},
      {"attend_partial_rope_v_norm_and_v_of_k",
       [](Tiny& t) {
         attend_case(t, [](Tiny& tiny, Attend& a) {
           a.v.reset();
           a.k_norm = tiny.norm(kHeadDim);
           a.v_norm = Norm{std::nullopt, 1e-6f};
           a.rope = tiny.rope(false, 5, 16);
         });
       },
       80},
      {"attend_window", [](Tiny& t) { t.attention([](Tiny&, Attend&) {}, 100); }, 530},
      {"attend_softcap_and_sinks",
       [](Tiny& t) {
         attend_case(t, [](Tiny& tiny, Attend& a) {
           a.softcap = 5;
           a.sinks = tiny.vector(kHeads, -2, 4);
         });
       },
       270},
      {"attend_output_gate", [](Tiny& t) { attend_case(t, [](Tiny&, Attend& a) { a.output_gate = true; }); }, 80},
      {"attend_reading_another_layer",
       [](Tiny& t) {
         attend_case(t, [](Tiny&, Attend&) {});
         attend_case(t, [](Tiny& tiny, Attend& a) {
           tiny.program.caches.pop_back();
           a.cache = 0;
           a.k.reset();
           a.v.reset();
         });
       },
       80},
  };
  return all;
}

constexpr uint32_t kMaxRows = 64;

CompileOptions options(CacheType type) { return {.cache_type = type, .max_rows = kMaxRows, .max_positions = 2048}; }

std::unique_ptr<Executor> make(const Tiny& t, const Isa& isa, uint32_t threads, CacheType type = CacheType::kF32) {
  auto executor = make_executor(t.program, options(type), isa, threads, "test");
  EXPECT_TRUE(executor.has_value()) << executor.error().message;
  return executor ? std::move(*executor) : nullptr;
}

// Logits of every position of one sequence, computed `chunk` rows at a time. Pages lie in descending order.
std::vector<float> all_logits(Executor& executor, const Program& p, uint32_t positions, uint32_t chunk) {
  std::vector<PageId> pages(ceil_div(positions, kPositionsPerPage));
  std::iota(pages.rbegin(), pages.rend(), 0);
  for (uint32_t pool = 0; pool < p.pools.size(); ++pool)
    EXPECT_TRUE(executor.reserve_pages(pool, uint32_t(pages.size())).has_value());
  SequencePages sequence;
  sequence.tables.assign(p.pools.size(), pages);
  std::vector<float> logits(size_t{positions} * p.vocabulary);
  for (uint32_t first = 0; first < positions; first += chunk) {
    std::vector<Row> rows;
    for (uint32_t i = first; i < std::min(positions, first + chunk); ++i)
      rows.push_back({int32_t(i * 7 % p.vocabulary), i, 0, true, Role::kPrompt});
    const auto done = executor.step(
        {rows, {&sequence, 1}}, std::span(logits).subspan(size_t{first} * p.vocabulary, rows.size() * p.vocabulary));
    EXPECT_TRUE(done.has_value()) << done.error().message;
  }
  return logits;
}

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
  const Case& case_ = cases()[GetParam()];

  Tiny build(bool plain) {
    Tiny t(plain);
    case_.build(t);
    t.finish();
    return t;
  }
  double error_against_reference(const Tiny& t, CacheType type) {
    auto reference = reference_backend().compile(t.program, options(type));
    EXPECT_TRUE(reference.has_value());
    const std::vector<float> expected = all_logits(**reference, t.program, case_.positions, kMaxRows);
    return relative_error(all_logits(*make(t, *available_isas()[0], 2, type), t.program, case_.positions, kMaxRows),
                          expected);
  }
};

TEST_P(Programs, agree_with_the_reference_in_f32) {
  EXPECT_LT(error_against_reference(build(true), CacheType::kF32), 2e-6);
}

TEST_P(Programs, agree_with_the_reference_in_quantized_weights_and_caches) {
  // A product with 14-bit activations is off by 7e-5 to 1.3e-4; rounding to a narrow cache type may fall the other way
  // for a value near a tie: a step of 2^-11, or of 1/127.
  const struct {
    CacheType type;
    double bar;
  } kTypes[] = {{CacheType::kF32, 5e-4}, {CacheType::kF16, 5e-4}, {CacheType::kQ8_0, 3e-3}};
  const Tiny t = build(false);
  for (const auto& type : kTypes) {
    EXPECT_LT(error_against_reference(t, type.type), type.bar) << to_string(type.type);
    if (t.program.caches.empty()) break;
  }
}

TEST_P(Programs, have_the_same_bits_with_any_isa_threads_and_grouping) {
  struct Run {
    const Isa* isa;
    uint32_t threads, chunk;
  };
  const Isa* best = available_isas()[0];
  std::vector<Run> runs = {{best, 1, kMaxRows}, {best, 3, kMaxRows}, {best, 2, 1}, {best, 3, 7}};
  for (const Isa* isa : available_isas()) runs.push_back({isa, 2, 33});
  const Tiny t = build(false);
  for (CacheType type : {CacheType::kF32, CacheType::kF16, CacheType::kQ8_0}) {
    std::vector<float> expected;
    for (const Run& run : runs) {
      if (run.chunk == 1 && type != CacheType::kF16) continue;  // many steps; what they test does not see the type
      const auto executor = make(t, *run.isa, run.threads, type);
      const std::vector<float> logits = all_logits(*executor, t.program, case_.positions, run.chunk);
      if (expected.empty()) expected = logits;
      EXPECT_TRUE(same_bits(logits, expected))
          << to_string(type) << ", " << run.isa->name << ", " << run.threads << " threads, chunks of " << run.chunk;
    }
    if (t.program.caches.empty()) break;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Programs, ::testing::Range(size_t{0}, cases().size()),
                         [](const auto& param_info) { return std::string(cases()[param_info.param].name); });

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

TEST(CpuPlan, tells_what_is_unpacked_to_floats) {
  Tiny t;
  t.store(t.matrix(Format::kNVFP4, kWidth, kWidth), t.all(0), t.all(0));
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
  for (program::Buffer& b : t.program.buffers) b.width = std::max(b.width, kWidth);
  t.program.buffers.push_back({"wide", UINT32_MAX});
  EXPECT_FALSE(make_executor(t.program, huge, *available_isas()[0], 1, "test").has_value());
  huge.max_rows = 0;
  EXPECT_FALSE(make_executor(t.program, huge, *available_isas()[0], 1, "test").has_value());
}

}  // namespace
}  // namespace honeycrisp::backend::cpu
