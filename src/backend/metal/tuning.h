// Which variant of a kernel a shape gets: tables of data, each row with its reason. Numbers are starting points that no
// Apple GPU has confirmed. No variant changes a result's bits. Knows nothing of ops and devices.
#pragma once

#include <cstdint>

namespace honeycrisp::backend::metal {

struct MatVecShape {
  uint32_t rows = 0;     // of weights, all matrices of the launch together
  uint32_t columns = 0;  // of each matrix
  uint32_t batch = 1;    // rows of the input
  bool gate = false;     // two matrices, row by row
  bool norm = false;     // of the input
};

struct MatVecVariant {
  uint32_t batch_tile;          // 1, 2, 4 or 8 batch rows of a threadgroup
  uint32_t rows_per_simdgroup;  // 1, 2, 4, 8 or 16 weight rows
  uint32_t cached_parts;        // ceiling of the input's parts in threadgroup memory; 0: each lane reads for itself
  const char* why;
};

MatVecVariant choose_mat_vec(const MatVecShape& shape);

}  // namespace honeycrisp::backend::metal
