// Project: one to four matrices times one prepared input, split over panels of 16 outputs, several of them together
// where many rows share them; the ending is applied to these outputs while they are in the cache, unless it norms whole
// output rows: those get a pass of their own.
#include "backend/cpu/matrix.h"
#include "base/checked.h"

#include <algorithm>

namespace honeycrisp::backend::cpu {
namespace {

using program::Gate;
using program::Norm;
using program::Project;
using program::Residual;
using program::Store;

enum Pass : uint32_t { kPrepare, kMultiply, kFinish };

constexpr size_t kSecondLevelCache = size_t{1} << 20;  // bytes: the least that cores with wide vectors have
constexpr size_t kItemsPerThread = 12;  // at least, of the multiplying pass, before panels are taken together

bool norms_outputs(const Project& op) {
  if (const auto* store = std::get_if<Store>(&op.ending)) return store->norm.has_value();
  if (const auto* residual = std::get_if<Residual>(&op.ending)) return residual->post_norm.has_value();
  return false;
}

// Whether an ending that is applied in the multiplying pass writes columns of the input.
bool overwrites_input(const Project& op) {
  if (norms_outputs(op)) return false;
  if (const auto* gate = std::get_if<Gate>(&op.ending)) return overlap(gate->out, op.in);
  if (const auto* residual = std::get_if<Residual>(&op.ending)) return overlap(residual->x, op.in);
  const auto& outs = std::get<Store>(op.ending).outs;
  return std::any_of(outs.begin(), outs.end(), [&](const auto& out) { return overlap(out, op.in); });
}

class ProjectKernel final : public OpKernel {
 public:
  ProjectKernel(const program::Program& program, const Project& op, std::vector<MatrixKernel> matrices)
      : program_(program),
        op_(op),
        matrices_(std::move(matrices)),
        input_(program, op.input_norm, op.in.width, matrices_),
        finishes_(norms_outputs(op)),
        overwrites_input_(overwrites_input(op)),
        pairs_(std::holds_alternative<Gate>(op.ending) && !std::get<Gate>(op.ending).operand) {
    for (const MatrixKernel& m : matrices_) {
      width_ += m.rows();
      if (!pairs_ || n_panels_ == 0) n_panels_ += m.n_panels();
    }
  }

  Needs needs() const override {
    Needs needs = input_.needs();
    for (const MatrixKernel& m : matrices_) needs.add({.thread_floats = m.scratch_floats()});
    if (finishes_) needs.add({.outputs_per_row = width_});
    needs.panels_per_row = kMostPanels;
    return needs;
  }
  uint32_t n_passes() const override { return finishes_ ? 3 : 2; }
  size_t n_items(uint32_t pass, const StepState& s) const override {
    if (pass == kPrepare && prepares_alone(s)) return 0;
    if (pass != kMultiply) return s.n_rows;
    const uint32_t together = panels_together(s);
    if (pairs_) return ceil_div(matrices_[0].n_panels(), together);
    size_t items = 0;
    for (const MatrixKernel& m : matrices_) items += ceil_div(m.n_panels(), together);
    return items;
  }
  std::string variant() const override { return format_names(matrices_); }
  std::string why_not_fast() const override { return unpacked_formats(matrices_); }

  void enter(uint32_t pass, const StepState& s, ThreadScratch& t) const override {
    if (pass == kMultiply && prepares_alone(s)) input_.prepare(s.row(op_.in, 0), 0, own_input(t), s, t);
  }
  void run(uint32_t pass, size_t begin, size_t end, const StepState& s, ThreadScratch& t) const override {
    for (size_t item = begin; item < end; ++item) {
      switch (pass) {
        case kPrepare: input_.prepare(s.row(op_.in, item), uint32_t(item), shared_input(s, s.n_rows), s, t); break;
        case kMultiply: multiply(item, s, t); break;
        case kFinish: std::visit([&](const auto& ending) { finish(ending, item, s); }, op_.ending); break;
      }
    }
  }

 private:
  // One row is prepared by every thread for itself: quicker than to wait for the one that would do it for all. Not
  // where the outputs overwrite the input, which a slower thread may still be reading.
  bool prepares_alone(const StepState& s) const { return s.n_rows == 1 && !overwrites_input_; }

  // Panels of an item: the more there are, the less often the rows are read, and the more often sums. Never changes a
  // bit.
  uint32_t panels_together(const StepState& s) const {
    uint32_t together = s.n_rows <= kTileRows                                ? 1
                        : s.n_rows * input_.row_bytes(s) < kSecondLevelCache ? 2
                                                                             : kMostPanels;
    while (together > 1 && n_panels_ / together < kItemsPerThread * s.n_threads) together /= 2;
    return together;
  }

  // Outputs of a matrix that an item computes, [rows][stride] in the thread's panels.
  struct Block {
    PanelChoice panels;
    uint32_t column, count, stride;

    Block(const MatrixKernel& m, uint32_t first, uint32_t together)
        : panels{first, std::min(together, m.n_panels() - first)},
          column(first * kLanes),
          count(m.outputs_of(panels)),
          stride(panels.count * kLanes) {}
  };

