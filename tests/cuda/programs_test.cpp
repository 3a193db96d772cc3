// Every format and every variant of an op on the device: near the reference backend, and the same bits for any grouping
// of rows, in both roles.
#include "cuda/cuda_test.h"
#include "golden/runner.h"
#include "support/op_cases.h"

#include <algorithm>

namespace honeycrisp::testing {
namespace {

using namespace program;
using quant::Format;
using test_support::op_cases;
using test_support::OpCase;
using test_support::TinyProgram;

constexpr size_t kChunks[] = {1, 2, 3, 7, 64};

// Errors of products are near 2^-22 of a term (generated rows in a graph), or 2^-12 where activations are one f16 (the
// persistent kernel) and weights too (prompts); the ops amplify them some ten times. A value near a tie may be rounded
// the other way into the cache: a step of 2^-11, or of 1/127; coarse products meet more of them.
double bar_of(CacheType type, Role role, bool persistent) {
  if (role == Role::kPrompt || persistent)
    return type == CacheType::kF32 ? 5e-3 : type == CacheType::kF16 ? 8e-3 : 3e-2;
  constexpr double arithmetic = 2e-5;
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
    EXPECT_LT(std::sqrt(difference / norm), bar_of(type, role, is_persistent(*cuda)))
        << name_of(role) << ", cache " << to_string(type);
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
  for (Format format :
       {Format::kQ4_0, Format::kQ8_0, Format::kQ4_K, Format::kQ6_K, Format::kQ4_1, Format::kQ2_K, Format::kIQ4_XS}) {
    TinyProgram t(512);
    const BufferId wide = t.buffer(17920), back = t.buffer(512);
    t.store(t.matrix(format, 17920, 512), t.all(0), t.all(wide), {.scale = 0.05f});
    t.store(t.matrix(format, 512, 17920), t.all(wide), t.all(back), {.scale = 0.01f});
    t.residual(t.matrix(Format::kF32, 512, 512), t.all(back), {.branch_scale = 0.3f});
    t.finish();
    expect_near_reference_and_stable(t, 5, CacheType::kF32);
  }
}

// Prompts of many rows take blocks of other sizes than prompts of few: the same bits, whichever the size.
TEST_F(OnCuda, prompt_products_in_blocks_of_any_size_have_the_same_bits) {
  for (Format format : {Format::kQ4_0, Format::kQ8_0, Format::kQ4_K, Format::kQ6_K, Format::kQ5_K, Format::kIQ3_S}) {
    SCOPED_TRACE(quant::to_string(format));
    TinyProgram t(512);
    const BufferId query = t.buffer(4096), key = t.buffer(1040), wide = t.buffer(12304), back = t.buffer(512);
    Store both{.outs = {t.all(query), t.all(key)}, .scale = 0.05f};
    t.add(Project{t.all(0),
                  t.norm(512),
                  {t.matrix(format, 4096, 512), t.matrix(format, 1040, 512)},
                  {std::nullopt, t.vector(1040)},
                  both},
          "both");
    t.add(Project{t.all(0),
                  t.norm(512),
                  {t.matrix(format, 12304, 512), t.matrix(format, 12304, 512)},
                  {std::nullopt, std::nullopt},
                  Gate{.out = t.all(wide)}},
          "gate");
    t.store(t.matrix(format, 512, 12288), {wide, 0, 12288}, t.all(back), {.scale = 0.01f});
    t.residual(t.matrix(Format::kF32, 512, 512), t.all(back), {.branch_scale = 0.3f});
    t.residual(t.matrix(Format::kF32, 512, 4096), t.all(query), {.branch_scale = 0.3f});
    t.residual(t.matrix(Format::kF32, 512, 1040), t.all(key), {.branch_scale = 0.3f});
    t.finish();
    const std::vector<int32_t> tokens = some_tokens(530, TinyProgram::kVocabulary);
    const auto executor = compile(backend::cuda_backend(), t.program, CacheType::kF16, 530);
    ASSERT_TRUE(executor);
    const std::vector<float> whole = all_logits(*executor, t.program, tokens, 530, Role::kPrompt);
    for (size_t chunk : {64, 100, 200, 300, 512})
      EXPECT_TRUE(same_bits(all_logits(*executor, t.program, tokens, chunk, Role::kPrompt), whole))
          << "chunks of " << chunk;
  }
}

// Many rows of a mixture are sorted into larger tiles than few; experts that are unpacked in registers, and ones that
// half tiles are made of, packed or not.
TEST_F(OnCuda, prompt_mixtures_in_tiles_of_any_size_have_the_same_bits) {
  for (Format format :
       {Format::kQ4_0, Format::kQ8_0, Format::kQ4_K, Format::kQ6_K, Format::kQ5_K, Format::kMXFP4, Format::kIQ3_S}) {
    SCOPED_TRACE(quant::to_string(format));
    constexpr uint32_t kExperts = 12, kHidden = 256, kPositions = 530;
    TinyProgram t(512);
    MixExperts m;
    m.in = t.all(0);
    m.input_norm = t.norm(t.width);
    m.router.matrix = t.matrix(Format::kF32, kExperts, t.width);
    m.router.top_k = 3;
    m.gate = t.matrix(format, kHidden, t.width, kExperts);
    m.up = t.matrix(format, kHidden, t.width, kExperts);
    m.down = t.matrix(Format::kQ6_K, t.width, kHidden, kExperts);
    m.ending = Residual{.x = t.all(0), .branch_scale = 0.01f};
    t.add(m, "experts");
    t.finish();
    const std::vector<int32_t> tokens = some_tokens(kPositions, TinyProgram::kVocabulary);
    const auto reference = compile(backend::reference_backend(), t.program, CacheType::kF16, kPositions);
    const auto executor = compile(backend::cuda_backend(), t.program, CacheType::kF16, kPositions);
    ASSERT_TRUE(reference && executor);
    const std::vector<float> expected = all_logits(*reference, t.program, tokens, kPositions, Role::kPrompt);
    const std::vector<float> whole = all_logits(*executor, t.program, tokens, kPositions, Role::kPrompt);
    EXPECT_LT(relative_error(whole, expected), bar_of(CacheType::kF32, Role::kPrompt, false));
    for (size_t chunk : {64, 200, 512})
      EXPECT_TRUE(same_bits(all_logits(*executor, t.program, tokens, chunk, Role::kPrompt), whole))
          << "chunks of " << chunk;
  }
}

// ---- ops

// A product that has no packed tiles keeps the whole program a graph of kernels.
void keep_a_graph(TinyProgram& t) {
  t.residual(t.matrix(Format::kF32, t.width, t.width), t.all(0), {.branch_scale = 0.1f});
}

class CudaPrograms : public OnCuda, public ::testing::WithParamInterface<size_t> {};

TEST_P(CudaPrograms, agree_with_the_reference_in_any_grouping) {
  const test_support::OpCase& c = op_cases()[GetParam()];
  TinyProgram t(c.width);
  c.add(t);
  keep_a_graph(t);
  t.finish();
  if (const auto plan = backend::cuda_backend().plan(t.program, {}); !plan)
    GTEST_SKIP() << "NOTHING WAS TESTED: " << plan.error().message;
  for (CacheType type : {CacheType::kF32, CacheType::kF16, CacheType::kQ8_0}) {
    expect_near_reference_and_stable(t, c.positions, type);
    if (t.program.caches.empty()) break;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaPrograms, ::testing::Range(size_t{0}, op_cases().size()),
                         [](const auto& param_info) { return op_cases()[param_info.param].name; });

// Long enough that a prompt's attention is merged from spans of positions, and pages are seen whole.
TEST_F(OnCuda, prompt_attention_over_several_spans_agrees_with_the_reference) {
  constexpr uint32_t kPositions = 2300;
  for (uint32_t window : {0u, 700u}) {
    TinyProgram t;
    t.attention([](TinyProgram&, Attend&) {}, window);
    keep_a_graph(t);
    t.finish();
    const std::vector<int32_t> tokens = some_tokens(kPositions, TinyProgram::kVocabulary);
    const auto reference = compile(backend::reference_backend(), t.program, CacheType::kF16, kPositions, kPositions);
    const auto cuda = compile(backend::cuda_backend(), t.program, CacheType::kF16, 512, kPositions);
    ASSERT_TRUE(reference && cuda);
    const std::vector<float> expected = all_logits(*reference, t.program, tokens, kPositions, Role::kPrompt);
    const std::vector<float> whole = all_logits(*cuda, t.program, tokens, 512, Role::kPrompt);
    EXPECT_LT(relative_error(whole, expected), bar_of(CacheType::kF16, Role::kPrompt, false)) << "window " << window;
    for (size_t chunk : {300, 77})
      EXPECT_TRUE(same_bits(all_logits(*cuda, t.program, tokens, chunk, Role::kPrompt), whole))
          << "window " << window << ", chunks of " << chunk;
  }
}

// An infinite value of a later position: rows that do not see it keep their bits, others do not hide it.
TEST_F(OnCuda, infinite_values_reach_only_the_rows_that_see_them) {
  constexpr uint32_t kPositions = 90, kBad = 70, kHugeToken = TinyProgram::kVocabulary - 1;
  TinyProgram t;
  t.attention([](TinyProgram&, Attend&) {});
  keep_a_graph(t);
  t.finish();
  // One token's values overflow the cache's f16: its embedding is large, and values are made without a norm.
  std::get<Project>(t.program.steps[3].op).input_norm.reset();
  auto* table = reinterpret_cast<float*>(t.bytes[std::get<Embed>(t.program.steps[0].op).table.weight].data());
  for (uint32_t i = 0; i < t.width; ++i) table[kHugeToken * t.width + i] = 1e7f;
  const std::vector<int32_t> fine = some_tokens(kPositions, kHugeToken);
  std::vector<int32_t> bad = fine;
  bad[kBad] = int32_t(kHugeToken);
  for (Role role : kRoles) {
    const auto cuda = compile(backend::cuda_backend(), t.program, CacheType::kF16);
    ASSERT_TRUE(cuda);
    std::vector<float> expected = all_logits(*cuda, t.program, fine, 512, role);
    expected.resize(size_t{kBad} * t.program.vocabulary);
    for (size_t chunk : {7, 512}) {
      std::vector<float> logits = all_logits(*cuda, t.program, bad, chunk, role);
      EXPECT_FALSE(std::isfinite(logits.back())) << name_of(role);
      logits.resize(expected.size());
      EXPECT_TRUE(same_bits(logits, expected)) << name_of(role) << ", chunks of " << chunk;
    }
  }
}

// Values near the largest float, multiplied by small weights: no f16 of the way overflows.
TEST_F(OnCuda, activations_near_the_largest_float_do_not_overflow) {
  for (const auto& [format, table] : {std::pair{Format::kQ4_0, Format::kF32},
                                      {Format::kQ5_0, Format::kF32},
                                      {Format::kQ4_0, Format::kBF16},
                                      {Format::kQ5_0, Format::kQ4_0}}) {
    TinyProgram t;
    const BufferId small = t.buffer(t.width);
    std::get<Embed>(t.program.steps[0].op).scale = 5e37f;
    t.store(t.matrix(format, t.width, t.width), t.all(0), t.all(small), {.scale = 1e-37f});
    std::get<Project>(t.program.steps.back().op).input_norm.reset();
    t.add(Logits{t.all(small), t.norm(t.width), t.matrix(table, TinyProgram::kVocabulary, t.width), 1, 0}, "logits");
    ASSERT_TRUE(check(t.program).has_value());
    expect_near_reference_and_stable(t, 9, CacheType::kF32);
  }
}

// Sums of a block with the largest codes and activations, which f32 have just room for: as limbs of a byte (up to eight
// rows) and as f16 (more) they are the same.
TEST_F(OnCuda, the_largest_codes_and_activations_have_the_same_bits_in_any_grouping) {
  using enum Format;
  for (const Format format :
       {kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K, kIQ4_NL, kIQ4_XS, kMXFP4, kNVFP4})
    for (const uint8_t fill : {uint8_t{0xff}, uint8_t{0}}) {
      SCOPED_TRACE(fmt::format("{}, {:#x}", quant::to_string(format), fill));
      TinyProgram t(512);
      auto* table = reinterpret_cast<float*>(t.bytes[0].data());
      for (uint32_t i = 0; i < TinyProgram::kVocabulary * 512; ++i) {
        const float size = i % 11 == 0 && i / 512 % 3 == 2 ? 0x1p-20f : 1.98f;  // some rows have small ones between
        table[i] = i / 512 % 3 == 1 ? -size : size;
      }
      const BufferId out = t.buffer(320);
      t.fill = fill;
      t.store(t.matrix(format, 320, 512), t.all(0), t.all(out), {.scale = 1e-2f});
      std::get<Project>(t.program.steps.back().op).input_norm.reset();
      t.fill.reset();
      t.add(Logits{t.all(out), t.norm(320), t.matrix(kQ8_0, TinyProgram::kVocabulary, 320), 1, 0}, "logits");
      ASSERT_TRUE(check(t.program).has_value());
      const auto executor = compile(backend::cuda_backend(), t.program, CacheType::kF32);
      ASSERT_TRUE(executor);
      EXPECT_TRUE(is_persistent(*executor)) << reasons(*executor);
      const std::vector<int32_t> tokens = some_tokens(21, TinyProgram::kVocabulary);
      const std::vector<float> whole = all_logits(*executor, t.program, tokens, 512, Role::kGenerated);
      EXPECT_TRUE(std::all_of(whole.begin(), whole.end(), [](float v) { return std::isfinite(v); }));
      for (const size_t chunk : kChunks)
        EXPECT_TRUE(same_bits(all_logits(*executor, t.program, tokens, chunk, Role::kGenerated), whole)) << chunk;
    }
}

// ---- the persistent kernel

// All formats packed: the whole program runs there, unless the case has something that it leaves to the graph.
class CudaPersistent : public CudaPrograms {};

// Of the formats that most files have; `seldom`: and of another, for which there are kernels of their own.
TinyProgram packed_program(const OpCase& c, uint32_t head_dim, bool seldom = false) {
  TinyProgram t(c.width);
  t.only_packed = true;
  t.head_dim = head_dim;
  c.add(t);
  if (seldom) {
    t.only_packed = false;
    t.residual(t.matrix(Format::kQ5_1, t.width, t.width), t.all(0), {.branch_scale = 0.1f});
    t.only_packed = true;
  }
  t.finish();
  return t;
}

bool left_to_the_graph(const OpCase& c) {
  if (c.name.starts_with("mix_experts") || c.name.starts_with("delta_net")) return true;
  for (const char* name : {"store_of_mixed_formats", "store_with_norm_per_slice_addend_and_scales",
                           "attend_whole_norms_and_interleaved_rope", "attend_partial_rope_v_norm_and_v_of_k",
                           "gate_clamped_swiglu", "attend_temperature_by_position"})
    if (c.name == name) return true;
  return false;
}

TEST_P(CudaPersistent, agrees_with_the_reference_in_any_grouping) {
  const OpCase& c = op_cases()[GetParam()];
  const TinyProgram t = packed_program(c, TinyProgram::kHeadDim);
  if (const auto plan = backend::cuda_backend().plan(t.program, {}); !plan)
    GTEST_SKIP() << "NOTHING WAS TESTED: " << plan.error().message;
  for (CacheType type : {CacheType::kF32, CacheType::kF16, CacheType::kQ8_0}) {
    const auto executor = compile(backend::cuda_backend(), t.program, type);
    ASSERT_TRUE(executor);
    EXPECT_EQ(is_persistent(*executor), !left_to_the_graph(c)) << reasons(*executor);
    expect_near_reference_and_stable(t, c.positions, type);
    if (t.program.caches.empty()) break;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaPersistent, ::testing::Range(size_t{0}, op_cases().size()),
                         [](const auto& param_info) { return op_cases()[param_info.param].name; });

// Heads of 64 and 128 in f16 have kernels of their own.
TEST_F(OnCuda, attention_on_tensor_cores_agrees_with_the_reference) {
  for (uint32_t dim : {64u, 128u})
    for (const OpCase& c : op_cases()) {
      if (!c.name.starts_with("attend") || left_to_the_graph(c)) continue;
      SCOPED_TRACE(fmt::format("{}, heads of {}", c.name, dim));
      for (const bool seldom : {false, true}) {
        const TinyProgram t = packed_program(c, dim, seldom);
        if (!backend::cuda_backend().plan(t.program, {})) continue;
        const auto executor = compile(backend::cuda_backend(), t.program, CacheType::kF16);
        ASSERT_TRUE(executor);
        EXPECT_TRUE(is_persistent(*executor)) << reasons(*executor);
        expect_near_reference_and_stable(t, c.positions, CacheType::kF16);
      }
    }
}

// Several chunks of K, several passes of row tiles, and formats mixed in one op.
TEST_F(OnCuda, persistent_products_of_all_packed_formats_agree_with_the_reference) {
  using enum Format;
  constexpr Format kFormats[] = {kQ4_0, kQ8_0, kQ4_K,   kQ6_K,   kQ4_1,  kQ5_0,  kQ5_1, kQ2_K,
                                 kQ3_K, kQ5_K, kIQ4_NL, kIQ4_XS, kMXFP4, kNVFP4, kF16,  kBF16};
  constexpr size_t kPaired = 4;  // each with each; the others with the one before and the one after
  for (size_t i = 0; i < std::size(kFormats); ++i)
    for (size_t j = 0; j < std::size(kFormats); ++j) {
      if ((i >= kPaired || j >= kPaired) && j != (i + 1) % std::size(kFormats)) continue;
      const Format format = kFormats[i], other = kFormats[j];
      SCOPED_TRACE(fmt::format("{} and {}", quant::to_string(format), quant::to_string(other)));
      TinyProgram t(512);
      const BufferId wide = t.buffer(17920), more = t.buffer(256), back = t.buffer(512);
      Store both{.outs = {t.all(wide), t.all(more)}, .scale = 0.05f};
      t.add(Project{t.all(0),
                    t.norm(512),
                    {t.matrix(format, 17920, 512), t.matrix(other, 256, 512)},
                    {std::nullopt, std::nullopt},
                    both},
            "both");
      t.store(t.matrix(other, 512, 17920), t.all(wide), t.all(back), {.scale = 0.01f});
      t.residual(t.matrix(format, 512, 256), t.all(more), {.branch_scale = 0.1f});
      t.residual(t.matrix(format, 512, 512), t.all(back), {.branch_scale = 0.3f});
      t.finish();
      const auto executor = compile(backend::cuda_backend(), t.program, CacheType::kF32);
      ASSERT_TRUE(executor);
      EXPECT_TRUE(is_persistent(*executor)) << reasons(*executor);
      expect_near_reference_and_stable(t, 11, CacheType::kF32);
    }
}

// Widths at which stages of weights end just where their ring does.
TEST_F(OnCuda, persistent_products_whose_stages_fill_the_ring_agree_with_the_reference) {
  for (uint32_t columns : {2304u, 6400u, 9216u}) {
    SCOPED_TRACE(columns);
    TinyProgram t(512);
    const BufferId wide = t.buffer(columns), back = t.buffer(512);
    t.store(t.matrix(Format::kQ4_0, columns, 512), t.all(0), t.all(wide), {.scale = 0.05f});
    t.store(t.matrix(Format::kQ4_0, 512, columns), t.all(wide), t.all(back), {.scale = 0.01f});
    t.residual(t.matrix(Format::kQ4_0, 512, 512), t.all(back), {.branch_scale = 0.3f});
    t.finish();
    expect_near_reference_and_stable(t, 11, CacheType::kF32);
  }
}

// Many sequences step together, some of them at positions of a later chunk: as each would alone.
TEST_F(OnCuda, rows_of_many_sequences_have_the_bits_that_each_has_alone) {
  constexpr uint32_t kSequences = 67, kSteps = 3, kPrompt = program::kAttentionChunk + 5, kPages = 6;
  for (const char* name : {"attend_grouped_queries", "attend_window", "attend_output_gate"}) {
    const auto found = std::ranges::find(op_cases(), name, &OpCase::name);
    ASSERT_NE(found, op_cases().end()) << name;
    for (uint32_t dim : {TinyProgram::kHeadDim, 64u, 128u}) {
      SCOPED_TRACE(fmt::format("{}, heads of {}", name, dim));
      const TinyProgram t = packed_program(*found, dim);
      const uint32_t vocabulary = t.program.vocabulary;
      const auto executor = compile(backend::cuda_backend(), t.program, CacheType::kF16);
      ASSERT_TRUE(executor);
      EXPECT_TRUE(is_persistent(*executor)) << reasons(*executor);
      std::vector<std::vector<backend::PageId>> pages(2 * kSequences, std::vector<backend::PageId>(kPages));
      std::vector<backend::SequencePages> sequences(pages.size());
      for (uint32_t s = 0; s < pages.size(); ++s) {
        std::iota(pages[s].begin(), pages[s].end(), s * kPages);
        sequences[s].tables.assign(t.program.pools.size(), pages[s]);
      }
      for (uint32_t pool = 0; pool < t.program.pools.size(); ++pool)
        ASSERT_TRUE(executor->reserve_pages(pool, uint32_t(pages.size()) * kPages).has_value());
      std::vector<float> logits;
      const auto step = [&](const std::vector<backend::Row>& rows) {
        logits.assign(size_t(std::ranges::count_if(rows, &backend::Row::wants_logits)) * vocabulary, 0);
        const auto done = executor->step({rows, sequences}, logits);
        ASSERT_TRUE(done.has_value()) << done.error().message;
      };
      const auto token = [&](uint32_t s, uint32_t p) { return int32_t((s * 31 + p * 7) % vocabulary); };
      // Sequence s, and its twin that steps alone.
      const auto begins_at = [](uint32_t s) { return s % 9 == 0 ? kPrompt + s : s % 4; };
      for (uint32_t s = 0; s < kSequences; ++s)
        for (uint32_t copy : {s, s + kSequences}) {
          std::vector<backend::Row> rows;
          for (uint32_t p = 0; p < begins_at(s); ++p) rows.push_back({token(s, p), p, copy, false, Role::kPrompt});
          if (!rows.empty()) step(rows);
        }
      for (uint32_t i = 0; i < kSteps; ++i) {
        std::vector<backend::Row> rows;
        for (uint32_t s = 0; s < kSequences; ++s)
          rows.push_back({token(s, begins_at(s) + i), begins_at(s) + i, s, s % 5 != 1, Role::kGenerated});
        step(rows);
        const std::vector<float> together = logits;
        size_t at = 0;
        for (backend::Row row : rows) {
          const uint32_t s = row.sequence;
          row.sequence += kSequences;
          step({row});
          if (!row.wants_logits) continue;
          EXPECT_EQ(0, std::memcmp(together.data() + at++ * vocabulary, logits.data(), vocabulary * sizeof(float)))
              << "sequence " << s << ", step " << i;
        }
      }
    }
  }
}

// Pages that a window has passed are gone: nobody looks them up, in any of the ways that rows run.
TEST_F(OnCuda, rows_whose_window_has_passed_pages_do_without_them) {
  constexpr uint32_t kSequences = 9, kWindow = 100, kFirst = 2 * program::kAttentionChunk + 40, kPages = 12;
  for (const bool graph : {false, true})
    for (const uint32_t dim : {TinyProgram::kHeadDim, 64u, 128u}) {
      SCOPED_TRACE(fmt::format("{}, heads of {}", graph ? "graph" : "persistent", dim));
      TinyProgram t(512);
      t.only_packed = true;
      t.head_dim = dim;
      t.attention([](TinyProgram&, Attend&) {}, kWindow);
      t.only_packed = false;
      if (graph) keep_a_graph(t);
      t.only_packed = true;
      t.finish();
      const uint32_t vocabulary = t.program.vocabulary;
      const auto executor = compile(backend::cuda_backend(), t.program, CacheType::kF16);
      ASSERT_TRUE(executor);
      EXPECT_EQ(is_persistent(*executor), !graph) << reasons(*executor);
      ASSERT_TRUE(executor->reserve_pages(0, kSequences * kPages).has_value());
      const auto position = [](uint32_t s) { return kFirst + s * 37 % 64; };  // of all pages' edges
      std::vector<std::vector<backend::PageId>> all(kSequences, std::vector<backend::PageId>(kPages)), left;
      for (uint32_t s = 0; s < kSequences; ++s) {
        std::iota(all[s].begin(), all[s].end(), s * kPages);
        left.push_back(all[s]);
        std::fill_n(left[s].begin(), (position(s) - kWindow + 1) / program::kPagePositions, backend::kNoPage);
      }
      const auto step = [&](const std::vector<backend::Row>& rows, const auto& pages, size_t n_logits) {
        std::vector<backend::SequencePages> sequences(kSequences);
        for (uint32_t s = 0; s < kSequences; ++s) sequences[s].tables.assign(1, pages[s]);
        std::vector<float> logits(n_logits * vocabulary);
        const auto done = executor->step({rows, sequences}, logits);
        EXPECT_TRUE(done.has_value()) << done.error().message;
        return logits;
      };
      const auto token = [&](uint32_t s, uint32_t p) { return int32_t((s * 31 + p * 7) % vocabulary); };
      for (uint32_t s = 0; s < kSequences; ++s)
        for (uint32_t first = 0; first < position(s); first += 512) {
          std::vector<backend::Row> rows;
          for (uint32_t p = first; p < std::min(position(s), first + 512); ++p)
            rows.push_back({token(s, p), p, s, false, Role::kPrompt});
          step(rows, all, 0);
        }
      for (const uint32_t n : {1u, 8u, 9u}) {
        std::vector<backend::Row> rows;
        for (uint32_t s = 0; s < n; ++s)
          rows.push_back({token(s, position(s)), position(s), s, true, Role::kGenerated});
        const std::vector<float> expected = step(rows, all, n);
        EXPECT_GT(std::ranges::count(left[0], backend::kNoPage), 4);
        EXPECT_TRUE(same_bits(step(rows, left, n), expected)) << n << " rows";
      }
    }
}

// The persistent kernel's blocks wait for each other, and none of another executor's steps may keep them apart.
TEST_F(OnCuda, executors_that_step_at_the_same_time_have_the_same_bits) {
  constexpr int kSteps = 300;
  TinyProgram t(512);
  const BufferId wide = t.buffer(8192), back = t.buffer(512);
  t.store(t.matrix(Format::kQ4_0, 8192, 512), t.all(0), t.all(wide), {.scale = 0.05f});
  t.store(t.matrix(Format::kQ4_0, 512, 8192), t.all(wide), t.all(back), {.scale = 0.01f});
  t.residual(t.matrix(Format::kQ4_0, 512, 512), t.all(back), {.branch_scale = 0.3f});
  t.finish();
  const uint32_t vocabulary = t.program.vocabulary;
  const backend::SequencePages none{.tables = {t.program.pools.size(), std::span<const backend::PageId>()}};
  const auto step = [&](backend::Executor& executor, uint32_t n_rows) {
    std::vector<backend::Row> rows;
    const std::vector<backend::SequencePages> sequences(n_rows, none);
    for (uint32_t i = 0; i < n_rows; ++i) rows.push_back({int32_t(i % vocabulary), 0, i, true, Role::kGenerated});
    std::vector<float> logits(size_t{n_rows} * vocabulary);
    const auto done = executor.step({rows, sequences}, logits);
    EXPECT_TRUE(done.has_value()) << done.error().message;
    return logits;
  };
  const auto first = compile(backend::cuda_backend(), t.program, CacheType::kF16, 64);
  ASSERT_TRUE(first);
  EXPECT_TRUE(is_persistent(*first)) << reasons(*first);
  const uint32_t counts[] = {1, 9, 33, 64};
  std::vector<std::vector<float>> expected;
  for (const uint32_t n : counts) expected.push_back(step(*first, n));
  const auto walk = [&](backend::Executor& executor, int from) {
    for (int i = from; i < from + kSteps && !HasFailure(); ++i)
      EXPECT_TRUE(same_bits(step(executor, counts[i % 4]), expected[size_t(i % 4)])) << i;
  };
  std::thread other([&] {
    for (int i = 0; i < 3; ++i) {  // some leave, and others come
      const auto executor = compile(backend::cuda_backend(), t.program, CacheType::kF16, 64);
      ASSERT_TRUE(executor);
      walk(*executor, i);
    }
  });
  for (int i = 0; i < 3; ++i) walk(*first, 2 * i);
  other.join();
}

// ---- the executor

class CudaExecutor : public OnCuda {
 protected:
  void SetUp() override {
    OnCuda::SetUp();
    if (IsSkipped()) return;
    tiny_.attention([](TinyProgram&, Attend&) {});
    keep_a_graph(tiny_);
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

// Sequences advance next to one another, in steps of any size, from a copy, and from position 0 in a used state.
TEST_F(OnCuda, recurrent_states_of_sequences_are_their_own) {
  const auto found = std::ranges::find(op_cases(), "delta_net_large_heads", &OpCase::name);
  ASSERT_NE(found, op_cases().end());
  const TinyProgram t = found->build();
  constexpr uint32_t kPositions = 12;
  const uint32_t vocabulary = t.program.vocabulary;
  const std::vector<int32_t> tokens = some_tokens(kPositions, vocabulary);
  for (Role role : kRoles) {
    const auto executor = compile(backend::cuda_backend(), t.program, CacheType::kF16, 64);
    ASSERT_TRUE(executor && executor->reserve_states(3).has_value());
    EXPECT_GT(executor->state_bytes(), 0u);
    const std::vector<float> expected = all_logits(*executor, t.program, tokens, kPositions, role);
    backend::SequencePages sequences[3];
    for (uint32_t s = 0; s < 3; ++s) sequences[s].state = s;
    std::vector<float> logits;
    const auto step = [&](const std::vector<backend::Row>& rows) {
      logits.assign(rows.size() * vocabulary, 0);
      const auto done = executor->step({rows, sequences}, logits);
      EXPECT_TRUE(done.has_value()) << done.error().message;
    };
    const auto expect_row = [&](size_t row, uint32_t position, const char* what) {
      EXPECT_EQ(0, std::memcmp(logits.data() + row * vocabulary, expected.data() + position * vocabulary,
                               vocabulary * sizeof(float)))
          << name_of(role) << ", position " << position << ", " << what;
    };
    // State 0 was used; 1 runs one position behind it, in alternating rows.
    for (uint32_t p = 0; p + 2 < kPositions; p += 2) {
      std::vector<backend::Row> rows;
      for (uint32_t i = 0; i < 2; ++i) {
        rows.push_back({tokens[p + i], p + i, 0, true, role});
        if (p + i > 0) rows.push_back({tokens[p + i - 1], p + i - 1, 1, true, role});
      }
      step(rows);
      for (size_t i = 0; i < rows.size(); ++i) expect_row(i, rows[i].position, "two sequences");
    }
    executor->copy_state(0, 2);
    for (uint32_t p = kPositions - 2; p < kPositions; ++p) {
      step({{tokens[p], p, 2, true, role}, {tokens[p], p, 0, true, role}});
      expect_row(0, p, "a copy");
      expect_row(1, p, "its original");
    }
  }
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

}  // namespace
}  // namespace honeycrisp::testing
