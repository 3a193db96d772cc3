// Instances of the persistent kernel for five to eight rows.
#include "backend/cuda/kernels/persistent_step.cuh"

namespace honeycrisp::backend::cuda {

int prepare_persistent_eight(uint32_t* shared_bytes) { return prepare_step<8>(shared_bytes); }

int launch_persistent_eight(const StepArgs& a, uint32_t n_blocks, Stream stream) {
  return launch_step<8>(a, n_blocks, stream);
}

}  // namespace honeycrisp::backend::cuda
