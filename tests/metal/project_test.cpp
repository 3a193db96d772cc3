// The kernels of Embed, Project and Logits, through the backend's encode functions, on the fast and on the checking
// device: every format and odd size against double precision, equal bits where they are promised, guards around every
// view.
#include "backend/metal/project.h"

#include "backend/metal/kernels/offsets.h"
#include "backend/metal/top_k.h"
#include "backend/metal/tuning.h"
#include "backend/top_logits.h"
#include "project_case.h"
#include "quant/dequantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <sys/mman.h>

namespace honeycrisp::backend::metal::testing {
namespace {

using quant::Format;
constexpr soft::DeviceOptions kChecked{.check = true};
constexpr soft::DeviceOptions kShuffled{.check = true, .seed = 5};

uint32_t block(Format f) { return std::max(32u, quant::info(f).block_elements); }

/// Several shapes; a rig for a few of them, so that little piles up.
void check_all(const std::vector<Shape>& shapes, const soft::DeviceOptions& options = {}) {
  constexpr uint32_t kShapesPerRig = 8;
  std::optional<Rig> rig;
  for (uint32_t i = 0; i < shapes.size(); ++i) {
    if (i % kShapesPerRig == 0) rig.emplace(options);
    ASSERT_EQ(check_project(*rig, shapes[i], 8 + 7 * i), "");
  }
}

class EveryFormat : public ::testing::TestWithParam<Format> {};
INSTANTIATE_TEST_SUITE_P(All, EveryFormat, ::testing::ValuesIn(kernel_formats()),
                         [](const auto& p) { return std::string(quant::to_string(p.param)); });

/// A multiple of 64 that is none of 128, where blocks allow one.
std::optional<uint32_t> odd_multiple_of_64(Format f) { return block(f) <= 64 ? std::optional(192u) : std::nullopt; }

/// Numbers of rows around the tiles' and chunks' sizes.
std::vector<uint32_t> batches(uint32_t largest) {
  std::vector<uint32_t> all;
  for (const auto& [first, last] : {std::pair(1u, 9u), {15u, 17u}, {31u, 33u}, {63u, 65u}, {127u, 129u}, {511u, 519u}})
    for (uint32_t n = first; n <= std::min(last, largest); ++n) all.push_back(n);
  return all;
}

TEST_P(EveryFormat, mat_vec_of_odd_sizes) {
  const Format f = GetParam();
  const uint32_t k = block(f);
  std::vector<Shape> shapes;
  for (uint32_t rows : {1u, 2u, 31u, 33u, 51865u}) shapes.push_back({f, rows, k, 1});
  shapes.push_back({f, 33, 3 * k, 1, Role::kGenerated, true, true});
  if (const auto odd = odd_multiple_of_64(f)) {
    shapes.push_back({f, 31, *odd, 1, Role::kGenerated, true});
    shapes.push_back({f, 31, *odd, 3});
  }
  for (uint32_t batch : batches(129))
    shapes.push_back({f, 19, 3 * k, batch, Role::kGenerated, batch % 2 == 1, batch % 3 == 0});
  shapes.push_back({f, 5, 9 * 256, 1});  // 72 parts: not cached
  check_all(shapes);
}

TEST_P(EveryFormat, mat_vec_checked) {
  const Format f = GetParam();
  check_all({{f, 3, block(f), 1},
             {f, 33, 3 * block(f), 1, Role::kGenerated, true, true},
             {f, 6, 3 * block(f), 5, Role::kGenerated, true}},
            kChecked);
}

TEST_P(EveryFormat, mat_mul_of_odd_sizes) {
  const Format f = GetParam();
  const uint32_t k = block(f);
  std::vector<Shape> shapes;
  for (uint32_t rows : {1u, 2u, 31u, 33u, 51865u}) shapes.push_back({f, rows, k, 3, Role::kPrompt});
  shapes.push_back({f, 65, 3 * k, 33, Role::kPrompt, true, true});
  if (const auto odd = odd_multiple_of_64(f)) shapes.push_back({f, 31, *odd, 17, Role::kPrompt});
  check_all(shapes);
}

TEST_P(EveryFormat, mat_mul_of_every_number_of_rows) {
  std::vector<Shape> shapes;
  for (uint32_t batch : batches(519)) shapes.push_back({GetParam(), 5, block(GetParam()), batch, Role::kPrompt});
  check_all(shapes);
}

TEST_P(EveryFormat, mat_mul_checked) {
  const Format f = GetParam();
  check_all({{f, 33, 3 * block(f), 9, Role::kPrompt, true, true}}, kChecked);
}

TEST_P(EveryFormat, embed_gives_the_bits_of_dequantize) {
  const Format f = GetParam();
  for (const auto& options : {soft::DeviceOptions{}, kChecked}) {
    Rig rig(options);
    const uint32_t cols = 3 * block(f), rows = 7;
    const program::Matrix table = rig.add_weight(f, rows, cols, random_weights(f, rows, cols, 3));
    const program::Slice out = rig.add_buffer(cols);
    rig.set_rows(5, Role::kPrompt);
    const std::vector<int32_t> tokens = {6, 0, 3, 3, 1};
    rig.set_tokens(tokens);
    ASSERT_EQ(rig.run({program::Embed{table, out, 1.5f}}), "");
    const std::vector<float> w = dequantized(rig.program, table), got = rig.values(out);
    for (size_t r = 0; r < tokens.size(); ++r)
      for (uint32_t i = 0; i < cols; ++i)
        ASSERT_EQ(got[r * cols + i], w[size_t(tokens[r]) * cols + i] * 1.5f) << "row " << r << ", column " << i;
  }
}

TEST(Project, columns_that_are_no_multiple_of_a_part) {
  std::vector<Shape> shapes;
  for (Format f : {Format::kF32, Format::kF16, Format::kBF16})
    for (uint32_t cols : {1u, 7u, 31u, 33u, 40u, 100u})
      for (Role role : {Role::kGenerated, Role::kPrompt}) {
        shapes.push_back({f, 9, cols, 1, role});
        shapes.push_back({f, 9, cols, 3, role, true});
      }
  check_all(shapes);
  check_all({shapes.begin(), shapes.begin() + 8}, kChecked);
}

TEST(Project, every_number_of_prompt_rows_with_norm_and_rows_left_over) {
  std::vector<Shape> shapes;
  for (uint32_t batch : batches(519)) shapes.push_back({Format::kQ4_0, 33, 96, batch, Role::kPrompt, true});
  check_all(shapes);
}

TEST(Project, geometries_of_models) {
  check_all({
      {Format::kQ4_0, 3072, 1024, 1, Role::kGenerated, true},  // Qwen3-0.6B
      {Format::kQ4_0, 1024, 3072, 1},
      {Format::kQ4_K, 256, 1536, 1, Role::kGenerated, true, true},  // Qwen2.5-1.5B
      {Format::kQ6_K, 128, 8960, 1},
      {Format::kQ4_K, 64, 5120, 1, Role::kGenerated, true},  // 14B
      {Format::kQ4_K, 32, 13824, 2},
      {Format::kQ4_0, 64, 5376, 1, Role::kGenerated, true},  // Gemma 31B
      {Format::kQ4_0, 32, 21504, 1},
      {Format::kQ4_0, 8, 21504, 8},
      {Format::kQ8_0, 576, 576, 1, Role::kGenerated, true},
      {Format::kQ5_0, 640, 640, 3, Role::kGenerated, true},
      {Format::kMXFP4, 96, 2880, 1, Role::kGenerated, true, true},
      {Format::kQ4_1, 100, 576, 40, Role::kPrompt, true},
      {Format::kMXFP4, 96, 2880, 33, Role::kPrompt, true, true},
      {Format::kQ4_K, 40, 1536, 33, Role::kPrompt, true, true},
  });
}

TEST(Project, every_variant_of_the_cache) {
  std::vector<Shape> shapes;
  for (uint32_t parts : {32u, 33u, 48u, 49u, 64u, 65u, 96u, 97u, 128u, 129u, 192u, 193u})
    for (bool norm : {false, true}) shapes.push_back({Format::kQ4_0, 17, parts * 32, 1, Role::kGenerated, norm});
  check_all(shapes);
  check_all(shapes, kShuffled);
}

// ---- equal bits

/// Four matrices of different formats and sizes times one input.
struct Several {
  std::vector<program::Matrix> matrices;
  std::vector<std::optional<program::VectorId>> biases;
  std::vector<program::Slice> outs;
  program::Slice in;
  std::optional<program::Norm> norm;
};
Several several(Rig& rig, bool norm, size_t n_matrices = 4) {
  constexpr uint32_t kCols = 768;
  Several s;
  s.in = rig.add_buffer(kCols);
  const std::pair<Format, uint32_t> kinds[] = {
      {Format::kQ4_K, 70}, {Format::kQ4_0, 33}, {Format::kQ6_K, 1}, {Format::kF16, 130}};
  for (const auto& [format, rows] : std::span(kinds).first(n_matrices)) {
    s.matrices.push_back(rig.add_weight(format, rows, kCols, random_weights(format, rows, kCols, rows)));
    s.outs.push_back(rig.add_buffer(rows));
    s.biases.push_back(rows == 33 ? std::optional(rig.add_vector(normals(rows, 5))) : std::nullopt);
  }
  if (norm) s.norm = program::Norm{rig.add_vector(normals(kCols, 9)), 1e-5f};
  return s;
}
std::vector<program::Op> fused(const Several& s) {
  return {program::Project{.in = s.in,
                           .input_norm = s.norm,
                           .matrices = s.matrices,
                           .biases = s.biases,
                           .ending = program::Store{.outs = s.outs, .norm = {}, .add = {}}}};
}
std::vector<program::Op> separate(const Several& s) {
  std::vector<program::Op> ops;
  for (size_t m = 0; m < s.matrices.size(); ++m)
    ops.push_back(program::Project{.in = s.in,
                                   .input_norm = s.norm,
                                   .matrices = {s.matrices[m]},
                                   .biases = {s.biases[m]},
                                   .ending = program::Store{.outs = {s.outs[m]}, .norm = {}, .add = {}}});
  return ops;
}
/// All outputs, one after the other, or what went wrong.
std::vector<float> outputs(Rig& rig, const Several& s, const std::vector<program::Op>& ops, uint32_t n, Role role,
                           const std::vector<float>& x, uint32_t launches = 0) {
  rig.set_rows(n, role);
  rig.fill(s.in, x);
  EXPECT_EQ(rig.run(ops), "");
  if (launches != 0) {
    EXPECT_EQ(rig.launches(), launches);
  }
  std::vector<float> all;
  for (const program::Slice& out : s.outs) {
    const std::vector<float> v = rig.values(out);
    all.insert(all.end(), v.begin(), v.end());
  }
  return all;
}
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

TEST(ProjectBits, matrices_in_one_launch_as_in_launches_of_their_own) {
  for (const auto& options : {soft::DeviceOptions{}, kShuffled})
    for (bool norm : {false, true})
      for (Role role : {Role::kGenerated, Role::kPrompt})
        for (uint32_t n : {1u, 3u, 8u})
          for (size_t n_matrices : {2u, 3u, 4u}) {
            Rig rig(options);
            const Several s = several(rig, norm, n_matrices);
            const std::vector<float> x = normals(size_t(n) * s.in.width, n);
            const uint32_t launches = role == Role::kPrompt && norm ? 2 : 1;
            EXPECT_TRUE(
                same_bits(outputs(rig, s, fused(s), n, role, x, launches), outputs(rig, s, separate(s), n, role, x)))
                << n << " rows, " << n_matrices << " matrices";
          }
}

TEST_P(EveryFormat, rows_together_have_the_bits_of_one_at_a_time) {
  const uint32_t cols = 3 * block(GetParam());
  for (Role role : {Role::kGenerated, Role::kPrompt})
    for (uint32_t n = 2; n <= 8; ++n) {
      Rig rig;
      Several s;
      s.in = rig.add_buffer(cols);
      s.matrices = {rig.add_weight(GetParam(), 19, cols, random_weights(GetParam(), 19, cols, n))};
      s.outs = {rig.add_buffer(19)};
      s.biases = {std::nullopt};
      s.norm = program::Norm{rig.add_vector(normals(cols, 9)), 1e-5f};
      const std::vector<float> x = normals(size_t(n) * cols, n), together = outputs(rig, s, fused(s), n, role, x);
      std::vector<float> alone;
      for (uint32_t row = 0; row < n; ++row) {
        const std::vector<float> y =
            outputs(rig, s, fused(s), 1, role, {x.begin() + row * cols, x.begin() + (row + 1) * cols});
        alone.insert(alone.end(), y.begin(), y.end());
      }
      EXPECT_TRUE(same_bits(together, alone)) << n << " rows";
    }
}

TEST(ProjectBits, several_rows_as_one_at_a_time) {
  for (Role role : {Role::kGenerated, Role::kPrompt})
    for (uint32_t n : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 16u, 33u}) {
      Rig rig;
      const Several s = several(rig, true);
      const uint32_t width = s.in.width;
      const std::vector<float> x = normals(size_t(n) * width, n);
      const std::vector<float> together = outputs(rig, s, fused(s), n, role, x);
      for (uint32_t row : {0u, n / 2, n - 1}) {
        const std::vector<float> alone =
            outputs(rig, s, fused(s), 1, role, {x.begin() + row * width, x.begin() + (row + 1) * width});
        size_t from = 0, at = 0;
        for (const program::Slice& out : s.outs) {
          EXPECT_EQ(std::memcmp(alone.data() + at, together.data() + from + size_t(row) * out.width, out.width * 4), 0)
              << n << " rows, row " << row;
          at += out.width;
          from += size_t(n) * out.width;
        }
      }
    }
}

// ---- endings

/// Reference of an ending in double precision, with a tolerance on top of the products'.
double activation(program::Activation a, double g, double u) {
  switch (a) {
    case program::Activation::kSilu: return g / (1 + std::exp(-g)) * u;
    case program::Activation::kGeluTanh:
      return 0.5 * g * (1 + std::tanh(0.79788456080286535588 * (g + 0.044715 * g * g * g))) * u;
    case program::Activation::kClampedSwiglu: {
      const double x = std::min(g, 7.0), y = std::clamp(u, -7.0, 7.0);
      return x / (1 + std::exp(-1.702 * x)) * (y + 1);
    }
  }
  return 0;
}

class Endings : public ::testing::TestWithParam<std::tuple<Role, uint32_t, bool>> {
 protected:
  const Role role = std::get<0>(GetParam());
  const uint32_t n = std::get<1>(GetParam());
  const bool prompt = role == Role::kPrompt;
  Rig rig{std::get<2>(GetParam()) ? kShuffled : soft::DeviceOptions{}};
  static constexpr uint32_t kCols = 96, kRows = 70;
  program::Slice in = rig.add_buffer(kCols), out = rig.add_buffer(kRows), other = rig.add_buffer(kRows);
  program::Matrix first = rig.add_weight(Format::kQ4_0, kRows, kCols, random_weights(Format::kQ4_0, kRows, kCols, 1));
  program::Matrix second = rig.add_weight(Format::kQ5_1, kRows, kCols, random_weights(Format::kQ5_1, kRows, kCols, 2));
  std::vector<float> x = normals(n * kCols, 3), before = normals(n * kRows, 4), given = normals(n * kRows, 5);

