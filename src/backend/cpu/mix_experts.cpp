// MixExperts: rows are grouped by the experts they chose, so that a step reads a chosen expert's weights once and the
// others' not at all. The arithmetic of a row is the same in every group: its experts are added in order of rank.
//   prepare  rows            input normed and as integers, once for all matrices
//   route    router's panels scores of all experts, and of the shared expert's scale
//   choose   rows            the best experts and their weights
//   group    one item        "slots": one per row and chosen expert, by expert; the shared expert's are the last
//   hidden   experts × 32    gate, up and activation of 32 hidden values, straight into the form that down takes
//   down     panels          all experts' outputs of a panel, their weighted sum, and the ending
//   finish   rows            an ending that norms whole rows
#include "backend/cpu/matrix.h"
#include "base/checked.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace honeycrisp::backend::cpu {
namespace {

using program::MixExperts;
using program::Norm;

enum Pass : uint32_t { kPrepare, kRoute, kChoose, kGroupRows, kHidden, kDown, kFinish, kPasses };

// An input's share of the prepared memory of a step: where it begins, in units of rows of the batch.
struct Region {
  size_t groups = 0, plain = 0;
};

const float* values(const program::Program& program, const std::optional<program::VectorId>& id) {
  return id ? program.vectors[*id].values.data() : nullptr;
}

// The matrices of the experts, or of the shared one.
struct Unit {
  MatrixKernel gate, up, down;
  const float *gate_bias = nullptr, *up_bias = nullptr, *down_bias = nullptr;  // [experts][rows]

  static Result<Unit> create(const program::Program& program, const program::Matrix& gate, const program::Matrix& up,
                             const program::Matrix& down, const Target& target) {
    Unit u;
    HC_ASSIGN(u.gate, MatrixKernel::create(program, gate, target));
    HC_ASSIGN(u.up, MatrixKernel::create(program, up, target));
    HC_ASSIGN(u.down, MatrixKernel::create(program, down, target));
    return u;
  }
  uint32_t n_groups() const { return ceil_div(gate.rows(), kGroup); }  // of hidden values
};

struct Matrices {
  MatrixKernel router;
  Unit experts;
  std::optional<Unit> shared;
  std::optional<MatrixKernel> shared_scale;

  std::vector<MatrixKernel> taking_the_input(bool with_router) const {
    std::vector<MatrixKernel> all = {experts.gate, experts.up};
    if (with_router) all.push_back(router);
    if (shared) all.insert(all.end(), {shared->gate, shared->up});
    if (shared_scale) all.push_back(*shared_scale);
    return all;
  }
  std::vector<MatrixKernel> all() const {
    std::vector<MatrixKernel> all = taking_the_input(true);
    all.push_back(experts.down);
    if (shared) all.push_back(shared->down);
    return all;
  }
};

void add_bias(const float* bias, uint32_t panel, uint32_t count, size_t n_rows, float* y) {
  if (!bias) return;
  for (size_t row = 0; row < n_rows; ++row)
    for (uint32_t i = 0; i < count; ++i) y[row * kLanes + i] += bias[panel * kLanes + i];
}

class MixExpertsKernel final : public OpKernel {
 public:
  MixExpertsKernel(const program::Program& program, const MixExperts& op, const Matrices& matrices)
      : program_(program),
        op_(op),
        m_(matrices),
        n_experts_(op.router.matrix.rows),
        top_k_(op.router.top_k),
        ranks_(top_k_ + (op.shared ? 1 : 0)),
        width_(op.down.rows),
        finishes_(op.branch_norm || op.ending.post_norm || (op.add && overlap(*op.add, op.ending.x))),
        input_(program, op.input_norm, op.in.width, m_.taking_the_input(!op.router.norm)),
        router_input_(program, op.router.norm, op.in.width, {&m_.router, 1}),
        hidden_(program, {}, op.gate.rows, {&m_.experts.down, 1}) {
    if (m_.shared) shared_hidden_.emplace(program, std::nullopt, op.shared->gate.rows, std::span(&m_.shared->down, 1));
    needs_ = input_.needs();
    if (op.router.norm) router_at_ = take(router_input_.needs(), 1);
    hidden_at_ = take(hidden_.needs(), top_k_);
    if (shared_hidden_) shared_hidden_at_ = take(shared_hidden_->needs(), 1);
    for (const MatrixKernel& m : m_.all()) needs_.add({.thread_floats = m.scratch_floats()});
    n_scores_ = m_.router.n_panels() * size_t{kLanes};
    weights_at_ = n_scores_ + (m_.shared_scale ? 1 : 0);
    branch_at_ = weights_at_ + ranks_;
    needs_.outputs_per_row = branch_at_ + (finishes_ ? width_ : 0);
    needs_.indices = 2 + 3 * size_t{n_experts_};
    needs_.indices_per_row = size_t{ranks_} + top_k_;
    needs_.panels_per_row = std::max(ranks_, 3u);  // a panel of all slots; in the hidden pass a gate and 32 results
  }

