// Recurrent states of the cpu backend: what each sequence's DeltaNet layers remember, in f32. One block of memory per
// state, which never moves. Writers of different states, or of different parts of one, may run at the same time.
//
// Layer: matrices [heads][blocks of 16 values][key_dim][16], lanes past the last value 0;
//        history [kernel_size − 1][channels], the convolution's last inputs, oldest first.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/memory.h"

#include <memory>
#include <vector>

namespace honeycrisp::backend::cpu {

class StateStore {
 public:
  explicit StateStore(const program::Program& program);

  /// Error: out of memory, with the sizes.
  Result<void> reserve(uint32_t n_states);
  uint64_t bytes() const { return floats_ * sizeof(float); }
  uint32_t n_states() const { return uint32_t(states_.size()); }
  void copy(StateId from, StateId to);

  float* matrices(program::StateId layer, StateId state) const { return at(state) + layers_[layer].matrices; }
  float* history(program::StateId layer, StateId state) const { return at(state) + layers_[layer].history; }

 private:
  struct Layer {
    uint64_t matrices, history;  // where they begin, in floats
  };
  float* at(StateId state) const;

  std::vector<Layer> layers_;
  uint64_t floats_ = 0;
  std::vector<Memory<float>> states_;
};

}  // namespace honeycrisp::backend::cpu
