// MixExperts as launches: the input's norm, the router's scores, the choice, products of the chosen experts, and their
// sum with the residual. Which experts a row takes never reaches the host. Rows of a prompt are brought into the order
// of their experts first, so that a weight is decoded once for several of them; the bits are the same either way.
// Router and shared expert are products like any other and go through Project's kernels.
#include "backend/metal/kernels/experts_args.h"
#include "backend/metal/op_encoder.h"
#include "backend/metal/project.h"
#include "base/checked.h"

#include <array>

namespace honeycrisp::backend::metal {
namespace {

using program::Matrix;
using program::MixExperts;

// From so many pairs per expert on, some expert has several: grouping pays.
constexpr uint32_t kPairsPerExpert = 2;

class Encoding {
 public:
  Encoding(OpContext& c, const MixExperts& op)
      : c_(c),
        op_(op),
        n_experts_(op.router.matrix.rows),
        n_pairs_(c.rows.n * op.router.top_k),
        grouped_(n_pairs_ / n_experts_ >= kPairsPerExpert) {}

  Result<void> run() {
    HC_TRY(flush_residual(c_));
    HC_ASSIGN(const Rows in, normed(op_.input_norm));
    HC_ASSIGN(const View scores, scratch(n_experts_));
    HC_ASSIGN(const Rows routed, op_.router.norm ? normed(op_.router.norm) : Result<Rows>(in));
    HC_TRY(multiply(c_, {.in = routed,
                         .matrices = {&op_.router.matrix, 1},
                         .biases = {&op_.router.bias, 1},
                         .out = packed(scores, n_experts_),
                         .as_generated = true}));  // a choice is the same for both roles
    View shared, shared_scale;
    if (op_.shared) HC_TRY(share(in, shared, shared_scale));

    HC_ASSIGN(const View experts, scratch(op_.router.top_k));
    HC_ASSIGN(const View weights, scratch(op_.router.top_k));
    HC_TRY(choose(scores, experts, weights));
    View order;
    if (grouped_) {
      HC_ASSIGN(order, scratch(op_.router.top_k));
      HC_TRY(group(experts, order));
    }
    HC_ASSIGN(const View hidden, scratch(op_.router.top_k * op_.gate.rows));
    HC_TRY(product(in, {&op_.gate, &op_.up}, {op_.gate_bias, op_.up_bias}, experts, order, hidden));
    HC_ASSIGN(const View y, scratch(op_.router.top_k * op_.down.rows));
    HC_TRY(product({hidden, op_.gate.rows, op_.gate.rows}, {&op_.down, nullptr}, {op_.down_bias, std::nullopt}, experts,
                   order, y));
    HC_TRY(sum(y, weights, shared, shared_scale));
    for (const View& view : scratch_) c_.places.release(view);
    return {};
  }

 private:
  // f32 or u32 [rows][width], until the op's end.
  Result<View> scratch(uint64_t width) {
    HC_ASSIGN(View view, c_.places.scratch(uint64_t{c_.rows.n} * width * 4));
    view.bytes = uint64_t{c_.rows.n} * width * 4;
    scratch_.push_back(view);
    return view;
  }
  static Rows packed(const View& view, uint32_t width) { return {view, width, width}; }

  // The input, or its norm.
  Result<Rows> normed(const std::optional<program::Norm>& norm) {
    const Rows in = rows_of(c_, op_.in);
    if (!norm) return in;
    HC_ASSIGN(const View view, scratch(op_.in.width));
    HC_TRY(norm_rows(c_, in, *norm, view));
    return packed(view, op_.in.width);
  }

  Result<void> share(const Rows& in, View& y, View& scale) {
    const program::SharedExpert& s = *op_.shared;
    HC_ASSIGN(const View hidden, scratch(s.gate.rows));
    const std::array<Matrix, 2> gate_and_up = {s.gate, s.up};
    HC_TRY(multiply(c_, {.in = in,
                         .matrices = gate_and_up,
                         .biases = {},
                         .out = packed(hidden, s.gate.rows),
                         .activation = op_.activation}));
    HC_ASSIGN(y, scratch(s.down.rows));
    HC_TRY(multiply(
        c_,
        {.in = packed(hidden, s.gate.rows), .matrices = {&s.down, 1}, .biases = {}, .out = packed(y, s.down.rows)}));
    if (!s.scale) return {};
    HC_ASSIGN(scale, scratch(1));
    return multiply(c_, {.in = in, .matrices = {&*s.scale, 1}, .biases = {}, .out = packed(scale, 1)});
  }

  Result<void> choose(const View& scores, const View& experts, const View& weights) {
    const bool has_scale = op_.router.expert_scale.has_value();
    HC_ASSIGN(const Pipeline* pipeline,
              c_.pipelines.get("mix_experts", "mix_experts_choose", kSimdWidth, {constant(20, has_scale)}));
    StepEncoder& e = c_.encoder;
    e.pipeline(*pipeline);
    e.read(0, scores);
    if (has_scale) e.constant(1, c_.places.vector(*op_.router.expert_scale));
    e.write(2, experts);
    e.write(3, weights);
    e.args(4, ChooseArgs{n_experts_, op_.router.top_k, op_.router.routing == program::Routing::kSoftmaxTopK});
    e.dispatch({c_.rows.n, 1, 1}, {kSimdWidth, 1, 1});
    return {};
  }