  Needs needs() const override { return needs_; }
  uint32_t n_passes() const override { return kPasses; }
  std::string variant() const override { return format_names(m_.all()); }
  std::string why_not_fast() const override { return unpacked_formats(m_.all()); }

  size_t n_items(uint32_t pass, const StepState& s) const override {
    switch (pass) {
      case kPrepare: return s.n_rows;
      case kRoute: return m_.router.n_panels() + (m_.shared_scale ? 1 : 0);
      case kChoose: return s.n_rows == 1 ? 0 : s.n_rows;  // with one row, whoever groups it chooses too
      case kGroupRows: return 1;
      case kHidden: return shared_parts() + most_experts(s) * m_.experts.n_groups();
      case kDown: return m_.experts.down.n_panels();
      default: return finishes_ ? s.n_rows : 0;
    }
  }

  void run(uint32_t pass, size_t begin, size_t end, const StepState& s, ThreadScratch& t) const override {
    for (size_t item = begin; item < end; ++item) {
      switch (pass) {
        case kPrepare: prepare(uint32_t(item), s, t); break;
        case kRoute: route(uint32_t(item), s, t); break;
        case kChoose: choose(item, s); break;
        case kGroupRows: group_rows(s); break;
        case kHidden: hidden(item, s, t); break;
        case kDown: down(uint32_t(item), s, t); break;
        case kFinish: finish(item, s); break;
      }
    }
  }

 private:
  // `times` such inputs for every row: where they begin.
  Region take(const Needs& needs, size_t times) {
    const Region at{needs_.groups_per_row, needs_.plain_per_row};
    needs_.groups_per_row += times * needs.groups_per_row;
    needs_.plain_per_row += times * needs.plain_per_row;
    needs_.add({.thread_floats = needs.thread_floats});
    return at;
  }
  static PreparedInput input_at(const StepState& s, const Region& at) {
    return {s.groups + s.n_rows * at.groups * s.group_bytes, s.plain + s.n_rows * at.plain, 1};
  }

  // ---- the memory of a step

  float* scores(size_t row, const StepState& s) const { return s.outputs + row * needs_.outputs_per_row; }
  float* weights(size_t row, const StepState& s) const { return scores(row, s) + weights_at_; }  // [ranks]
  float* branch(size_t row, const StepState& s) const { return scores(row, s) + branch_at_; }    // [width]

  struct Groups {
    uint32_t* n_used;
    uint32_t* used;   // [n_used] experts that a row chose, ascending
    uint32_t* first;  // [n_used + 1] their first slots
    uint32_t* next;   // [n_experts] scratch
    uint32_t* slots;  // [n_rows][ranks] after choosing: experts, best first; after grouping: slots
    uint32_t* rows;   // [n_rows · top_k] of each expert slot
  };
  Groups groups(const StepState& s) const {
    Groups g{.n_used = s.indices, .used = s.indices + 1, .first = {}, .next = {}, .slots = {}, .rows = {}};
    g.first = g.used + n_experts_;
    g.next = g.first + n_experts_ + 1;
    g.slots = g.next + n_experts_;
    g.rows = g.slots + size_t{s.n_rows} * ranks_;
    return g;
  }
  uint32_t shared_slot(uint32_t row, const StepState& s) const { return s.n_rows * top_k_ + row; }
  size_t shared_parts() const { return m_.shared ? m_.shared->n_groups() : 0; }
  size_t most_experts(const StepState& s) const { return std::min<size_t>(n_experts_, size_t{s.n_rows} * top_k_); }

  // ---- the passes

  void prepare(uint32_t row, const StepState& s, ThreadScratch& t) const {
    input_.prepare(s.row(op_.in, row), row, input_at(s, {}), s, t);
    if (op_.router.norm) router_input_.prepare(s.row(op_.in, row), row, input_at(s, router_at_), s, t);
  }

  void route(uint32_t panel, const StepState& s, ThreadScratch& t) const {
    const bool is_scale = panel == m_.router.n_panels();
    const MatrixKernel& m = is_scale ? *m_.shared_scale : m_.router;
    const PreparedInput x = is_scale ? input_at(s, {}) : input_at(s, router_at_);
    m.multiply({is_scale ? 0 : panel}, x, {s.n_rows}, s, t, t.panels[0]);
    const uint32_t count = is_scale ? 1 : m.outputs_of({panel});
    for (size_t row = 0; row < s.n_rows; ++row)
      std::copy_n(t.panels[0] + row * kLanes, count, scores(row, s) + panel * kLanes);
  }

