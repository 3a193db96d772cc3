#include "program/print.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>

namespace honeycrisp::program {
namespace {

std::string describe_matrix(const Program& program, const Matrix& m) {
  const Weight& w = program.weight(m);
  return fmt::format("{}→{} {}", w.cols, m.rows, quant::to_string(w.format));
}

std::string describe_scale(const char* what, float scale) {
  return scale == 1 ? std::string() : fmt::format(" {}{:g}", what, scale);
}

const char* describe_activation(Activation a) {
  switch (a) {
    case Activation::kSilu: return "SiLU";
    case Activation::kGeluTanh: return "GELU-tanh";
    case Activation::kClampedSwiglu: return "clamped SwiGLU";
  }
  return "?";
}

std::string describe_ending(const Program&, const Store& s) {
  std::string out = "store";
  out += describe_scale("×", s.scale);
  if (s.norm) out += s.norm_width == 0 ? " norm" : fmt::format(" norm per {}", s.norm_width);
  if (s.add) out += " + vector";
  return out + describe_scale("×", s.out_scale);
}
std::string describe_ending(const Program& p, const Gate& g) {
  return fmt::format("{} gate{}", describe_activation(g.activation),
                     g.operand ? " of " + p.buffers[g.operand->buffer].name : "");
}
std::string describe_ending(const Program&, const Residual& r) {
  return fmt::format("{}residual{}{}", r.post_norm ? "norm → " : "", describe_scale("branch ×", r.branch_scale),
                     describe_scale("sum ×", r.residual_scale));
}

std::string describe_op(const Program& program, const Embed& e) {
  return fmt::format("row of [{}]{}", describe_matrix(program, e.table), describe_scale("×", e.scale));
}

std::string describe_op(const Program& program, const Project& p) {
  std::string matrices;
  for (const Matrix& m : p.matrices) {
    if (!matrices.empty()) matrices += ", ";
    matrices += describe_matrix(program, m);
  }
  const bool bias = std::any_of(p.biases.begin(), p.biases.end(), [](const auto& b) { return b.has_value(); });
  return fmt::format("{}[{}]{} → {}", p.input_norm ? "norm · " : "", matrices, bias ? " + bias" : "",
                     std::visit([&](const auto& e) { return describe_ending(program, e); }, p.ending));
}

std::string describe_op(const Program& program, const Attend& a) {
  const CacheLayer& c = program.cache(a);
  std::string out = fmt::format("{} heads of {} over {} KV heads", a.n_heads, c.key_dim, c.n_kv_heads);
  const auto add = [&](bool present, const std::string& what) {
    if (present) out += ", " + what;
  };
  add(a.q_norm || a.k_norm, a.norm_whole_projection ? "norm of whole q and k" : "norm of q and k per head");
  add(a.v_norm.has_value(), "norm of v");
  if (a.rope) {
    const Rope& r = program.ropes[*a.rope];
    add(true, fmt::format("rope {} of {} lanes{}", r.interleaved ? "interleaved" : "half-split",
                          2 * r.inverse_frequency.size(), r.kind.empty() ? "" : " (" + r.kind + ")"));
  } else {
    add(true, "no rope");
  }
  add(!a.k, fmt::format("shares cache layer {}", a.cache));
  add(a.k && !a.v, "V is K");
  add(a.window != 0, fmt::format("window {}", a.window));
  if (a.temperature)
    add(true, fmt::format("temperature {:g} every {} positions", a.temperature->beta, a.temperature->period));
  add(a.softcap != 0, fmt::format("softcap {:g}", a.softcap));
  add(a.sinks.has_value(), "sinks");
  add(a.output_gate, "output gate");
  return out;
}

std::string describe_op(const Program& program, const DeltaNet& d) {
  const StateLayer& l = program.state(d);
  return fmt::format("gated delta rule, {} heads of {}x{} over {} key heads ({}), convolution of {} taps", l.n_heads,
                     l.key_dim, l.value_dim, d.n_key_heads, d.grouped_heads ? "grouped" : "in turn", l.kernel_size);
}

const char* describe_routing(Routing r) {
  switch (r) {
    case Routing::kSoftmaxTopK: return "softmax → top";
    case Routing::kTopKSoftmax: return "top → softmax";
  }
  return "?";
}

std::string describe_op(const Program& program, const MixExperts& m) {
  std::string out =
      fmt::format("{}{} of {} experts ({}), {} gate [{}, {}, {}]", m.input_norm ? "norm · " : "", m.router.top_k,
                  m.router.matrix.rows, describe_routing(m.router.routing), describe_activation(m.activation),
                  describe_matrix(program, m.gate), describe_matrix(program, m.up), describe_matrix(program, m.down));
  if (m.gate_bias || m.up_bias || m.down_bias) out += " + bias";
  if (m.router.norm) out += ", router's own norm";
  if (m.router.expert_scale) out += ", scale per expert";
  if (m.shared) out += fmt::format(", shared expert of {}", m.shared->gate.rows);
  if (m.branch_norm) out += " → norm";
  if (m.add) out += " + " + program.buffers[m.add->buffer].name;
  return out + " → " + describe_ending(program, m.ending);
}

std::string describe_op(const Program& program, const Logits& l) {
  return fmt::format("norm · [{}]{}{}", describe_matrix(program, l.table),
                     l.softcap == 0 ? "" : fmt::format(" softcap {:g}", l.softcap), describe_scale("×", l.scale));
}

}  // namespace

std::string describe(const Program& program, const Op& op) {
  return std::visit([&](const auto& o) { return describe_op(program, o); }, op);
}

}  // namespace honeycrisp::program