  Result<void> group(const View& experts, const View& order) {
    HC_ASSIGN(const Pipeline* pipeline, c_.pipelines.get("mix_experts", "mix_experts_group", kSimdWidth, {}));
    StepEncoder& e = c_.encoder;
    e.pipeline(*pipeline);
    e.read(0, experts);
    e.write(1, order);
    e.args(2, n_pairs_);
    e.dispatch({n_experts_, 1, 1}, {kSimdWidth, 1, 1});
    return {};
  }

  Result<void> product(const Rows& in, std::array<const Matrix*, 2> matrices,
                       std::array<std::optional<program::VectorId>, 2> biases, const View& experts, const View& order,
                       const View& out) {
    const bool gate = matrices[1] != nullptr;
    constexpr uint32_t kThreads = HC_EXPERT_SIMDGROUPS * kSimdWidth;
    const Matrix& second = gate ? *matrices[1] : *matrices[0];
    HC_ASSIGN(const Pipeline* pipeline,
              c_.pipelines.get(
                  "mix_experts_product", grouped_ ? "mix_experts_product_8" : "mix_experts_product_1", kThreads,
                  {constant(0, uint32_t(c_.program.weight(*matrices[0]).format)),
                   constant(1, uint32_t(c_.program.weight(second).format)),
                   constant(kConstantActivation, uint32_t(op_.activation)), constant(20, gate),
                   constant(21, biases[0].has_value()), constant(22, biases[1].has_value()), constant(23, grouped_)}));
    ExpertsArgs args{};
    StepEncoder& e = c_.encoder;
    e.pipeline(*pipeline);
    for (uint32_t m = 0; m < (gate ? 2u : 1u); ++m) {
      const WeightView w = c_.places.weight(*matrices[m]);
      args.matrices[m] = {w.row_bytes, w.slice_bytes};
      e.constant(m, w.view);
      if (biases[m]) e.constant(6 + m, c_.places.vector(*biases[m]));
    }
    args.rows = matrices[0]->rows;
    args.columns = c_.program.weight(*matrices[0]).cols;
    args.in_stride = in.stride;
    args.n_pairs = n_pairs_;
    args.top_k = op_.router.top_k;
    e.read(2, in.view);
    e.write(3, out);
    e.read(4, experts);
    if (grouped_) e.read(5, order);
    e.args(8, args);
    const uint32_t rows = HC_EXPERT_SIMDGROUPS * (grouped_ ? HC_EXPERT_TILE_ROWS : HC_EXPERT_ROWS);
    e.dispatch({ceil_div(args.rows, rows), ceil_div(n_pairs_, grouped_ ? uint32_t{HC_EXPERT_TILE} : 1u), 1},
               {kThreads, 1, 1});
    return {};
  }

  Result<void> sum(const View& y, const View& weights, const View& shared, const View& shared_scale) {
    const auto& post = op_.ending.post_norm;
    const auto weight = [](const std::optional<program::Norm>& norm) { return norm ? norm->weight : std::nullopt; };
    HC_ASSIGN(const Pipeline* pipeline,
              c_.pipelines.get("mix_experts", "mix_experts_sum", uint32_t(kProjectThreads),
                               {constant(21, bool(shared)), constant(22, bool(shared_scale)),
                                constant(23, op_.branch_norm.has_value()),
                                constant(24, weight(op_.branch_norm).has_value()), constant(25, op_.add.has_value()),
                                constant(26, post.has_value()), constant(27, weight(post).has_value())}));
    const Rows x = rows_of(c_, op_.ending.x);
    MixArgs args{};
    args.width = op_.down.rows;
    args.top_k = op_.router.top_k;
    args.x_stride = x.stride;
    args.branch_eps = op_.branch_norm ? op_.branch_norm->eps : 0;
    args.post_eps = post ? post->eps : 0;
    args.branch_scale = op_.ending.branch_scale;
    args.residual_scale = op_.ending.residual_scale;
    StepEncoder& e = c_.encoder;
    e.pipeline(*pipeline);
    e.write(0, y);
    e.read(1, weights);
    if (shared) e.read(2, shared);
    if (shared_scale) e.read(3, shared_scale);
    if (weight(op_.branch_norm)) e.constant(4, c_.places.vector(*op_.branch_norm->weight));
    if (op_.add) {
      const Rows add = rows_of(c_, *op_.add);
      args.add_stride = add.stride;
      e.read(5, add.view);
    }
    if (weight(post)) e.constant(6, c_.places.vector(*post->weight));
    e.write(7, x.view);
    e.args(8, args);
    e.dispatch({c_.rows.n, 1, 1}, {uint32_t(kProjectThreads), 1, 1});
    return {};
  }

  OpContext& c_;
  const MixExperts& op_;
  const uint32_t n_experts_, n_pairs_;
  const bool grouped_;
  std::vector<View> scratch_;
};

}  // namespace

std::string obstacle(const program::Program& program, const MixExperts& op) {
  std::vector<const Matrix*> all = {&op.router.matrix, &op.gate, &op.up, &op.down};
  if (op.shared) {
    all.insert(all.end(), {&op.shared->gate, &op.shared->up, &op.shared->down});
    if (op.shared->scale) all.push_back(&*op.shared->scale);
  }
  for (const Matrix* m : all) {
    const program::Weight& w = program.weight(*m);
    if (!has_kernel(w.format)) return fmt::format("{}: metal has no kernel for {}", w.name, quant::to_string(w.format));
  }
  return "";
}

Result<void> encode(OpContext& c, const MixExperts& op) { return Encoding(c, op).run(); }

}  // namespace honeycrisp::backend::metal
