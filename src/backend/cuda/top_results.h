// The largest logits of a step's rows: memory for finding them on the device, and for the few numbers that the kernel
// writes to the host. Knows nothing of how logits are computed.
#pragma once

#include "backend/batch_check.h"
#include "backend/cuda/device.h"
#include "backend/cuda/top_k_args.h"

namespace honeycrisp::backend::cuda {

inline constexpr uint32_t kMostInFlight = 4;  // steps

class TopResults {
 public:
  TopResults() = default;
  /// `n_choosable`: CompileOptions::n_choosable, resolved.
  TopResults(uint32_t vocabulary, uint32_t n_choosable) : vocabulary_(vocabulary), n_choosable_(n_choosable) {}

  /// Issues the search in all rows' logits [rows that want any][vocabulary], if a row wants the largest: in those of
  /// rows that want all of them too, as batches of both kinds are rare. Memory grows with the rows; the stream is idle
  /// or has only this step's work, unless the step is of one row. Error: out of memory.
  Result<void> issue(const float* logits, const Wanted& wanted, Stream stream) {
    return issue(logits, wanted, 0, nullptr, stream);
  }
  /// Once the stream is idle: of a row of the last issue, counted among those that want any.
  TopLogits of(uint32_t row, uint32_t n) const { return read(uint64_t{row} * k_, row, n); }

  /// The same of a step in flight, which has one row: its results are kept in a slot of their own, below kMostInFlight,
  /// and the best token goes to device memory too.
  Result<void> issue(const float* logits, const Wanted& wanted, uint32_t slot, int32_t* best, Stream stream);
  TopLogits of_slot(uint32_t slot, uint32_t n) const { return read(uint64_t{slot} * kMostTopK, slot, n); }

  uint64_t memory_bytes() const { return device_.bytes(); }

 private:
  TopLogits read(uint64_t first, uint32_t unusable_at, uint32_t n) const;
  uint64_t ranks() const { return uint64_t{room_} * kMostTopK; }
  float* values() const { return host_.as<float>(); }
  uint32_t* tokens() const { return host_.as<uint32_t>(ranks() * sizeof(uint32_t)); }
  uint32_t* unusable() const { return host_.as<uint32_t>(2 * ranks() * sizeof(uint32_t)); }

  uint32_t vocabulary_ = 0, n_choosable_ = 0;
  uint32_t room_ = 0;  // rows
  uint32_t k_ = 0;     // of the last issue
  Memory device_;      // counters [room]{2}, candidates [room][slices][kMostTopK]
  Memory host_;        // values, tokens [room][kMostTopK], counts [room]
};

}  // namespace honeycrisp::backend::cuda
