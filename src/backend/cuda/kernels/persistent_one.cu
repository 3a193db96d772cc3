// Instances of the persistent kernel for one row.
#include "backend/cuda/kernels/persistent_step.cuh"

namespace honeycrisp::backend::cuda {

bool has_persistent_kernels() {
#if defined(HC_CUDA_SM_90A)
  return true;
#else
  return false;
#endif
}

int prepare_persistent_one(uint32_t* shared_bytes) { return prepare_step<1>(shared_bytes); }

int launch_persistent_one(const StepArgs& a, uint32_t n_blocks, Stream stream) {
  return launch_step<1>(a, n_blocks, stream);
}

}  // namespace honeycrisp::backend::cuda
