// What a step sends to the device: tokens, positions, page tables, states. Owns its layout and the division of a batch
// into parts: rows of one role, of each sequence one run of neighbours at most.
#pragma once

#include "backend/metal/op_encoder.h"

#include <vector>

namespace honeycrisp::backend::metal {

class StepInputs {
 public:
  struct Part {
    PartRows rows;
    Batch batch;  // the same rows
  };

  StepInputs(Device& device, uint32_t max_rows, uint32_t n_pools)
      : device_(device), max_rows_(max_rows), n_pools_(n_pools) {}

  /// Writes the inputs of a batch that was checked. The device is idle. `logits`: f32 [rows that want any][vocabulary].
  /// Error: no memory, with the sizes.
  Result<std::vector<Part>> take_in(const Batch& batch, uint32_t vocabulary, const View& logits);
  uint64_t memory_bytes() const { return words_ ? words_->bytes() : 0; }

 private:
  enum Array : uint32_t { kTokens, kPositions, kStates, kLogitRows, kArrays };  // of max_rows words each
  uint64_t array_at(uint32_t array) const { return uint64_t{array} * max_rows_; }
  uint64_t starts_at() const { return array_at(kArrays); }  // [max_rows][pools]
  uint64_t tables_at() const { return starts_at() + uint64_t{max_rows_} * n_pools_; }
  View words(uint64_t at, uint64_t n) const { return {words_.get(), at * 4, n * 4}; }
  Result<void> reserve(uint64_t table_words);

  Device& device_;
  uint32_t max_rows_, n_pools_;
  std::shared_ptr<Buffer> words_;
};

}  // namespace honeycrisp::backend::metal
