// What a step brings back from the device: the logits of the rows that want any, the largest of them where those are
// wanted, and the way of both to the caller. Knows nothing of how logits are computed.
#pragma once

#include "backend/batch_check.h"
#include "backend/metal/op_encoder.h"

namespace honeycrisp::backend::metal {

class StepResults {
 public:
  /// `n_choosable`: CompileOptions::n_choosable, resolved.
  StepResults(Device& device, uint32_t vocabulary, uint32_t n_choosable)
      : device_(device), vocabulary_(vocabulary), n_choosable_(n_choosable) {}

  /// Makes room for a step. The device is idle. Error: no memory, with the size.
  Result<void> reserve(const Wanted& wanted);
  /// f32 [rows that want any, in order][vocabulary]
  View logits() const { return logits_ ? View{logits_.get(), 0, logits_->bytes()} : View{}; }
  /// Of a step with rows that want the largest: finds those of all rows' logits, which have been encoded.
  Result<void> encode_top(const Wanted& wanted, Pipelines& pipelines, StepEncoder& encoder, Places& places);
  /// Once the device has run it all. Of rows that want all logits into `logits`, of the others into `top`.
  void hand_out(const Batch& batch, std::span<float> logits, std::span<TopLogits> top) const;

  uint64_t memory_bytes() const { return (logits_ ? logits_->bytes() : 0) + (top_ ? top_->bytes() : 0); }

 private:
  TopLogits top_of(uint64_t row, uint32_t n) const;

  Device& device_;
  uint32_t vocabulary_, n_choosable_;
  std::shared_ptr<Buffer> logits_;
  std::shared_ptr<Buffer> top_;  // of the last step: f32 values [rows][k], uint32 indices [rows][k], counts [rows]
  uint64_t n_rows_ = 0, k_ = 0;  // of the last step that had rows which want the largest
};

}  // namespace honeycrisp::backend::metal
