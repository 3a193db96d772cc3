#include "backend/cpu/state_store.h"

#include "backend/cpu/isa/kernels.h"
#include "base/check.h"
#include "base/checked.h"

#include <cstring>

namespace honeycrisp::backend::cpu {

StateStore::StateStore(const program::Program& program) {
  for (const program::StateLayer& layer : program.states) {
    const uint64_t matrices = uint64_t{layer.n_heads} * layer.key_dim * round_up(layer.value_dim, kLanes);
    layers_.push_back({floats_, floats_ + matrices});
    floats_ += round_up(matrices + layer.history_floats(), uint64_t{kLanes});
  }
}

Result<void> StateStore::reserve(uint32_t n_states) {
  while (states_.size() < n_states) {
    Memory<float> state = allocate<float>(bytes());
    if (!state)
      return fail(ErrorCode::kOutOfMemory, "recurrent state {} of {} bytes cannot be allocated", states_.size(),
                  bytes());
    std::memset(state.get(), 0, bytes());
    states_.push_back(std::move(state));
  }
  return {};
}

void StateStore::copy(StateId from, StateId to) {
  if (from != to) std::memcpy(at(to), at(from), bytes());
}

float* StateStore::at(StateId state) const {
  HC_DCHECK(state < states_.size(), "state {} of {}", state, states_.size());
  return states_[state].get();
}

}  // namespace honeycrisp::backend::cpu
