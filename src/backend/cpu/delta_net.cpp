#include "backend/cpu/op_kernel.h"

namespace honeycrisp::backend::cpu {

Result<std::unique_ptr<OpKernel>> make_kernel(const program::Program&, const program::DeltaNet&, const Isa&) {
  return unsupported("the cpu backend has no kernel for this op");
}

}  // namespace honeycrisp::backend::cpu
