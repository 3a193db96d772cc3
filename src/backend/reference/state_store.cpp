#include "backend/reference/state_store.h"

#include "base/check.h"

#include <algorithm>
#include <new>

namespace honeycrisp::backend::reference {

StateStore::StateStore(const program::Program& program) {
  for (const program::StateLayer& layer : program.states) {
    offsets_.push_back(floats_);
    sizes_.push_back(layer.floats());
    floats_ += layer.floats();
  }
}

Result<void> StateStore::reserve(uint32_t n_states) {
  while (states_.size() < n_states) {
    std::unique_ptr<float[]> state(new (std::nothrow) float[floats_]());
    if (!state)
      return fail(ErrorCode::kOutOfMemory, "recurrent state {} of {} bytes cannot be allocated", states_.size(),
                  bytes());
    states_.push_back(std::move(state));
  }
  return {};
}

void StateStore::copy(StateId from, StateId to) { std::copy_n(states_[from].get(), floats_, states_[to].get()); }

std::span<float> StateStore::layer(program::StateId layer, StateId state) {
  HC_CHECK(state < states_.size(), "state {} of {}", state, states_.size());
  return {states_[state].get() + offsets_[layer], sizes_[layer]};
}

}  // namespace honeycrisp::backend::reference
