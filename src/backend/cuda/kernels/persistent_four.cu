// Instances of the persistent kernel for up to four rows.
#include "backend/cuda/kernels/persistent_step.cuh"

namespace honeycrisp::backend::cuda {

int prepare_persistent_four(uint32_t* shared_bytes) { return prepare_step<4>(shared_bytes); }

int launch_persistent_four(const StepArgs& a, uint32_t n_blocks, Stream stream) {
  return launch_step<4>(a, n_blocks, stream);
}

}  // namespace honeycrisp::backend::cuda
