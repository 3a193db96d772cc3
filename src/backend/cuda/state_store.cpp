#include "backend/cuda/state_store.h"

#include "base/check.h"

#include <cuda_runtime_api.h>

namespace honeycrisp::backend::cuda {

uint64_t StateStore::first_float(const program::Program& program, program::StateId layer) {
  uint64_t floats = 0;
  for (program::StateId i = 0; i < layer; ++i) floats += program.states[i].floats();
  return floats;
}

Result<void> StateStore::reserve(uint32_t n_states) {
  if (floats_ == 0) return {};
  while (states_.size() < n_states) {
    HC_ASSIGN(Memory state, Memory::allocate(bytes(), fmt::format("recurrent state {}", states_.size())));
    HC_TRY(check_cuda(cudaMemsetAsync(state.as(), 0, bytes(), stream_), "clearing a recurrent state"));
    states_.push_back(std::move(state));
  }
  return {};
}

Result<void> StateStore::copy(StateId from, StateId to) {
  if (floats_ == 0 || from == to) return {};
  HC_CHECK(from < states_.size() && to < states_.size(), "states {} and {} of {}", from, to, states_.size());
  return check_cuda(cudaMemcpyAsync(at(to), at(from), bytes(), cudaMemcpyDeviceToDevice, stream_),
                    fmt::format("copying a recurrent state of {} bytes", bytes()));
}

}  // namespace honeycrisp::backend::cuda
