// What the kernels of MixExperts are given besides buffers. Read by MSL and by C++. A pair is a row and one of its
// chosen experts: pair row · top_k + rank.
#pragma once

#ifndef __METAL_VERSION__
#include <cstdint>
#endif

struct ExpertMatrix {
  uint64_t row_bytes;
  uint64_t slice_bytes;  // from one expert to the next
};

struct ExpertsArgs {
  ExpertMatrix matrices[2];  // gate and up, or down
  uint32_t rows, columns;    // of each expert
  uint32_t in_stride;        // floats from one input to the next
  uint32_t n_pairs;
  uint32_t top_k;
  uint32_t reserved;
};

struct ChooseArgs {
  uint32_t n_experts, top_k;
  uint32_t among_all;  // Routing::kSoftmaxTopK
};

struct MixArgs {
  uint32_t width, top_k;
  uint32_t x_stride, add_stride;
  float branch_eps, post_eps;
  float branch_scale, residual_scale;
};

#define HC_EXPERT_SIMDGROUPS 4
#define HC_EXPERT_ROWS 4       // weight rows of a simdgroup, for one pair at a time
#define HC_EXPERT_TILE 8       // pairs of a tile, where they are grouped by expert
#define HC_EXPERT_TILE_ROWS 1  // weight rows of a simdgroup then
