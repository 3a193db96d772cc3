// Products of wide steps, of the formats of most files.
#include "backend/cuda/kernels/wide_product.cuh"

namespace honeycrisp::backend::cuda {

template int prepare_wide_product<FormatSet::kOften>();
template int launch_wide_product<FormatSet::kOften>(const WideProductArgs&, Stream);

}  // namespace honeycrisp::backend::cuda