  // Item `item` counted over all matrices, or over those of both matrices of a gate.
  void multiply(size_t item, const StepState& s, ThreadScratch& t) const {
    const uint32_t together = panels_together(s);
    if (pairs_) {
      const Block block(matrices_[0], uint32_t(item) * together, together);
      for (size_t i = 0; i < 2; ++i) multiply_block(i, block, s, t, t.panels[i]);
      return end_gate(std::get<Gate>(op_.ending), block, s, t);
    }
    size_t matrix = 0, first_output = 0;
    for (size_t items; item >= (items = ceil_div(matrices_[matrix].n_panels(), together)); ++matrix) {
      item -= items;
      first_output += matrices_[matrix].rows();
    }
    const Block block(matrices_[matrix], uint32_t(item) * together, together);
    multiply_block(matrix, block, s, t, t.panels[0]);
    if (finishes_) return keep_outputs(first_output, block, s, t);
    if (const auto* store = std::get_if<Store>(&op_.ending)) return end_store(*store, matrix, block, s, t);
    if (const auto* gate = std::get_if<Gate>(&op_.ending)) return end_gate(*gate, block, s, t);
    end_residual(std::get<Residual>(op_.ending), block, s, t);
  }

  void multiply_block(size_t matrix, const Block& block, const StepState& s, ThreadScratch& t, float* y) const {
    matrices_[matrix].multiply(block.panels, prepares_alone(s) ? own_input(t) : shared_input(s, s.n_rows), {s.n_rows},
                               s, t, y);
    if (!op_.biases[matrix]) return;
    const float* bias = program_.vectors[*op_.biases[matrix]].values.data() + block.column;
    for (size_t row = 0; row < s.n_rows; ++row, y += block.stride)
      for (uint32_t i = 0; i < block.count; ++i) y[i] += bias[i];
  }

  void end_store(const Store& e, size_t matrix, const Block& b, const StepState& s, const ThreadScratch& t) const {
    const float* y = t.panels[0];
    for (size_t row = 0; row < s.n_rows; ++row, y += b.stride)
      store(e, y, e.scale, e.add ? s.row(*e.add, row) + b.column : nullptr, s.row(e.outs[matrix], row) + b.column,
            b.count);
  }
  // out = out_scale · (add + scale · y); without add: out_scale · scale · y.
  static void store(const Store& e, const float* y, float scale, const float* add, float* out, size_t n) {
    if (add)
      for (size_t i = 0; i < n; ++i) out[i] = e.out_scale * (add[i] + y[i] * scale);
    else
      for (size_t i = 0; i < n; ++i) out[i] = e.out_scale * (y[i] * scale);
  }

  void end_gate(const Gate& e, const Block& b, const StepState& s, ThreadScratch& t) const {
    if (e.operand)
      for (size_t row = 0; row < s.n_rows; ++row)
        std::copy_n(s.row(*e.operand, row) + b.column, b.count, t.panels[1] + row * b.stride);
    gate_of(*s.isa, e.activation)(t.panels[1], t.panels[0], size_t{s.n_rows} * b.stride);
    for (size_t row = 0; row < s.n_rows; ++row)
      std::copy_n(t.panels[0] + row * b.stride, b.count, s.row(e.out, row) + b.column);
  }

  void end_residual(const Residual& e, const Block& b, const StepState& s, const ThreadScratch& t) const {
    for (size_t row = 0; row < s.n_rows; ++row)
      add_branch(e, t.panels[0] + row * b.stride, s.row(e.x, row) + b.column, b.count);
  }
  static void add_branch(const Residual& e, const float* y, float* x, size_t n) {
    for (size_t i = 0; i < n; ++i) x[i] = e.residual_scale * (x[i] + e.branch_scale * y[i]);
  }

  void keep_outputs(size_t first_output, const Block& b, const StepState& s, const ThreadScratch& t) const {
    for (size_t row = 0; row < s.n_rows; ++row)
      std::copy_n(t.panels[0] + row * b.stride, b.count, s.outputs + row * width_ + first_output + b.column);
  }

  const float* norm_weight(const Norm& norm) const {
    return norm.weight ? program_.vectors[*norm.weight].values.data() : nullptr;
  }
  void finish(const Store& e, size_t row, const StepState& s) const {
    float* y = s.outputs + row * width_;
    for (size_t m = 0; m < matrices_.size(); y += matrices_[m].rows(), ++m) {
      const uint32_t n = matrices_[m].rows(), run = e.norm_width == 0 ? n : e.norm_width;
      if (e.scale != 1)
        for (uint32_t i = 0; i < n; ++i) y[i] *= e.scale;
      for (uint32_t i = 0; i < n; i += run) s.isa->rms_norm(y + i, run, norm_weight(*e.norm), e.norm->eps, y + i);
      store(e, y, 1, e.add ? s.row(*e.add, row) : nullptr, s.row(e.outs[m], row), n);
    }
  }
  void finish(const Residual& e, size_t row, const StepState& s) const {
    float* y = s.outputs + row * width_;
    s.isa->rms_norm(y, uint32_t(width_), norm_weight(*e.post_norm), e.post_norm->eps, y);
    add_branch(e, y, s.row(e.x, row), width_);
  }
  void finish(const Gate&, size_t, const StepState&) const {}

  const program::Program& program_;
  const Project& op_;
  std::vector<MatrixKernel> matrices_;
  InputKernel input_;
  bool finishes_;  // the ending needs whole output rows
  bool overwrites_input_;
  bool pairs_;           // a gate of two matrices: one item is a panel of both
  size_t width_ = 0;     // outputs of all matrices
  size_t n_panels_ = 0;  // of all matrices; of a pair's, that lie side by side in an item, of one
};

}  // namespace

Result<std::unique_ptr<OpKernel>> make_kernel(const program::Program& program, const Project& op,
                                              const Target& target) {
  std::vector<MatrixKernel> matrices;
  for (const program::Matrix& matrix : op.matrices) {
    HC_ASSIGN(const MatrixKernel m, MatrixKernel::create(program, matrix, target));
    matrices.push_back(m);
  }
  return std::make_unique<ProjectKernel>(program, op, std::move(matrices));
}

}  // namespace honeycrisp::backend::cpu
