// What crosses from the host to the kernels of DeltaNet (kernels/delta_net.cu). As args.h.
#pragma once

#include "backend/cuda/args.h"

namespace honeycrisp::backend::cuda {

/// Rows of one sequence in a step, in the order of their positions: rows[first .. first + n) of RunList.
struct Run {
  float* state = nullptr;  // of all layers
  uint32_t first = 0, n = 0;
};
struct RunList {
  const uint32_t* rows = nullptr;    // [rows of the step], sequence by sequence
  const uint32_t* run_of = nullptr;  // of each entry of `rows`
  const Run* runs = nullptr;
  uint32_t n_rows = 0;
  uint32_t n_runs = 0;  // that the launch provides for; those past the last have n = 0
};

inline constexpr uint32_t kMostDeltaKeys = 256;  // of a head

struct DeltaNetArgs {
  RunList runs;
  const uint32_t* positions = nullptr;  // [batch rows]
  uint64_t matrices = 0, history = 0;   // of this layer in a state, in floats
  uint32_t n_key_heads = 0, n_heads = 0, key_dim = 0, value_dim = 0, channels = 0, taps = 0;
  bool grouped_heads = false;
  Rows qkv, z, alpha, beta, out;
  uint32_t gate_run = 1, gate_stride = 1;
  const float *conv = nullptr, *a = nullptr, *dt_bias = nullptr;
  NormArgs norm;
  float l2_eps = 0;
  float* convolved = nullptr;  // [entries of runs.rows][channels]: q, k normed; v, then what the heads give
  float* gates = nullptr;      // [entries][n_heads]{decay, beta}
};

int launch_delta_net(const DeltaNetArgs&, Stream);

}  // namespace honeycrisp::backend::cuda