  void choose(size_t row, const StepState& s) const {
    float* score = scores(row, s);
    if (const float* bias = values(program_, op_.router.bias))
      for (uint32_t i = 0; i < n_experts_; ++i) score[i] += bias[i];
    uint32_t* best = groups(s).slots + row * ranks_;
    find_best(score, best);

    // Weights: the best experts' shares of a softmax over all or over the best.
    float* weight = weights(row, s);
    const bool over_all = op_.router.routing == program::Routing::kSoftmaxTopK;
    const float largest = score[best[0]];
    const float sum_of_all = over_all ? s.isa->exponentials(score, n_experts_, largest) : 0;
    for (uint32_t i = 0; i < top_k_; ++i) weight[i] = score[best[i]];
    const float sum = over_all ? sum_of_all : s.isa->exponentials(weight, top_k_, largest);
    const float* scale = values(program_, op_.router.expert_scale);
    for (uint32_t i = 0; i < top_k_; ++i) weight[i] = weight[i] / sum * (scale ? scale[best[i]] : 1.0f);
    if (!op_.shared) return;
    weight[top_k_] = 1;
    if (m_.shared_scale) s.isa->sigmoid_gate(score + n_scores_, weight + top_k_, 1);
  }

  // The top_k largest scores, best first, ties to the lowest index; what is no number ranks last.
  void find_best(const float* score, uint32_t* best) const {
    const auto rank = [score](uint32_t i) { return std::isnan(score[i]) ? -INFINITY : score[i]; };
    uint32_t count = 0;
    for (uint32_t i = 0; i < n_experts_; ++i) {
      const float value = rank(i);
      if (count == top_k_ && !(value > rank(best[count - 1]))) continue;
      uint32_t at = count < top_k_ ? count++ : count - 1;
      for (; at > 0 && value > rank(best[at - 1]); --at) best[at] = best[at - 1];
      best[at] = i;
    }
  }

  void group_rows(const StepState& s) const {
    if (s.n_rows == 1) choose(0, s);
    const Groups g = groups(s);
    std::fill_n(g.next, n_experts_, 0u);
    for (uint32_t row = 0; row < s.n_rows; ++row)
      for (uint32_t i = 0; i < top_k_; ++i) ++g.next[g.slots[size_t{row} * ranks_ + i]];
    uint32_t n_used = 0, slot = 0;
    for (uint32_t expert = 0; expert < n_experts_; ++expert) {
      const uint32_t count = g.next[expert];
      g.next[expert] = slot;
      if (count == 0) continue;
      g.used[n_used] = expert;
      g.first[n_used++] = slot;
      slot += count;
    }
    g.first[n_used] = slot;
    *g.n_used = n_used;
    for (uint32_t row = 0; row < s.n_rows; ++row) {
      uint32_t* slots = g.slots + size_t{row} * ranks_;
      for (uint32_t i = 0; i < top_k_; ++i) {
        slots[i] = g.next[slots[i]]++;
        g.rows[slots[i]] = row;
      }
      if (op_.shared) slots[top_k_] = shared_slot(row, s);
    }
  }

  void hidden(size_t item, const StepState& s, ThreadScratch& t) const {
    if (item < shared_parts())
      return hidden_group(*m_.shared, 0, {s.n_rows}, uint32_t(item), *shared_hidden_, input_at(s, shared_hidden_at_), 0,
                          s, t);
    item -= shared_parts();
    const Groups g = groups(s);
    const size_t index = item / m_.experts.n_groups();
    if (index >= *g.n_used) return;
    const uint32_t first = g.first[index];
    const RowChoice rows{.count = g.first[index + 1] - first, .indices = g.rows + first};
    hidden_group(m_.experts, g.used[index], rows, uint32_t(item % m_.experts.n_groups()), hidden_,
                 input_at(s, hidden_at_), first, s, t);
  }

