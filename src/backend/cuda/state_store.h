// Recurrent states in device memory: what each sequence's DeltaNet layers remember, in f32 (layout of a layer:
// kernels/delta_net.cu). One allocation per state, which never moves.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/device.h"

#include <vector>

struct CUstream_st;

namespace honeycrisp::backend::cuda {

class StateStore {
 public:
  StateStore() = default;
  StateStore(const program::Program& program, CUstream_st* stream)
      : floats_(first_float(program, program::StateId(program.states.size()))), stream_(stream) {}

  /// Where a layer begins in a state.
  static uint64_t first_float(const program::Program& program, program::StateId layer);

  /// Makes states [0, n_states) exist, as zeros. Error: out of memory, with the sizes.
  Result<void> reserve(uint32_t n_states);
  /// In the order of the stream.
  Result<void> copy(StateId from, StateId to);

  uint64_t bytes() const { return floats_ * sizeof(float); }
  uint32_t n_states() const { return uint32_t(states_.size()); }
  float* at(StateId state) const { return states_[state].as<float>(); }

 private:
  uint64_t floats_ = 0;  // of a state
  CUstream_st* stream_ = nullptr;
  std::vector<Memory> states_;
};

}  // namespace honeycrisp::backend::cuda
