#include "backend/reference/ops.h"

#include <algorithm>
#include <cmath>

namespace honeycrisp::backend::reference {
namespace {

double softplus(double x) { return x > 30 ? x : std::log1p(std::exp(x)); }

// c = silu(convolution) of every channel; the row's input takes the oldest one's place in `history`.
void convolve(StepState& state, const program::DeltaNet& op, std::span<const float> input, std::span<float> history,
              std::vector<float>& c) {
  const program::StateLayer& layer = state.program.state(op);
  const std::vector<float>& taps = state.program.vectors[op.conv].values;
  const size_t channels = layer.channels, past = layer.kernel_size - 1;
  c.resize(channels);
  for (size_t i = 0; i < channels; ++i) {
    const float* tap = taps.data() + i * layer.kernel_size;
    double sum = 0;
    for (size_t j = 0; j < past; ++j) sum += double(tap[j]) * double(history[j * channels + i]);
    c[i] = float(silu(sum + double(tap[past]) * double(input[i])));
  }
  if (past == 0) return;
  std::copy(history.begin() + channels, history.end(), history.begin());
  std::copy(input.begin(), input.end(), history.end() - channels);
}

void l2_norm(std::span<float> x, double eps, double scale) {
  const double factor = scale / std::sqrt(dot(x.data(), x.data(), x.size()) + eps);
  for (float& v : x) v = float(double(v) * factor);
}

// One value head of one row; `matrix`: [key_dim][value_dim].
void advance(std::span<float> matrix, std::span<const float> q, std::span<const float> k, std::span<const float> v,
             double decay, double beta, std::span<float> out) {
  const size_t keys = q.size(), values = v.size();
  for (float& s : matrix) s = float(double(s) * decay);
  std::vector<double> known(values), sum(values);
  for (size_t i = 0; i < keys; ++i)
    for (size_t j = 0; j < values; ++j) known[j] += double(k[i]) * double(matrix[i * values + j]);
  for (size_t j = 0; j < values; ++j) known[j] = beta * (double(v[j]) - known[j]);  // from here on: what is new
  for (size_t i = 0; i < keys; ++i)
    for (size_t j = 0; j < values; ++j) {
      float& s = matrix[i * values + j];
      s = float(double(s) + double(k[i]) * known[j]);
      sum[j] += double(q[i]) * double(s);
    }
  for (size_t j = 0; j < values; ++j) out[j] = float(sum[j]);
}

}  // namespace

void run(StepState& state, const program::DeltaNet& op) {
  const program::StateLayer& layer = state.program.state(op);
  const size_t keys = layer.key_dim, values = layer.value_dim;
  const size_t all_keys = op.n_key_heads * keys, heads_per_key = layer.n_heads / op.n_key_heads;
  const std::vector<float>& a = state.program.vectors[op.a].values;
  const std::vector<float>& dt_bias = state.program.vectors[op.dt_bias].values;
  std::vector<float> c;
  for (size_t row = 0; row < state.n_rows(); ++row) {
    const Row& r = state.batch.rows[row];
    const std::span<float> memory = state.states.layer(op.state, state.batch.sequences[r.sequence].state);
    if (r.position == 0) std::fill(memory.begin(), memory.end(), 0.0f);
    convolve(state, op, state.row(op.qkv, row), memory.subspan(layer.matrix_floats()), c);
    const std::span<float> q(c.data(), all_keys), k(c.data() + all_keys, all_keys),
        v(c.data() + 2 * all_keys, layer.n_heads * values);
    for (size_t i = 0; i < all_keys; i += keys) {
      l2_norm(q.subspan(i, keys), double(op.l2_eps), 1 / std::sqrt(double(keys)));
      l2_norm(k.subspan(i, keys), double(op.l2_eps), 1);
    }
    const std::span<const float> z = state.row(op.z, row);
    const std::span<float> out = state.row(op.out, row);
    for (size_t h = 0; h < layer.n_heads; ++h) {
      const size_t gate = h / op.gate_run * op.gate_stride + h % op.gate_run;
      const size_t key_head = op.grouped_heads ? h / heads_per_key : h % op.n_key_heads;
      const double step = softplus(double(state.row(op.alpha, row)[gate]) + double(dt_bias[h]));
      const std::span<float> head = out.subspan(h * values, values);
      advance(memory.subspan(h * keys * values, keys * values), q.subspan(key_head * keys, keys),
              k.subspan(key_head * keys, keys), v.subspan(h * values, values), std::exp(double(a[h]) * step),
              sigmoid(double(state.row(op.beta, row)[gate])), head);
      rms_norm(state.program, op.norm, head);
      for (size_t j = 0; j < values; ++j) head[j] = float(double(head[j]) * silu(double(z[h * values + j])));
    }
  }
}

}  // namespace honeycrisp::backend::reference
