// The struct that crosses from the host to the kernel of the largest logits, and its launch (kernels/top_k.cu).
#pragma once

#include "backend/cuda/args.h"

namespace honeycrisp::backend::cuda {

inline constexpr uint32_t kTopKSlice = 4096;  // values of a row that a block looks at
inline constexpr uint32_t kMostTopK = 64;

struct TopKArgs {
  const float* logits = nullptr;  // [rows][stride]
  uint32_t stride = 0;
  uint32_t count = 0;              // values of a row among which they are looked for: the first
  uint32_t k = 0;                  // 1..kMostTopK
  uint64_t* candidates = nullptr;  // [rows][slices][k]
  uint32_t* counters = nullptr;    // [rows]{slices that are done, unusable values}; zero before and after a launch
  // By rank as in TopLogits; host memory will do. Where a row has fewer than k values the rest is not written.
  float* values = nullptr;       // [rows][k]
  uint32_t* tokens = nullptr;    // [rows][k]
  uint32_t* unusable = nullptr;  // [rows]
  int32_t* best = nullptr;       // of the first row: the best token once more; absent: nobody needs it
};

constexpr uint32_t top_k_slices(uint32_t count) { return (count + kTopKSlice - 1) / kTopKSlice; }
int launch_top_k(const TopKArgs&, uint32_t n_rows, Stream);

}  // namespace honeycrisp::backend::cuda
