// Embed: one table row per batch row, exact values; from the packed table where it is also the output table.
#include "backend/cpu/op_kernel.h"
#include "backend/cpu/packing.h"
#include "quant/dequantize.h"

namespace honeycrisp::backend::cpu {
namespace {

class EmbedKernel final : public OpKernel {
 public:
  EmbedKernel(const program::Program& program, const program::Embed& op, const Target& target)
      : op_(op),
        weight_(program.weight(op.table)),
        data_(weight_.data + op.table.first_row * weight_.row_bytes()),
        unpack_(unpack_for(target.isa, weight_.format)),
        packed_(target.packed ? target.packed->find(op.table) : nullptr) {}

  Needs needs() const override { return {}; }
  uint32_t n_passes() const override { return 1; }
  size_t n_items(uint32_t, const StepState& s) const override { return s.n_rows; }

  void run(uint32_t, size_t begin, size_t end, const StepState& s, ThreadScratch&) const override {
    for (size_t row = begin; row < end; ++row) {
      float* out = s.row(op_.out, row);
      const auto token = uint64_t(s.batch->rows[row].token);
      if (packed_)
        unpack_(packed_->data + token / kLanes * packed_->panel_bytes, weight_.cols, uint32_t(token % kLanes), out);
      else
        quant::dequantize_row(weight_.format, data_ + token * weight_.row_bytes(), out, weight_.cols);
      if (op_.scale != 1)
        for (uint32_t i = 0; i < weight_.cols; ++i) out[i] *= op_.scale;
    }
  }

 private:
  const program::Embed& op_;
  const program::Weight& weight_;
  const std::byte* data_;
  UnpackFn unpack_;
  const PackedMatrix* packed_;  // null: not packed
};

}  // namespace

Result<std::unique_ptr<OpKernel>> make_kernel(const program::Program& program, const program::Embed& op,
                                              const Target& target) {
  return std::make_unique<EmbedKernel>(program, op, target);
}

}  // namespace honeycrisp::backend::cpu
