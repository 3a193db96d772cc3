// Every format and every variant of an op on the device: near the reference backend, and the same bits for any grouping
// of rows, in both roles.
#include "cuda/cuda_test.h"
#include "cuda/tiny_program.h"

namespace honeycrisp::testing {
namespace {

using namespace program;
using quant::Format;

constexpr size_t kChunks[] = {1, 2, 3, 7, 64};

// Errors of products are near 2^-16 of a term (prompts: two bf16) or 2^-22 (generated); the ops amplify them some ten
// times. A value near a tie may be rounded the other way into the cache: a step of 2^-11, or of 1/127.
double bar_of(CacheType type, Role role) {
  const double arithmetic = role == Role::kPrompt ? 5e-4 : 2e-5;
  return arithmetic + (type == CacheType::kF32 ? 0 : type == CacheType::kF16 ? 3e-4 : 3e-3);
}

void expect_near_reference_and_stable(const TinyProgram& t, uint32_t n_positions, CacheType type) {
  const std::vector<int32_t> tokens = some_tokens(n_positions, TinyProgram::kVocabulary);
  const auto reference = compile(backend::reference_backend(), t.program, type);
  const auto cuda = compile(backend::cuda_backend(), t.program, type);
  ASSERT_TRUE(reference && cuda);
  const std::vector<float> expected = all_logits(*reference, t.program, tokens, 512, Role::kPrompt);
  for (Role role : kRoles) {
    const std::vector<float> whole = all_logits(*cuda, t.program, tokens, 512, role);
    double difference = 0, norm = 0;
    for (size_t i = 0; i < whole.size(); ++i) {
      difference += std::pow(double(whole[i]) - double(expected[i]), 2);
      norm += std::pow(double(expected[i]), 2);
    }
    EXPECT_LT(std::sqrt(difference / norm), bar_of(type, role)) << name_of(role) << ", cache " << to_string(type);
    for (size_t chunk : kChunks)
      EXPECT_TRUE(same_bits(all_logits(*cuda, t.program, tokens, chunk, role), whole))
          << name_of(role) << ", chunks of " << chunk << ", cache " << to_string(type);
  }
}

// ---- formats

class CudaFormats : public OnCuda, public ::testing::WithParamInterface<size_t> {};

TEST_P(CudaFormats, products_and_rows_agree_with_the_reference) {
  const quant::FormatInfo& format = quant::kFormats[GetParam()];
  // Odd sizes: no multiple of a packed tile's 16 rows or 256 columns where the format's blocks allow it.
  const uint32_t columns = format.block_elements == 256 ? 512 : format.block_elements == 1 ? 77 : 9 * 64;
  TinyProgram t(columns);
  const BufferId hidden = t.buffer(101);
  std::get<Embed>(t.program.steps[0].op).table = t.matrix(format.format, TinyProgram::kVocabulary, columns);
  std::get<Embed>(t.program.steps[0].op).scale = format.kind == quant::FormatKind::kInteger ? 1e-3f : 0.7f;
  const float scale = format.kind == quant::FormatKind::kInteger ? 1e-10f : 0.2f;
  t.store(t.matrix(format.format, 101, columns), t.all(0), t.all(hidden), {.scale = scale});
  t.residual(t.matrix(Format::kF16, columns, 101), t.all(hidden), {.branch_scale = 0.3f});
  Logits logits{t.all(0), t.norm(columns), t.matrix(Format::kF16, TinyProgram::kVocabulary, columns), 1.5f, 30.0f};
  t.add(logits, "logits");
  ASSERT_TRUE(check(t.program).has_value());
  expect_near_reference_and_stable(t, 9, CacheType::kF32);
}

INSTANTIATE_TEST_SUITE_P(All, CudaFormats, ::testing::Range(size_t{0}, quant::kFormats.size()),
                         [](const auto& param_info) { return std::string(quant::kFormats[param_info.param].name); });

// Deep and tall enough that packed tiles need several chunks of K and several passes of row tiles.
TEST_F(OnCuda, packed_products_of_large_matrices_agree_with_the_reference) {
  for (Format format : {Format::kQ4_0, Format::kQ8_0, Format::kQ4_K, Format::kQ6_K}) {
    TinyProgram t(512);
    const BufferId wide = t.buffer(17920), back = t.buffer(512);
    t.store(t.matrix(format, 17920, 512), t.all(0), t.all(wide), {.scale = 0.05f});
    t.store(t.matrix(format, 512, 17920), t.all(wide), t.all(back), {.scale = 0.01f});
    t.residual(t.matrix(Format::kF16, 512, 512), t.all(back), {.branch_scale = 0.3f});
    t.finish();
    expect_near_reference_and_stable(t, 5, CacheType::kF32);
  }
}

// ---- ops

struct Case {
  const char* name;
  std::function<void(TinyProgram&)> build;
  uint32_t positions = 24;
};

void gate(TinyProgram& t, Activation activation, Format first, std::optional<Format> second) {
  const BufferId hidden = t.buffer(100);  // no multiple of 16
  Gate g{activation, std::nullopt, t.all(hidden)};
  std::vector<Matrix> matrices = {t.matrix(first, 100, t.width)};
  if (second) {
    matrices.push_back(t.matrix(*second, 100, t.width));
  } else {
    const BufferId operand = t.buffer(100);
    t.store(t.matrix(Format::kF16, 100, t.width), t.all(0), t.all(operand));
    g.operand = t.all(operand);
  }
  std::vector<std::optional<VectorId>> biases(matrices.size());
  biases.back() = t.vector(100, -1, 1);
  t.add(Project{t.all(0), t.norm(t.width), matrices, biases, g}, "gate");
  t.residual(t.matrix(Format::kBF16, t.width, 100), t.all(hidden), {.branch_scale = 0.1f});
}

void head_norms(TinyProgram& t, Attend& a, bool whole) {
  a.q_norm = t.norm(whole ? TinyProgram::kHeads * TinyProgram::kHeadDim : TinyProgram::kHeadDim);
  a.k_norm = t.norm(whole ? TinyProgram::kKvHeads * TinyProgram::kHeadDim : TinyProgram::kHeadDim);
  a.norm_whole_projection = whole;
}

void stores(TinyProgram& t, Format a, Format b, Format c) {
  const BufferId wide = t.buffer(20 + 17 + 64);
  Matrix part = t.matrix(b, 50, t.width);
  part.first_row = a == b ? 16 : 13;
  part.rows = 17;
  Store store{.outs = {{wide, 0, 20}, {wide, 20, 17}, {wide, 37, 64}}};
  t.add(Project{t.all(0),
                t.norm(t.width),
                {t.matrix(a, 20, t.width), part, t.matrix(c, 64, t.width)},
                {t.vector(20, -1, 1), std::nullopt, t.vector(64, -1, 1)},
                store},
        "store");
  t.residual(t.matrix(Format::kF16, t.width, 101), t.all(wide), {.branch_scale = 0.3f});
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"store_of_three_matrices_fused", [](TinyProgram& t) { stores(t, Format::kQ4_0, Format::kQ4_0, Format::kQ4_0); }},
      {"store_of_mixed_formats", [](TinyProgram& t) { stores(t, Format::kF32, Format::kQ4_0, Format::kMXFP4); }},
      {"store_with_norm_per_slice_addend_and_scales",
       [](TinyProgram& t) {
         const BufferId other = t.buffer(t.width);
         t.store(t.matrix(Format::kQ8_0, t.width, t.width), t.all(0), t.all(other));
         t.store(t.matrix(Format::kQ4_0, t.width, t.width), t.all(0), t.all(0),
                 Store{.scale = 0.5f, .norm = t.norm(16), .norm_width = 16, .add = t.all(other), .out_scale = 0.7f});
       }},
      {"store_over_its_input_with_norm_of_the_row",
       [](TinyProgram& t) {
         t.store(t.matrix(Format::kQ4_0, t.width, t.width), t.all(0), t.all(0),
                 Store{.scale = 3, .norm = Norm{std::nullopt, 1e-6f}});
       }},
      {"store_over_its_input_with_addend",
       [](TinyProgram& t) {
         const BufferId other = t.buffer(t.width);
         t.store(t.matrix(Format::kIQ4_NL, t.width, t.width), t.all(0), t.all(other));
         t.store(t.matrix(Format::kQ4_0, t.width, t.width), t.all(0), t.all(0),
                 Store{.scale = 0.5f, .add = t.all(other), .out_scale = 0.7f});
       }},
      {"gate_silu_fused", [](TinyProgram& t) { gate(t, Activation::kSilu, Format::kQ4_0, Format::kQ4_0); }},
      {"gate_gelu_of_two_formats",
       [](TinyProgram& t) { gate(t, Activation::kGeluTanh, Format::kQ4_0, Format::kQ5_0); }},
      {"gate_gelu_with_given_operand",
       [](TinyProgram& t) { gate(t, Activation::kGeluTanh, Format::kQ8_0, std::nullopt); }},
      {"residual_with_scales",
       [](TinyProgram& t) {
         const BufferId other = t.buffer(t.width);
         t.store(t.matrix(Format::kQ8_0, t.width, t.width), t.all(0), t.all(other));
         t.residual(t.matrix(Format::kQ4_0, t.width, t.width), t.all(other),
                    {.branch_scale = 0.4f, .residual_scale = 0.9f});
       }},
      {"residual_with_post_norm",
       [](TinyProgram& t) {
         t.residual(t.matrix(Format::kQ4_0, t.width, t.width), t.all(0),
                    {.branch_scale = 0.4f, .post_norm = t.norm(t.width)});
       }},
      {"attend_grouped_queries", [](TinyProgram& t) { t.attention([](TinyProgram&, Attend&) {}); }, 600},
      {"attend_head_norms_and_half_split_rope",
       [](TinyProgram& t) {
         t.attention([](TinyProgram& tiny, Attend& a) {
           head_norms(tiny, a, false);
           a.rope = tiny.rope(false, 16, 16);
         });
       },
       80},
      {"attend_whole_norms_and_interleaved_rope",
       [](TinyProgram& t) {
         t.attention([](TinyProgram& tiny, Attend& a) {
           head_norms(tiny, a, true);
           a.rope = tiny.rope(true, 16, 0);
         });
       },
       80},
      {"attend_partial_rope_v_norm_and_v_of_k",
       [](TinyProgram& t) {
         t.attention([](TinyProgram& tiny, Attend& a) {
           a.v.reset();
           a.k_norm = tiny.norm(TinyProgram::kHeadDim);
           a.v_norm = Norm{std::nullopt, 1e-6f};
           a.rope = tiny.rope(false, 5, 16);
         });
       },
       80},
      {"attend_window", [](TinyProgram& t) { t.attention([](TinyProgram&, Attend&) {}, 100); }, 600},
      {"attend_softcap_and_sinks",
       [](TinyProgram& t) {
         t.attention([](TinyProgram& tiny, Attend& a) {
           a.softcap = 5;
           a.sinks = tiny.vector(TinyProgram::kHeads, -2, 4);
         });
       },
       300},
      {"attend_output_gate", [](TinyProgram& t) { t.attention([](TinyProgram&, Attend& a) { a.output_gate = true; }); },
       80},
      {"attend_reading_another_layer",
       [](TinyProgram& t) {
         t.attention([](TinyProgram&, Attend&) {});
         t.attention([](TinyProgram& tiny, Attend& a) {
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

class CudaPrograms : public OnCuda, public ::testing::WithParamInterface<size_t> {};

TEST_P(CudaPrograms, agree_with_the_reference_in_any_grouping) {
  const Case& c = cases()[GetParam()];
  TinyProgram t;
  c.build(t);
  t.finish();
  for (CacheType type : {CacheType::kF32, CacheType::kF16, CacheType::kQ8_0}) {
    expect_near_reference_and_stable(t, c.positions, type);
    if (t.program.caches.empty()) break;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaPrograms, ::testing::Range(size_t{0}, cases().size()),
                         [](const auto& param_info) { return std::string(cases()[param_info.param].name); });

// ---- the executor

class CudaExecutor : public OnCuda {
 protected:
  void SetUp() override {
    OnCuda::SetUp();
    if (IsSkipped()) return;
    tiny_.attention([](TinyProgram&, Attend&) {});
    tiny_.finish();
    executor_ = compile(backend::cuda_backend(), tiny_.program, CacheType::kF16, 64);
    ASSERT_TRUE(executor_ && executor_->reserve_pages(0, 4).has_value());
  }
  Result<void> step(const std::vector<backend::Row>& rows, std::vector<backend::PageId> a,
                    std::vector<backend::PageId> b = {}, size_t logit_rows = 1) {
    backend::SequencePages sequences[2];
    sequences[0].tables = {a};
    sequences[1].tables = {b};
    logits_.assign(logit_rows * TinyProgram::kVocabulary, 0);
    return executor_->step({rows, sequences}, logits_);
  }
  TinyProgram tiny_;
  std::unique_ptr<backend::Executor> executor_;
  std::vector<float> logits_;
};

TEST_F(CudaExecutor, rows_of_other_sequences_and_roles_change_no_bit) {
  for (Role role : kRoles) {
    ASSERT_TRUE(step({{5, 0, 0, false, role}, {6, 1, 0, true, role}}, {0}));
    const std::vector<float> alone = logits_;
    for (Role other : kRoles) {
      ASSERT_TRUE(step({{9, 0, 1, false, other}, {8, 1, 1, true, other}, {5, 0, 0, false, role}, {6, 1, 0, true, role}},
                       {2}, {1}, 2));
      EXPECT_TRUE(same_bits({logits_.begin() + TinyProgram::kVocabulary, logits_.end()}, alone));
    }
  }
}

TEST_F(CudaExecutor, a_copied_page_continues_with_the_same_bits) {
  ASSERT_TRUE(step({{5, 0, 0, false}, {6, 1, 0, false}}, {0}, {}, 0));
  executor_->copy_page(0, 0, 3);
  ASSERT_TRUE(step({{7, 2, 0, true}}, {0}));
  const std::vector<float> original = logits_;
  ASSERT_TRUE(step({{7, 2, 0, true}}, {3}));
  EXPECT_TRUE(same_bits(logits_, original));
}

TEST_F(CudaExecutor, pages_keep_their_content_when_more_are_reserved) {
  ASSERT_TRUE(step({{5, 0, 0, false}}, {0}, {}, 0));
  ASSERT_TRUE(executor_->reserve_pages(0, 20000).has_value());
  ASSERT_TRUE(step({{6, 1, 0, true}}, {0}));
  const std::vector<float> grown = logits_;
  ASSERT_TRUE(step({{5, 0, 0, false}, {6, 1, 0, true}}, {1}));
  EXPECT_TRUE(same_bits(logits_, grown));
}

TEST_F(CudaExecutor, malformed_batches_are_errors_and_the_next_step_works) {
  EXPECT_FALSE(step({}, {0}, {}, 0));
  EXPECT_FALSE(step(std::vector<backend::Row>(65), {0}, {}, 0));
  EXPECT_FALSE(step({{int32_t(TinyProgram::kVocabulary), 0, 0, true}}, {0}));
  EXPECT_FALSE(step({{-1, 0, 0, true}}, {0}));
  EXPECT_FALSE(step({{0, 0, 2, true}}, {0}));                     // no such sequence
  EXPECT_FALSE(step({{0, 64, 0, true}}, {0}));                    // no page for it
  EXPECT_FALSE(step({{0, 64, 0, true}}, {backend::kNoPage, 0}));  // the past is absent
  EXPECT_FALSE(step({{0, 0, 0, true}}, {4}));                     // page was not reserved
  EXPECT_FALSE(step({{0, 2048, 0, true}}, std::vector<backend::PageId>(40, 0)));
  EXPECT_FALSE(step({{0, 0, 0, true}}, {0}, {}, 2));  // logits of the wrong size
  EXPECT_TRUE(step({{0, 0, 0, true}}, {0}));
}

TEST_F(CudaExecutor, more_memory_than_the_device_has_is_an_error_with_both_numbers) {
  backend::CompileOptions huge;
  huge.max_rows = 1u << 31;
  huge.max_positions = 2048;
  const auto executor = backend::cuda_backend().compile(tiny_.program, huge);
  ASSERT_FALSE(executor.has_value());
  EXPECT_NE(executor.error().message.find("free"), std::string::npos) << executor.error().message;
}

TEST_F(CudaExecutor, the_plan_names_kernels_and_what_is_not_fast) {
  const backend::Plan& plan = executor_->plan();
  ASSERT_EQ(plan.steps.size(), tiny_.program.steps.size());
  EXPECT_EQ(plan.steps[1].kernel, "project.q4_0.cuda.mma");
  EXPECT_EQ(plan.steps[1].launches, 1u);
  EXPECT_EQ(plan.steps[1].why_not_fast, "");
  EXPECT_NE(plan.steps[3].why_not_fast.find("q5_1"), std::string::npos);
}

}  // namespace
}  // namespace honeycrisp::testing