  // Hidden values [32 group, …) of one expert for the rows that chose it, to rows `first`… of `out`.
  void hidden_group(const Unit& u, uint32_t expert, const RowChoice& rows, uint32_t group, const InputKernel& kernel,
                    const PreparedInput& out, uint32_t first, const StepState& s, ThreadScratch& t) const {
    float *gate = t.panels[0], *up = t.panels[1], *both = gate + size_t{rows.count} * kLanes;  // both: [rows][32]
    const size_t biases = size_t{expert} * u.gate.rows();
    const auto bias = [&](const float* all) { return all ? all + biases : nullptr; };
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t panel = 2 * group + half;
      if (panel == u.gate.n_panels()) break;
      const uint32_t count = u.gate.outputs_of({panel});
      u.gate.multiply({panel}, input_at(s, {}), rows, s, t, gate, expert);
      u.up.multiply({panel}, input_at(s, {}), rows, s, t, up, expert);
      add_bias(bias(u.gate_bias), panel, count, rows.count, gate);
      add_bias(bias(u.up_bias), panel, count, rows.count, up);
      gate_of(*s.isa, op_.activation)(up, gate, size_t{rows.count} * kLanes);
      for (size_t i = 0; i < rows.count; ++i)
        std::copy_n(gate + i * kLanes, kLanes, both + i * kGroup + half * size_t{kLanes});
    }
    for (uint32_t i = 0; i < rows.count; ++i)
      kernel.prepare_group(both + size_t{i} * kGroup, group * kGroup, first + i, out, s);
  }

  void down(uint32_t panel, const StepState& s, ThreadScratch& t) const {
    const Groups g = groups(s);
    const uint32_t count = m_.experts.down.outputs_of({panel});
    float* y = t.panels[0];  // [slots][16]
    for (uint32_t i = 0; i < *g.n_used; ++i) {
      const RowChoice slots{.count = g.first[i + 1] - g.first[i], .first = g.first[i]};
      float* out = y + size_t{slots.first} * kLanes;
      m_.experts.down.multiply({panel}, input_at(s, hidden_at_), slots, s, t, out, g.used[i]);
      const float* bias = m_.experts.down_bias;
      add_bias(bias ? bias + size_t{g.used[i]} * width_ : nullptr, panel, count, slots.count, out);
    }
    if (m_.shared)
      m_.shared->down.multiply({panel}, input_at(s, shared_hidden_at_), {s.n_rows}, s, t,
                               y + size_t{shared_slot(0, s)} * kLanes);
    for (size_t row = 0; row < s.n_rows; ++row) {
      float sum[kLanes];
      s.isa->weighted_sum(y, g.slots + row * ranks_, weights(row, s), ranks_, sum);
      if (finishes_)
        std::copy_n(sum, count, branch(row, s) + panel * kLanes);
      else
        end(row, panel * kLanes, count, sum, s);
    }
  }

  // Columns [first, first + count) of a row, of which y is the branch.
  void end(size_t row, uint32_t first, uint32_t count, float* y, const StepState& s) const {
    if (op_.add) {
      const float* dense = s.row(*op_.add, row) + first;
      for (uint32_t i = 0; i < count; ++i) y[i] += dense[i];
    }
    if (const auto& norm = op_.ending.post_norm)
      s.isa->rms_norm(y, count, values(program_, norm->weight), norm->eps, y);
    float* x = s.row(op_.ending.x, row) + first;
    for (uint32_t i = 0; i < count; ++i) x[i] = op_.ending.residual_scale * (x[i] + op_.ending.branch_scale * y[i]);
  }

  void finish(size_t row, const StepState& s) const {
    float* y = branch(row, s);
    if (const auto& norm = op_.branch_norm) s.isa->rms_norm(y, width_, values(program_, norm->weight), norm->eps, y);
    end(row, 0, width_, y, s);
  }

  const program::Program& program_;
  const MixExperts& op_;
  Matrices m_;
  uint32_t n_experts_, top_k_;
  uint32_t ranks_;  // experts of a row, the shared one included
  uint32_t width_;  // outputs
  bool finishes_;   // the ending needs whole output rows
  InputKernel input_, router_input_, hidden_;
  std::optional<InputKernel> shared_hidden_;
  Region router_at_, hidden_at_, shared_hidden_at_;
  size_t n_scores_, weights_at_, branch_at_;  // in a row's outputs
  Needs needs_;
};

}  // namespace

Result<std::unique_ptr<OpKernel>> make_kernel(const program::Program& program, const MixExperts& op,
                                              const Target& target) {
  Matrices m;
  HC_ASSIGN(m.router, MatrixKernel::create(program, op.router.matrix, target));
  HC_ASSIGN(m.experts, Unit::create(program, op.gate, op.up, op.down, target));
  m.experts.gate_bias = values(program, op.gate_bias);
  m.experts.up_bias = values(program, op.up_bias);
  m.experts.down_bias = values(program, op.down_bias);
  if (op.shared) {
    HC_ASSIGN(m.shared, Unit::create(program, op.shared->gate, op.shared->up, op.shared->down, target));
    if (op.shared->scale) {
      HC_ASSIGN(m.shared_scale, MatrixKernel::create(program, *op.shared->scale, target));
    }
  }
  return std::make_unique<MixExpertsKernel>(program, op, m);
}

}  // namespace honeycrisp::backend::cpu
