#include "backend/reference/ops.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace honeycrisp::backend::reference {
namespace {

struct Choice {
  uint32_t expert;
  float weight;
};

// The router's choice for one row, best first.
std::vector<Choice> choose(const program::Program& program, const program::Router& router, std::span<const float> x) {
  const size_t n = router.matrix.rows;
  std::vector<float> scores(n);
  multiply(program, router.matrix, x, 1, scores.data(), n);
  if (router.bias)
    for (size_t i = 0; i < n; ++i) scores[i] += program.vectors[*router.bias].values[i];
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  // A score that is no number ranks last, so that the order is one.
  const auto rank = [&](uint32_t i) { return std::isnan(scores[i]) ? -INFINITY : scores[i]; };
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return rank(a) != rank(b) ? rank(a) > rank(b) : a < b; });

  const size_t among = router.routing == program::Routing::kSoftmaxTopK ? n : router.top_k;
  double sum = 0;
  for (size_t i = 0; i < among; ++i) sum += std::exp(double(scores[order[i]]) - double(scores[order[0]]));
  std::vector<Choice> choices;
  for (size_t i = 0; i < router.top_k; ++i) {
    double weight = std::exp(double(scores[order[i]]) - double(scores[order[0]])) / sum;
    if (router.expert_scale) weight *= double(program.vectors[*router.expert_scale].values[order[i]]);
    choices.push_back({order[i], float(weight)});
  }
  return choices;
}

void add_bias(const program::Program& program, const std::optional<program::VectorId>& bias, size_t expert,
              std::span<float> y) {
  if (!bias) return;
  const float* values = program.vectors[*bias].values.data() + expert * y.size();
  for (size_t i = 0; i < y.size(); ++i) y[i] += values[i];
}

// down(unit(gate · x, up · x)) of one expert.
std::vector<float> run_expert(const program::Program& program, const program::MixExperts& op, size_t expert,
                              std::span<const float> x) {
  std::vector<float> gate(op.gate.rows), up(op.up.rows), out(op.down.rows);
  multiply(program, op.gate, x, 1, gate.data(), gate.size(), expert);
  multiply(program, op.up, x, 1, up.data(), up.size(), expert);
  add_bias(program, op.gate_bias, expert, gate);
  add_bias(program, op.up_bias, expert, up);
  for (size_t i = 0; i < gate.size(); ++i) gate[i] = gated(op.activation, gate[i], up[i]);
  multiply(program, op.down, gate, 1, out.data(), out.size(), expert);
  add_bias(program, op.down_bias, expert, out);
  return out;
}

std::vector<float> run_shared(const program::Program& program, const program::MixExperts& op,
                              std::span<const float> x) {
  const program::SharedExpert& shared = *op.shared;
  std::vector<float> gate(shared.gate.rows), up(shared.up.rows), out(shared.down.rows);
  multiply(program, shared.gate, x, 1, gate.data(), gate.size());
  multiply(program, shared.up, x, 1, up.data(), up.size());
  for (size_t i = 0; i < gate.size(); ++i) gate[i] = gated(op.activation, gate[i], up[i]);
  multiply(program, shared.down, gate, 1, out.data(), out.size());
  if (shared.scale) {
    float scale;
    multiply(program, *shared.scale, x, 1, &scale, 1);
    for (float& v : out) v = float(double(v) * sigmoid(double(scale)));
  }
  return out;
}

}  // namespace

void run(StepState& state, const program::MixExperts& op) {
  const program::Program& program = state.program;
  for (size_t row = 0; row < state.n_rows(); ++row) {
    const std::span<const float> in = state.row(op.in, row);
    std::vector<float> x(in.begin(), in.end()), routed(in.begin(), in.end());
    if (op.input_norm) rms_norm(program, *op.input_norm, x);
    if (op.router.norm) rms_norm(program, *op.router.norm, routed);
    std::vector<double> sum(op.down.rows);
    for (const Choice& choice : choose(program, op.router, op.router.norm ? routed : x)) {
      const std::vector<float> y = run_expert(program, op, choice.expert, x);
      for (size_t i = 0; i < y.size(); ++i) sum[i] += double(choice.weight) * double(y[i]);
    }
    if (op.shared) {
      const std::vector<float> y = run_shared(program, op, x);
      for (size_t i = 0; i < y.size(); ++i) sum[i] += double(y[i]);
    }
    std::vector<float> branch(sum.begin(), sum.end());
    if (op.branch_norm) rms_norm(program, *op.branch_norm, branch);
    if (op.add) {
      const std::span<const float> dense = state.row(*op.add, row);
      for (size_t i = 0; i < branch.size(); ++i) branch[i] += dense[i];
    }
    add_residual(state, op.ending, row, branch);
  }
}

}  // namespace honeycrisp::backend::reference
