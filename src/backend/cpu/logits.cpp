// Logits: final norm and output table for the rows that ask.
#include "backend/cpu/matrix.h"

#include <cstring>

namespace honeycrisp::backend::cpu {
namespace {

enum Pass : uint32_t { kPrepare, kMultiply, kPasses };

class LogitsKernel final : public OpKernel {
 public:
  LogitsKernel(const program::Program& program, const program::Logits& op, const MatrixKernel& table)
      : op_(op), table_(table), input_(program, op.norm, op.in.width, {&table, 1}) {}

  Needs needs() const override {
    Needs needs = input_.needs();
    needs.add({.thread_floats = table_.scratch_floats()});
    return needs;
  }
  uint32_t n_passes() const override { return kPasses; }
  size_t n_items(uint32_t pass, const StepState& s) const override {
    if (s.n_logit_rows == 0) return 0;
    if (pass == kPrepare) return prepares_alone(s) ? 0 : s.n_logit_rows;
    return table_.n_panels();
  }
  void enter(uint32_t pass, const StepState& s, ThreadScratch& t) const override {
    if (pass == kMultiply && prepares_alone(s)) input_.prepare(s.row(op_.in, s.logit_rows[0]), 0, own_input(t), s, t);
  }
  std::string variant() const override { return format_names({&table_, 1}); }
  std::string why_not_fast() const override { return unpacked_formats({&table_, 1}); }

  void run(uint32_t pass, size_t begin, size_t end, const StepState& s, ThreadScratch& t) const override {
    for (size_t item = begin; item < end; ++item) {
      if (pass == kPrepare)
        input_.prepare(s.row(op_.in, s.logit_rows[item]), uint32_t(item), shared_input(s, s.n_logit_rows), s, t);
      else
        multiply(uint32_t(item), s, t);
    }
  }

 private:
  // One row is prepared by every thread for itself: quicker than to wait for the one that would do it for all.
  static bool prepares_alone(const StepState& s) { return s.n_logit_rows == 1; }

  void multiply(uint32_t panel, const StepState& s, ThreadScratch& t) const {
    float* y = t.panels[0];
    table_.multiply({panel}, prepares_alone(s) ? own_input(t) : shared_input(s, s.n_logit_rows), {s.n_logit_rows}, s, t,
                    y);
    if (op_.softcap != 0 || op_.scale != 1)
      s.isa->cap_and_scale(y, size_t{s.n_logit_rows} * kLanes, op_.softcap, op_.scale);
    const size_t count = table_.outputs_of({panel});
    for (size_t row = 0; row < s.n_logit_rows; ++row)
      std::memcpy(s.logits + row * table_.rows() + panel * kLanes, y + row * kLanes, count * sizeof(float));
  }

  const program::Logits& op_;
  MatrixKernel table_;
  InputKernel input_;
};

}  // namespace

Result<std::unique_ptr<OpKernel>> make_kernel(const program::Program& program, const program::Logits& op,
                                              const Target& target) {
  HC_ASSIGN(const MatrixKernel table, MatrixKernel::create(program, op.table, target));
  return std::make_unique<LogitsKernel>(program, op, table);
}

}  // namespace honeycrisp::backend::cpu
