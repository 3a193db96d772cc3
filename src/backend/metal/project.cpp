#include "backend/metal/op_encoder.h"

namespace honeycrisp::backend::metal {

std::string obstacle(const program::Program&, const program::Project&) { return "metal has no kernel for it yet"; }

Result<void> encode(OpContext&, const program::Project&) { return unsupported("metal has no kernel for project yet"); }

Result<void> flush_residual(OpContext&) { return {}; }

}  // namespace honeycrisp::backend::metal
