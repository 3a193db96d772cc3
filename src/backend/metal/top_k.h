// The largest logits of rows that lie in device memory, found there.
#pragma once

#include "backend/metal/pipelines.h"
#include "backend/metal/step_encoder.h"

namespace honeycrisp::backend::metal {

struct TopKShape {
  uint32_t rows = 0;
  uint32_t count = 0;   // values of a row among which they are looked for: the first
  uint32_t stride = 0;  // from one row to the next
  uint32_t k = 0;       // 1..256; 1 is the argmax
};

/// What encode_top_k() writes, by rank as in TopLogits. Where a row has fewer than k values, the rest have the index
/// UINT32_MAX.
struct TopK {
  View values;    // f32 [rows][k]
  View indices;   // uint32 [rows][k]
  View unusable;  // uint32 [rows]: how many of a row's values are NaN or +infinity
};

/// Bytes of the memory between the two launches.
uint64_t top_k_scratch_bytes(const TopKShape& shape);

/// The largest values of each row of `logits` f32 [rows][stride].
Result<void> encode_top_k(Pipelines&, StepEncoder&, const View& logits, const TopKShape& shape, const View& scratch,
                          const TopK& out);

}  // namespace honeycrisp::backend::metal
