#include "project_case.h"

#include "backend/metal/project.h"
#include "quant/dequantize.h"
#include "support/random_weights.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <random>

namespace honeycrisp::backend::metal::testing {

using quant::Format;

const std::vector<Format>& kernel_formats() {
  static const std::vector<Format> all = [] {
    std::vector<Format> formats;
    for (const quant::FormatInfo& i : quant::kFormats)
      if (has_kernel(i.format)) formats.push_back(i.format);
    return formats;
  }();
  return all;
}

std::vector<float> normals(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& x : v) x = normal(random);
  return v;
}

std::vector<std::byte> random_weights(Format format, uint32_t rows, uint32_t cols, uint32_t seed) {
  test_support::Random random(seed);
  return test_support::random_weights(random, format, uint64_t{rows} * cols);
}

std::vector<float> dequantized(const program::Program& program, const program::Matrix& m) {
  const program::Weight& w = program.weight(m);
  std::vector<float> out(size_t(m.rows) * w.cols);
  for (uint32_t r = 0; r < m.rows; ++r)
    quant::dequantize_row(w.format, w.data + (m.first_row + r) * w.row_bytes(), out.data() + size_t(r) * w.cols,
                          w.cols);
  return out;
}

std::vector<Expected> products(const program::Program& program, const program::Matrix& m, const std::vector<float>& w,
                               const std::optional<program::Norm>& norm, const float* x, bool prompt) {
  const uint32_t cols = program.weight(m).cols, parts = (cols + 31) / 32;
  std::vector<double> in(x, x + cols);
  if (norm) {
    double squares = 0;
    for (double v : in) squares += v * v;
    const double scale = 1 / std::sqrt(squares / cols + double(norm->eps));
    for (uint32_t i = 0; i < cols; ++i)
      in[i] *= scale * (norm->weight ? double(program.vectors[*norm->weight].values[i]) : 1);
  }
  // Roundings on the way of a product into its sum. mat_vec: 4 in a chain, 3 to add the chains, scale and offset 3, the
  // lane's parts, 5 of simd_sum; mat_mul: 2 of the weight, one for each column. A norm: squares of 1/128 of the columns
  // and 8 to add them, halved by the root, and 4 more. Bias 1.
  const double roundings = (prompt ? 2 + cols : 15 + (parts + 31) / 32) + (norm ? (cols / 128 + 9) / 2.0 + 4 : 0) + 1;
  std::vector<Expected> out(m.rows);
  for (uint32_t r = 0; r < m.rows; ++r) {
    double magnitudes = 0;
    for (uint32_t p = 0; p < parts; ++p) {
      double largest = 0, sum = 0;
      const uint32_t end = std::min(cols, 32 * p + 32);
      for (uint32_t i = 32 * p; i < end; ++i) {
        const double v = double(w[size_t(r) * cols + i]);
        largest = std::max(largest, std::abs(v));
        sum += std::abs(in[i]);
        out[r].value += v * in[i];
      }
      // scale · code and offset are summed apart, and each may be larger than the weight: with codes from anywhere in
      // their range, one of 32 being next to zero, not more than twice the largest weight
      magnitudes += 3 * largest * sum;
    }
    out[r].allowed = roundings * 0x1p-24 * magnitudes;
  }
  return out;
}

std::string compare(const std::string& what, size_t i, float got, const Expected& want) {
  if (std::abs(double(got) - want.value) <= want.allowed) return "";  // not so if NaN
  return fmt::format("{}: element {}: {} instead of {} (allowed {})", what, i, got, want.value, want.allowed);
}

std::string check_project(Rig& rig, const Shape& s, uint32_t seed) {
  const program::Matrix m = rig.add_weight(s.format, s.rows, s.cols, random_weights(s.format, s.rows, s.cols, seed));
  // the input and the output are columns of wider buffers
  program::Slice in = rig.add_buffer(s.cols + 3), out = rig.add_buffer(s.rows + 2);
  in = {in.buffer, 1, s.cols};
  out = {out.buffer, 2, s.rows};
  program::Project op{.in = in,
                      .input_norm = {},
                      .matrices = {m},
                      .biases = {std::nullopt},
                      .ending = program::Store{.outs = {out}, .norm = {}, .add = {}}};
  if (s.norm) op.input_norm = program::Norm{rig.add_vector(normals(s.cols, seed + 1)), 1e-6f};
  if (s.bias) op.biases = {rig.add_vector(normals(s.rows, seed + 2))};
  rig.set_rows(s.batch, s.role);
  const std::vector<float> x = normals(size_t(s.batch) * s.cols, seed + 3);
  rig.fill(in, x);
  const std::string what =
      fmt::format("{} {}x{}, {} {} rows{}{}", quant::to_string(s.format), s.rows, s.cols, s.batch,
                  s.role == Role::kPrompt ? "prompt" : "generated", s.norm ? ", normed" : "", s.bias ? ", bias" : "");
  if (std::string failed = rig.run({op}); !failed.empty()) return what + ": " + failed;
  const std::vector<float> w = dequantized(rig.program, m), got = rig.values(out);
  for (uint32_t b = 0; b < s.batch; ++b) {
    std::vector<Expected> want =
        products(rig.program, m, w, op.input_norm, x.data() + size_t(b) * s.cols, s.role == Role::kPrompt);
    for (uint32_t r = 0; r < s.rows; ++r) {
      if (s.bias) {
        want[r].value += double(rig.program.vectors[*op.biases[0]].values[r]);
        want[r].allowed += std::abs(want[r].value) * 0x1p-24;
      }
      if (std::string wrong = compare(what, size_t(b) * s.rows + r, got[size_t(b) * s.rows + r], want[r]);
          !wrong.empty())
        return wrong;
    }
  }
  return "";
}

}  // namespace honeycrisp::backend::metal::testing
