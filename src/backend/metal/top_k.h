// The largest logits of rows that lie in device memory, found there.
#pragma once

#include "backend/metal/pipelines.h"
#include "backend/metal/step_encoder.h"

namespace honeycrisp::backend::metal {

/// What encode_top_k() writes, by rank: ties stand in order of their indices, NaN last. Where a row has fewer than k
/// values, the rest have the index UINT32_MAX.
struct TopK {
  View values;   // f32 [rows][k]
  View indices;  // uint32 [rows][k]
};

/// Bytes of the memory between the two launches.
uint64_t top_k_scratch_bytes(uint32_t rows, uint32_t count, uint32_t k);

/// The k (1..256) largest of the `count` values of each row of `logits` f32 [rows][count]; k = 1 is the argmax.
Result<void> encode_top_k(Pipelines&, StepEncoder&, const View& logits, uint32_t rows, uint32_t count, uint32_t k,
                          const View& scratch, const TopK& out);

}  // namespace honeycrisp::backend::metal
