// Recurrent states of the reference backend: what each sequence's DeltaNet layers remember, in f32.
#pragma once

#include "backend/backend.h"

#include <memory>
#include <span>
#include <vector>

namespace honeycrisp::backend::reference {

class StateStore {
 public:
  explicit StateStore(const program::Program& program);

  Result<void> reserve(uint32_t n_states);
  uint64_t bytes() const { return floats_ * sizeof(float); }
  uint32_t n_states() const { return uint32_t(states_.size()); }
  void copy(StateId from, StateId to);

  /// One layer of a state: its matrices [heads][key_dim][value_dim], then the inputs of its convolution
  /// [kernel_size − 1][channels], oldest first.
  std::span<float> layer(program::StateId layer, StateId state);

 private:
  std::vector<size_t> offsets_, sizes_;  // [layers], floats
  size_t floats_ = 0;
  std::vector<std::unique_ptr<float[]>> states_;
};

}  // namespace honeycrisp::backend::reference
