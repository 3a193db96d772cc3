// Instances of the persistent kernel for one row, of the formats of most files.
#include "backend/cuda/kernels/persistent_step.cuh"

namespace honeycrisp::backend::cuda {

bool has_persistent_kernels() {
#if defined(HC_CUDA_SM_90A)
  return true;
#else
  return false;
#endif
}

template int prepare_step<FormatSet::kOften, 1>(uint32_t*);
template int launch_step<FormatSet::kOften, 1>(const StepArgs&, uint32_t, Stream);

}  // namespace honeycrisp::backend::cuda
