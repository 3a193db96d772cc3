// The arithmetic that several reference ops share.
#include "backend/reference/ops.h"
#include "quant/dequantize.h"

#include <algorithm>
#include <cmath>

namespace honeycrisp::backend::reference {

namespace {

// Eight interleaved partial sums, added in order: fast enough for whole models, and always the same bits.
template <class A, class B>
double dot_product(const A* a, const B* b, size_t n) {
  double sums[8] = {};
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (size_t lane = 0; lane < 8; ++lane) sums[lane] += double(a[i + lane]) * double(b[i + lane]);
  for (size_t lane = 0; i < n; ++i, ++lane) sums[lane] += double(a[i]) * double(b[i]);
  double total = 0;
  for (double s : sums) total += s;
  return total;
}

}  // namespace

double dot(const float* a, const float* b, size_t n) { return dot_product(a, b, n); }

void rms_norm(const program::Program& program, const program::Norm& norm, std::span<float> x) {
  const double mean = dot(x.data(), x.data(), x.size()) / double(x.size());
  const double scale = 1 / std::sqrt(mean + double(norm.eps));
  for (size_t i = 0; i < x.size(); ++i) {
    const double weight = norm.weight ? double(program.vectors[*norm.weight].values[i]) : 1.0;
    x[i] = float(double(x[i]) * scale * weight);
  }
}

void multiply(const program::Program& program, const program::Matrix& matrix, std::span<const float> x, size_t rows,
              float* y, size_t y_stride, size_t slice) {
  const program::Weight& w = program.weight(matrix);
  const std::vector<double> wide_x(x.begin(), x.end());  // converted once, not once per output
  std::vector<float> weights(w.cols);
  std::vector<double> wide_weights(w.cols);
  const std::byte* first = w.data + (slice * w.rows + matrix.first_row) * w.row_bytes();
  for (size_t i = 0; i < matrix.rows; ++i) {
    quant::dequantize_row(w.format, first + i * w.row_bytes(), weights.data(), w.cols);
    std::copy(weights.begin(), weights.end(), wide_weights.begin());
    for (size_t row = 0; row < rows; ++row)
      y[row * y_stride + i] = float(dot_product(wide_weights.data(), wide_x.data() + row * w.cols, w.cols));
  }
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }

float gated(program::Activation activation, float gate, float up) {
  const double g = gate;
  switch (activation) {
    case program::Activation::kSilu: return float(silu(g)) * up;
    case program::Activation::kGeluTanh: {
      constexpr double kSqrt2OverPi = 0.79788456080286535588;
      return float(0.5 * g * (1 + std::tanh(kSqrt2OverPi * (g + 0.044715 * g * g * g)))) * up;
    }
    case program::Activation::kClampedSwiglu: {
      const double limit = program::kSwigluLimit;
      const double x = std::min(g, limit), u = std::clamp(double(up), -limit, limit);
      return float(x * sigmoid(double(program::kSwigluAlpha) * x) * (u + 1));
    }
  }
  return up;
}

float softcap(float cap, float x) { return cap == 0 ? x : float(double(cap) * std::tanh(double(x) / double(cap))); }

void add_residual(StepState& state, const program::Residual& residual, size_t row, std::span<float> branch) {
  if (residual.post_norm) rms_norm(state.program, *residual.post_norm, branch);
  const std::span<float> x = state.row(residual.x, row);
  for (size_t i = 0; i < x.size(); ++i) x[i] = residual.residual_scale * (x[i] + residual.branch_scale * branch[i]);
}

}  // namespace honeycrisp::backend::reference
