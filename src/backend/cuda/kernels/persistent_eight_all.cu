// Instances of the persistent kernel for up to eight rows, of all formats.
#include "backend/cuda/kernels/persistent_step.cuh"

namespace honeycrisp::backend::cuda {

template int prepare_step<FormatSet::kAll, 8>(uint32_t*);
template int launch_step<FormatSet::kAll, 8>(const StepArgs&, uint32_t, Stream);

}  // namespace honeycrisp::backend::cuda
