// Instances of the persistent kernel for up to four rows, of all formats.
#include "backend/cuda/kernels/persistent_step.cuh"

namespace honeycrisp::backend::cuda {

template int prepare_step<FormatSet::kAll, 4>(uint32_t*);
template int launch_step<FormatSet::kAll, 4>(const StepArgs&, uint32_t, Stream);

}  // namespace honeycrisp::backend::cuda
