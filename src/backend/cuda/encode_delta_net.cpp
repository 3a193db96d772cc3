// DeltaNet: its scratch memory and its launches.
#include "backend/cuda/encoder.h"

#include <algorithm>

namespace honeycrisp::backend::cuda {

using namespace program;

void place_delta_nets(const Program& program, uint64_t max_rows, StepMemory& memory) {
  uint64_t channels = 0, heads = 0;
  for (const StateLayer& layer : program.states) {
    channels = std::max<uint64_t>(channels, layer.channels);
    heads = std::max<uint64_t>(heads, layer.n_heads);
  }
  memory.convolved = memory.layout.add(max_rows * channels, sizeof(float));
  memory.gates = memory.layout.add(max_rows * heads, 2 * sizeof(float));
}

// Both roles run alike: a sequence's rows depend on one another in their order, whatever their roles.
Result<void> Encoder::run(const DeltaNet& op, const StepRows& rows, Stream stream) const {
  const StateLayer& layer = program_.state(op);
  DeltaNetArgs a;
  a.runs = rows.runs;
  a.positions = rows.positions;
  a.matrices = StateStore::first_float(program_, op.state);
  a.history = a.matrices + layer.matrix_floats();
  a.n_key_heads = op.n_key_heads;
  a.n_heads = layer.n_heads;
  a.key_dim = layer.key_dim;
  a.value_dim = layer.value_dim;
  a.channels = layer.channels;
  a.taps = layer.kernel_size;
  a.grouped_heads = op.grouped_heads;
  a.qkv = rows_of(op.qkv);
  a.z = rows_of(op.z);
  a.alpha = rows_of(op.alpha);
  a.beta = rows_of(op.beta);
  a.out = rows_of(op.out);
  a.gate_run = op.gate_run;
  a.gate_stride = op.gate_stride;
  a.conv = weights_.vector(op.conv);
  a.a = weights_.vector(op.a);
  a.dt_bias = weights_.vector(op.dt_bias);
  a.norm = weights_.norm(op.norm);
  a.l2_eps = op.l2_eps;
  a.convolved = memory_.as<float>(places_.convolved);
  a.gates = memory_.as<float>(places_.gates);
  return check_cuda(launch_delta_net(a, stream), "the delta rule");
}

}  // namespace honeycrisp::backend::cuda
