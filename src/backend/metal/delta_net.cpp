#include "backend/metal/op_encoder.h"

namespace honeycrisp::backend::metal {

std::string obstacle(const program::Program&, const program::DeltaNet&) { return "metal has no kernel for it yet"; }

Result<void> encode(OpContext&, const program::DeltaNet&) { return unsupported("metal has no kernel for delta_net yet"); }

}  // namespace honeycrisp::backend::metal
