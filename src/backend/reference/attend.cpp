#include "backend/reference/ops.h"

#include <algorithm>
#include <cmath>

namespace honeycrisp::backend::reference {
namespace {

// Norms of one head, or of all heads together.
void norm_heads(StepState& state, const std::optional<program::Norm>& norm, bool whole, std::span<float> x,
                size_t head_dim) {
  if (!norm) return;
  const size_t run = whole ? x.size() : head_dim;
  for (size_t i = 0; i < x.size(); i += run) rms_norm(state.program, *norm, x.subspan(i, run));
}

// Rotates every head of x by its position.
void rotate(const program::Rope& rope, std::span<float> x, size_t head_dim, uint32_t position) {
  for (size_t head = 0; head < x.size(); head += head_dim) {
    for (size_t i = 0; i < rope.inverse_frequency.size(); ++i) {
      const double angle = double(position) * rope.inverse_frequency[i];
      const float c = float(rope.magnitude * std::cos(angle)), s = float(rope.magnitude * std::sin(angle));
      float& a = x[head + (rope.interleaved ? 2 * i : i)];
      float& b = x[head + (rope.interleaved ? 2 * i + 1 : i + rope.pair_distance)];
      const float a0 = a, b0 = b;
      a = a0 * c - b0 * s;
      b = a0 * s + b0 * c;
    }
  }
}

// The queries of one row and, with an output gate, their gates: [n_heads][key_dim] each.
void split_query(std::span<const float> in, const program::Attend& op, size_t head_dim, std::vector<float>& q,
                 std::vector<float>& gate) {
  q.clear();
  gate.clear();
  const size_t stride = op.output_gate ? 2 * head_dim : head_dim;
  for (size_t h = 0; h < op.n_heads; ++h) {
    const auto head = in.subspan(h * stride, stride);
    q.insert(q.end(), head.begin(), head.begin() + head_dim);
    if (op.output_gate) gate.insert(gate.end(), head.begin() + head_dim, head.end());
  }
}

void append(StepState& state, const program::Attend& op, size_t row) {
  const program::CacheLayer& cache = state.program.cache(op);
  const Row& r = state.batch.rows[row];
  const SequencePages& pages = state.batch.sequences[r.sequence];
  const std::span<float> key = state.kv.key(cache, pages, r.position), value = state.kv.value(cache, pages, r.position);
  const std::span<float> k = state.row(*op.k, row), v = op.v ? state.row(*op.v, row) : k;
  std::copy(v.begin(), v.end(), value.begin());
  std::copy(k.begin(), k.end(), key.begin());
  norm_heads(state, op.v_norm, false, value, cache.value_dim);
  norm_heads(state, op.k_norm, op.norm_whole_projection, key, cache.key_dim);
  if (op.rope) rotate(state.program.ropes[*op.rope], key, cache.key_dim, r.position);
  state.kv.round(cache, pages, r.position);
}

// One head of one row: softmax over the visible positions, in their order.
void attend_head(StepState& state, const program::Attend& op, const Row& r, size_t head, std::span<const float> q,
                 std::span<float> out) {
  const program::CacheLayer& cache = state.program.cache(op);
  const SequencePages& pages = state.batch.sequences[r.sequence];
  const size_t kv_head = head / (op.n_heads / cache.n_kv_heads);
  const uint32_t begin = op.window != 0 && r.position >= op.window ? r.position - op.window + 1 : 0;

  const double scale = op.score_scale(r.position);
  std::vector<double> scores;
  double largest = op.sinks ? double(state.program.vectors[*op.sinks].values[head]) : -INFINITY;
  for (uint32_t j = begin; j <= r.position; ++j) {
    const float* key = state.kv.key(cache, pages, j).data() + kv_head * cache.key_dim;
    scores.push_back(softcap(op.softcap, float(scale * dot(q.data(), key, cache.key_dim))));
    largest = std::max(largest, scores.back());
  }
  double denominator = op.sinks ? std::exp(double(state.program.vectors[*op.sinks].values[head]) - largest) : 0;
  std::vector<double> sum(cache.value_dim);
  for (uint32_t j = begin; j <= r.position; ++j) {
    const double weight = std::exp(scores[j - begin] - largest);
    denominator += weight;
    const float* value = state.kv.value(cache, pages, j).data() + kv_head * cache.value_dim;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += weight * double(value[i]);
  }
  for (size_t i = 0; i < sum.size(); ++i) out[i] = float(sum[i] / denominator);
}

}  // namespace

void run(StepState& state, const program::Attend& op) {
  const program::CacheLayer& cache = state.program.cache(op);
  if (op.k)
    for (size_t row = 0; row < state.n_rows(); ++row) append(state, op, row);

  std::vector<float> q, gate;
  for (size_t row = 0; row < state.n_rows(); ++row) {
    const Row& r = state.batch.rows[row];
    split_query(state.row(op.q, row), op, cache.key_dim, q, gate);
    norm_heads(state, op.q_norm, op.norm_whole_projection, q, cache.key_dim);
    if (op.rope) rotate(state.program.ropes[*op.rope], q, cache.key_dim, r.position);
    const std::span<float> out = state.row(op.out, row);
    for (size_t head = 0; head < op.n_heads; ++head)
      attend_head(state, op, r, head, std::span(q).subspan(head * cache.key_dim, cache.key_dim),
                  out.subspan(head * cache.value_dim, cache.value_dim));
    for (size_t i = 0; i < gate.size(); ++i) out[i] = float(double(out[i]) * sigmoid(double(gate[i])));
  }
}

}  // namespace honeycrisp::backend::reference
