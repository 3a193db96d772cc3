// The rows of a launch of generated rows (persistent_args.h), from the rows of a batch.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/persistent_args.h"

namespace honeycrisp::backend::cuda {

/// Rows [first, first + a.n_rows) of the batch. `dest`: row of the logits that the next row which wants any gets.
inline void put_rows(StepArgs& a, const Batch& batch, uint32_t first, int32_t& dest) {
  for (uint32_t i = 0; i < a.n_rows; ++i) {
    const Row& row = batch.rows[first + i];
    a.row[i] = first + i;
    a.position[i] = row.position;
    a.earlier[i] = 0;
    for (uint32_t j = 0; j <= i; ++j)
      if (batch.rows[first + j].sequence == row.sequence) a.earlier[i] |= 1u << j;
    a.dest[i] = row.wants_logits ? dest++ : kNoLogits;
  }
}

}  // namespace honeycrisp::backend::cuda
