// What the kernels of DeltaNet are given besides buffers. Read by MSL and by C++.
#pragma once

#ifndef __METAL_VERSION__
#include <cstdint>
#endif

#define HC_DELTA_NET_RUNS 256  // most runs of a launch: they travel with the arguments, which have 4 KiB

struct DeltaNetRun {
  uint32_t first_row, n_rows;
};

struct DeltaNetArgs {
  uint64_t state_bytes;                                                  // from one state to the next
  uint32_t qkv_stride, z_stride, alpha_stride, beta_stride, out_stride;  // floats from one row to the next
  uint32_t gate_run, gate_stride;  // head h finds its scalar at column h / gate_run · gate_stride + h % gate_run
  uint32_t n_rows;
  float l2_eps, norm_eps;
  DeltaNetRun runs[HC_DELTA_NET_RUNS];
};
