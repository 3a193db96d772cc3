// Products of wide steps, of all formats.
#include "backend/cuda/kernels/wide_product.cuh"

namespace honeycrisp::backend::cuda {

template int prepare_wide_product<FormatSet::kAll>();
template int launch_wide_product<FormatSet::kAll>(const WideProductArgs&, Stream);

}  // namespace honeycrisp::backend::cuda