  std::vector<float> run(const program::Project& op) {
    rig.set_rows(n, role);
    rig.fill(in, x);
    rig.fill(out, before);
    rig.fill(other, given);
    EXPECT_EQ(rig.run({op}), "");
    return rig.values(out);
  }
  std::vector<Expected> expected(const program::Matrix& m, uint32_t row) {
    return products(rig.program, m, dequantized(rig.program, m), {}, x.data() + row * kCols, prompt);
  }
};
INSTANTIATE_TEST_SUITE_P(All, Endings,
                         ::testing::Combine(::testing::Values(Role::kGenerated, Role::kPrompt),
                                            ::testing::Values(1u, 5u, 9u), ::testing::Bool()),
                         [](const auto& p) {
                           return fmt::format("{}_{}_{}",
                                              std::get<0>(p.param) == Role::kPrompt ? "prompt" : "generated",
                                              std::get<1>(p.param), std::get<2>(p.param) ? "checked" : "fast");
                         });

TEST_P(Endings, gates) {
  for (program::Activation a :
       {program::Activation::kSilu, program::Activation::kGeluTanh, program::Activation::kClampedSwiglu})
    for (bool operand : {false, true}) {
      program::Project op{.in = in, .input_norm = {}, .matrices = {first}, .biases = {std::nullopt}, .ending = {}};
      if (operand) {
        op.ending = program::Gate{a, other, out};
      } else {
        op.matrices.push_back(second);
        op.biases.push_back(std::nullopt);
        op.ending = program::Gate{a, std::nullopt, out};
      }
      const std::vector<float> got = run(op);
      EXPECT_EQ(rig.launches(), 1u);
      for (uint32_t b = 0; b < n; ++b) {
        const auto g = expected(first, b), u = expected(second, b);
        for (uint32_t r = 0; r < kRows; ++r) {
          const double up = operand ? double(given[b * kRows + r]) : u[r].value;
          const double want = activation(a, g[r].value, up);
          // no activation is steeper than 1.13; the sigmoid's or tanh's few ulps come on top
          const double allowed = 1.2 * g[r].allowed * (std::abs(up) + 1) +
                                 (operand ? 0 : 1.2 * u[r].allowed * (std::abs(g[r].value) + 1)) +
                                 16 * 0x1p-24 * (std::abs(want) + std::abs(g[r].value * up));
          ASSERT_EQ(compare("gate", b * kRows + r, got[b * kRows + r], {want, allowed}), "");
        }
      }
    }
}

TEST_P(Endings, store_with_scales_and_addition_in_place) {
  const std::vector<float> got =
      run({.in = in,
           .input_norm = {},
           .matrices = {first},
           .biases = {std::nullopt},
           .ending = program::Store{.outs = {out}, .scale = 0.5f, .norm = {}, .add = out, .out_scale = 3.0f}});
  for (uint32_t b = 0; b < n; ++b) {
    const auto y = expected(first, b);
    for (uint32_t r = 0; r < kRows; ++r) {
      const double want = 3.0 * (double(before[b * kRows + r]) + 0.5 * y[r].value);
      ASSERT_EQ(compare("store", b * kRows + r, got[b * kRows + r],
                        {want, 1.5 * y[r].allowed + 4 * 0x1p-24 * (std::abs(want) + std::abs(y[r].value))}),
                "");
    }
  }
}

TEST_P(Endings, store_with_a_norm_per_run) {
  for (uint32_t width : {0u, 14u}) {
    const program::Norm norm{rig.add_vector(normals(width == 0 ? kRows : width, 8)), 1e-6f};
    const std::vector<float> got =
        run({.in = in,
             .input_norm = {},
             .matrices = {first},
             .biases = {std::nullopt},
             .ending = program::Store{
                 .outs = {out}, .scale = 0.25f, .norm = norm, .norm_width = width, .add = other, .out_scale = 2.0f}});
    EXPECT_EQ(rig.launches(), 2u);
    const uint32_t run = width == 0 ? kRows : width;
    for (uint32_t b = 0; b < n; ++b) {
      const auto y = expected(first, b);
      for (uint32_t r0 = 0; r0 < kRows; r0 += run) {
        double squares = 0, worst = 0;
        for (uint32_t r = r0; r < r0 + run; ++r) {
          squares += 0.0625 * y[r].value * y[r].value;
          worst = std::max(worst, 0.25 * y[r].allowed);
        }
        const double scale = 1 / std::sqrt(squares / run + 1e-6);
        for (uint32_t r = r0; r < r0 + run; ++r) {
          const double w = double(rig.program.vectors[*norm.weight].values[r - r0]);
          const double normed = 0.25 * y[r].value * scale * w;
          const double want = 2 * (double(given[b * kRows + r]) + normed);
          // an error of every y by `worst` moves the root by as much at most
          const double allowed = 2 * (worst * scale * std::abs(w) + std::abs(normed) * worst * scale) +
                                 16 * 0x1p-24 * (std::abs(want) + std::abs(normed));
          ASSERT_EQ(compare("norm", b * kRows + r, got[b * kRows + r], {want, allowed}), "");
        }
      }
    }
  }
}

TEST_P(Endings, residual) {
  const std::vector<float> got =
      run({.in = in,
           .input_norm = {},
           .matrices = {first},
           .biases = {std::nullopt},
           .ending = program::Residual{.x = out, .branch_scale = 0.5f, .post_norm = {}, .residual_scale = 2.0f}});
  for (uint32_t b = 0; b < n; ++b) {
    const auto y = expected(first, b);
    for (uint32_t r = 0; r < kRows; ++r) {
      const double want = 2 * (double(before[b * kRows + r]) + 0.5 * y[r].value);
      ASSERT_EQ(compare("residual", b * kRows + r, got[b * kRows + r],
                        {want, y[r].allowed + 4 * 0x1p-24 * (std::abs(want) + std::abs(y[r].value))}),
                "");
    }
  }
}

// ---- residuals that wait

/// A layer's tail as Gemma has it: o (post-norm), gate and up, down (post-norm), then the next layer's projection.
TEST(Pending, resolved_by_who_reads_and_brought_up_to_date_by_who_does_not) {
  constexpr uint32_t kWidth = 100, kHidden = 75;
  for (const auto& options : {soft::DeviceOptions{}, kShuffled})
    for (Role role : {Role::kGenerated, Role::kPrompt})
      for (uint32_t n : {1u, 2u, 9u}) {
        std::vector<float> results[2];
        for (bool together : {true, false}) {
          Rig rig(options);
          const program::Slice x = rig.add_buffer(kWidth), a = rig.add_buffer(kWidth), h = rig.add_buffer(kHidden),
                               q = rig.add_buffer(kWidth);
          const auto matrix = [&](uint32_t rows, uint32_t cols, uint32_t seed) {
            return rig.add_weight(Format::kF32, rows, cols, random_weights(Format::kF32, rows, cols, seed));
          };
          const auto norm = [&](uint32_t seed) { return program::Norm{rig.add_vector(normals(kWidth, seed)), 1e-6f}; };
          const auto project = [&](program::Slice in, std::optional<program::Norm> input_norm,
                                   std::vector<program::Matrix> matrices, auto ending) {
            program::Project op{
                .in = in, .input_norm = input_norm, .matrices = matrices, .biases = {}, .ending = ending};
            op.biases.resize(matrices.size());
            return op;
          };
          const std::vector<program::Op> ops = {
              project(a, {}, {matrix(kWidth, kWidth, 1)},
                      program::Residual{.x = x, .branch_scale = 0.5f, .post_norm = norm(2), .residual_scale = 1.5f}),
              project(x, norm(3), {matrix(kHidden, kWidth, 4), matrix(kHidden, kWidth, 5)},
                      program::Gate{program::Activation::kGeluTanh, {}, h}),
              project(h, {}, {matrix(kWidth, kHidden, 6)},
                      program::Residual{.x = x, .post_norm = norm(7), .residual_scale = 0.5f}),
              project(x, norm(8), {matrix(kWidth, kWidth, 9)}, program::Store{.outs = {q}, .norm = {}, .add = {}}),
          };
          rig.set_rows(n, role);
          rig.fill(x, normals(n * kWidth, 10));
          rig.fill(a, normals(n * kWidth, 11));
          if (together) {
            ASSERT_EQ(rig.run(ops), "");
            // one launch each, and one for what waits at the end; a prompt's norms have launches of their own
            EXPECT_EQ(rig.launches(), role == Role::kPrompt ? 6u : 5u);
          } else {  // each op by itself, with x brought up to date after each
            for (const program::Op& op : ops) ASSERT_EQ(rig.run({op}), "");
          }
          std::vector<float>& r = results[together];
          for (const program::Slice& s : {x, h, q}) {
            const std::vector<float> v = rig.values(s);
            r.insert(r.end(), v.begin(), v.end());
          }
        }
        EXPECT_TRUE(same_bits(results[0], results[1])) << n << " rows";
        for (float v : results[0]) ASSERT_TRUE(std::isfinite(v));
      }
}

TEST(Pending, values_as_the_program_says) {
  constexpr uint32_t kWidth = 96;
  for (Role role : {Role::kGenerated, Role::kPrompt}) {
    Rig rig;
    const program::Slice x = rig.add_buffer(kWidth), a = rig.add_buffer(kWidth);
    const program::Matrix m =
        rig.add_weight(Format::kQ8_0, kWidth, kWidth, random_weights(Format::kQ8_0, kWidth, kWidth, 1));
    const program::Norm norm{rig.add_vector(normals(kWidth, 2)), 1e-6f};
    rig.set_rows(3, role);
    const std::vector<float> before = normals(3 * kWidth, 3), in = normals(3 * kWidth, 4);
    rig.fill(x, before);
    rig.fill(a, in);
    ASSERT_EQ(
        rig.run({program::Project{
            .in = a,
            .input_norm = {},
            .matrices = {m},
            .biases = {std::nullopt},
            .ending = program::Residual{.x = x, .branch_scale = 0.5f, .post_norm = norm, .residual_scale = 1.5f}}}),
        "");
    const std::vector<float> got = rig.values(x), w = dequantized(rig.program, m);
    for (uint32_t b = 0; b < 3; ++b) {
      const auto y = products(rig.program, m, w, {}, in.data() + b * kWidth, role == Role::kPrompt);
      double squares = 0, worst = 0;
      for (const Expected& e : y) {
        squares += e.value * e.value;
        worst = std::max(worst, e.allowed);
      }
      const double scale = 1 / std::sqrt(squares / kWidth + 1e-6);
      for (uint32_t i = 0; i < kWidth; ++i) {
        const double weight = double(rig.program.vectors[*norm.weight].values[i]), normed = y[i].value * scale * weight;
        const double want = 1.5 * (double(before[b * kWidth + i]) + 0.5 * normed);
        const double allowed =
            worst * scale * (std::abs(weight) + std::abs(normed)) + 16 * 0x1p-24 * (std::abs(want) + std::abs(normed));
        ASSERT_EQ(compare("x", b * kWidth + i, got[b * kWidth + i], {want, allowed}), "");
      }
    }
  }
}

// ---- logits

TEST(Logits, of_the_rows_that_want_them) {
  constexpr uint32_t kCols = 576;
  for (const auto& options : {soft::DeviceOptions{}, kChecked}) {
    Rig rig(options);
    const uint32_t rows = options.check ? 300 : 3000;
    rig.program.vocabulary = rows;
    const program::Slice x = rig.add_buffer(kCols);
    const program::Matrix table =
        rig.add_weight(Format::kQ8_0, rows, kCols, random_weights(Format::kQ8_0, rows, kCols, 1));
    const program::Norm norm{rig.add_vector(normals(kCols, 2)), 1e-5f};
    for (const std::vector<uint32_t>& wanted : {std::vector<uint32_t>{}, {6}, {0, 3, 6}}) {
      rig.set_rows(7, Role::kPrompt, wanted);
      const std::vector<float> in = normals(7 * kCols, 3);
      rig.fill(x, in);
      ASSERT_EQ(rig.run({program::Logits{x, norm, table, 2.0f, 30.0f}}), "");
      EXPECT_EQ(rig.launches(), wanted.empty() ? 0u : 1u);
      if (wanted.empty()) continue;
      const std::vector<float> got = rig.logits(), w = dequantized(rig.program, table);
      for (size_t l = 0; l < wanted.size(); ++l) {
        const auto y = products(rig.program, table, w, norm, in.data() + wanted[l] * kCols, false);
        for (uint32_t r = 0; r < rows; ++r) {
          const double want = 2 * 30 * std::tanh(y[r].value / 30);
          ASSERT_EQ(compare("logit", l * rows + r, got[l * rows + r],
                            {want, 2 * y[r].allowed + 8 * 0x1p-24 * std::abs(want)}),
                    "");
        }
      }
    }
  }
}

// ---- the largest

TEST(TopK, by_rank_with_ties_by_index_and_what_is_unusable_first_and_counted) {
  for (const auto& options : {soft::DeviceOptions{}, kShuffled})
    for (uint32_t count : {1u, 5u, 127u, 129u, 4096u, 4097u, options.check ? 5000u : 151'936u})
      for (uint32_t k : {1u, 7u, 40u}) {
        constexpr uint32_t kRows = 3, kPadding = 3;  // what stands behind a row's values is none of them
        constexpr float kInf = std::numeric_limits<float>::infinity();
        const uint32_t stride = count + kPadding;
        Rig rig(options);
        std::vector<float> values = normals(size_t(kRows) * stride, count);
        for (float& v : values) v = std::round(v * 8);  // many ties
        for (uint32_t r = 0; r < kRows; ++r) std::fill_n(values.begin() + (r + 1) * stride - kPadding, kPadding, kInf);
        if (count > 3) values[3] = kInf;
        values[count / 2] = NAN;
        values[count - 1] = -kInf;
        std::fill_n(values.begin() + 2 * stride, count, -kInf);  // the last row
        values[stride + count / 3] = -0.0f;
        const auto memory = [&](uint64_t bytes) { return rig.guarded(bytes); };
        const TopKShape shape{kRows, count, stride, k};
        const View logits = memory(4 * values.size()), scratch = memory(top_k_scratch_bytes(shape));
        const TopK out{memory(4ull * kRows * k), memory(4ull * kRows * k), memory(4ull * kRows)};
        std::memcpy(logits.buffer->contents() + logits.offset, values.data(), logits.bytes);
        ASSERT_EQ(
            rig.encode([&](StepEncoder& e) { return encode_top_k(rig.pipelines(), e, logits, shape, scratch, out); }),
            "");
        EXPECT_EQ(rig.launches(), 2u);
        EXPECT_EQ(rig.barriers(), 1u);
        const auto* best = reinterpret_cast<const float*>(out.values.buffer->contents() + out.values.offset);
        const auto* index = reinterpret_cast<const uint32_t*>(out.indices.buffer->contents() + out.indices.offset);
        const auto* unusable = reinterpret_cast<const uint32_t*>(out.unusable.buffer->contents() + out.unusable.offset);
        for (uint32_t r = 0; r < kRows; ++r) {
          const std::span<const float> row = std::span(values).subspan(size_t(r) * stride, count);
          const TopLogits expected = top_logits(row, k);
          ASSERT_EQ(unusable[r], expected.n_unusable) << count << " values, row " << r;
          for (uint32_t i = 0; i < k; ++i) {
            const bool there = i < expected.n;
            ASSERT_EQ(index[r * k + i], there ? uint32_t(expected.tokens[i]) : UINT32_MAX)
                << count << " values, row " << r << ", rank " << i;
            if (there) {
              ASSERT_EQ(std::memcmp(&best[r * k + i], &expected.logits[i], sizeof(float)), 0);
            }
          }
        }
      }
}

TEST(TopK, errors_name_what_is_short) {
  Rig rig;
  const View view = rig.guarded(64), small = rig.guarded(4);
  const auto error = [&](const TopKShape& shape, const TopK& out) {
    return rig.encode([&](StepEncoder& e) { return encode_top_k(rig.pipelines(), e, view, shape, view, out); });
  };
  EXPECT_EQ(error({1, 16, 16, 0}, {view, view, view}), "top_k: 0 of 16 values in 1 rows of 16; k goes from 1 to 256");
  EXPECT_EQ(error({1, 16, 15, 1}, {view, view, view}), "top_k: 1 of 16 values in 1 rows of 15; k goes from 1 to 256");
  EXPECT_EQ(error({1, 16, 17, 1}, {view, view, view}), "top_k: logits has 64 bytes and needs 68");
  EXPECT_EQ(error({1, 16, 16, 2}, {view, small, view}), "top_k: indices has 4 bytes and needs 8");
  EXPECT_EQ(error({2, 8, 8, 1}, {view, view, small}), "top_k: unusable has 4 bytes and needs 8");
}

// ---- extremes

TEST(Extremes, what_is_not_finite_stays_so_and_zeros_give_zeros) {
  for (Role role : {Role::kGenerated, Role::kPrompt}) {
    const auto product = [&](float weight, float value, bool norm) {
      Rig rig;
      std::vector<float> w(2 * 40, 0.5f);
      w[3] = weight;
      std::vector<std::byte> bytes(w.size() * 4);
      std::memcpy(bytes.data(), w.data(), bytes.size());
      const program::Matrix m = rig.add_weight(Format::kF32, 2, 40, bytes);
      const program::Slice in = rig.add_buffer(40), out = rig.add_buffer(2);
      rig.set_rows(1, role);
      std::vector<float> x(40, value);
      rig.fill(in, x);
      program::Project op{.in = in,
                          .input_norm = {},
                          .matrices = {m},
                          .biases = {std::nullopt},
                          .ending = program::Store{.outs = {out}, .norm = {}, .add = {}}};
      if (norm) op.input_norm = program::Norm{std::nullopt, 1e-6f};
      EXPECT_EQ(rig.run({op}), "");
      return rig.values(out);
    };
    const float inf = std::numeric_limits<float>::infinity();
    EXPECT_TRUE(std::isnan(product(NAN, 1, false)[0]));
    EXPECT_EQ(product(NAN, 1, false)[1], 20);
    EXPECT_EQ(product(inf, 1, false)[0], inf);
    EXPECT_EQ(product(-inf, 1, false)[0], -inf);
    EXPECT_TRUE(std::isnan(product(1, NAN, true)[1]));
    EXPECT_EQ(product(1, 0, true)[1], 0);
    EXPECT_EQ(product(3e38f, 3e38f, false)[0], inf);
    EXPECT_NEAR(product(0.5f, 1e15f, true)[1], 20, 1e-4);  // huge, but its squares are finite
  }
}

TEST(Extremes, weights_beyond_four_gibibytes) {
  // pages that nobody touches cost nothing
  constexpr uint64_t kRowBytes = 3ull << 30, kBytes = 2 * kRowBytes + 4096;
  void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  {
    Rig rig;
    const uint32_t cols = 96;
    const program::Matrix m =
        rig.add_spread_weight(Format::kQ4_0, 3, cols, static_cast<std::byte*>(memory), kRowBytes, kBytes);
    for (uint32_t r = 0; r < 3; ++r) {
      const auto row = random_weights(Format::kQ4_0, 1, cols, r + 1);
      std::copy(row.begin(), row.end(), static_cast<std::byte*>(memory) + r * kRowBytes);
    }
    for (Role role : {Role::kGenerated, Role::kPrompt}) {
      const program::Slice in = rig.add_buffer(cols), out = rig.add_buffer(3);
      rig.set_rows(1, role);
      const std::vector<float> x = normals(cols, 4);
      rig.fill(in, x);
      ASSERT_EQ(rig.run({program::Project{.in = in,
                                          .input_norm = {},
                                          .matrices = {m},
                                          .biases = {std::nullopt},
                                          .ending = program::Store{.outs = {out}, .norm = {}, .add = {}}}}),
                "");
      const std::vector<float> got = rig.values(out);
      for (uint32_t r = 0; r < 3; ++r) {
        std::vector<float> w(cols);
        quant::dequantize_row(Format::kQ4_0, static_cast<std::byte*>(memory) + r * kRowBytes, w.data(), cols);
        double want = 0, magnitudes = 0;
        for (uint32_t i = 0; i < cols; ++i) {
          want += double(w[i]) * double(x[i]);
          magnitudes += std::abs(double(w[i]) * double(x[i]));
        }
        EXPECT_EQ(compare("row", r, got[r], {want, cols * 0x1p-24 * magnitudes}), "");
      }
    }
  }
  ::munmap(memory, kBytes);
}

TEST(Offsets, pass_32_bits) {
  static_assert(row_offset(70'000, 81'920) == 5'734'400'000ull);
  static_assert(row_offset(UINT32_MAX, 1ull << 31) == uint64_t{UINT32_MAX} << 31);
  static_assert(batch_offset(20'000, 262'144) == 5'242'880'000ull);
  static_assert(batch_offset(UINT32_MAX, UINT32_MAX) == uint64_t{UINT32_MAX} * UINT32_MAX);
}

// ---- the tables

TEST(Tuning, every_choice_fits_the_device_and_holds_its_input) {
  for (uint32_t rows : {1u, 100u, 5000u, 200000u})
    for (uint32_t parts = 1; parts < 700; ++parts)
      for (uint32_t batch : {1u, 2u, 3u, 4u, 5u, 8u, 100u})
        for (bool gate : {false, true})
          for (bool norm : {false, true}) {
            const MatVecVariant v = choose_mat_vec({rows, parts * 32, batch, gate, norm});
            const uint32_t bytes = 4 * mat_vec_memory(v.batch_tile, v.cached_parts);
            ASSERT_LE(bytes, kMostThreadgroupMemory);
            ASSERT_EQ(bytes % 16, 0u);
            ASSERT_LE(v.batch_tile * v.rows_per_simdgroup, 32u);
            ASSERT_TRUE(v.cached_parts == 0 || parts <= v.cached_parts);
            ASSERT_TRUE(v.batch_tile == 1 || v.cached_parts == 0);
            ASSERT_TRUE(batch > 1 || v.batch_tile == 1);
          }
  for (bool gate : {false, true}) {
    EXPECT_LE(4 * mat_mul_memory(gate), kMostThreadgroupMemory);
    EXPECT_EQ(mat_mul_memory(gate) % 4, 0u);
  }
}

}  // namespace
}  // namespace honeycrisp::backend::metal::testing
