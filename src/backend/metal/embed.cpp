#include "backend/metal/op_encoder.h"

namespace honeycrisp::backend::metal {

std::string obstacle(const program::Program&, const program::Embed&) { return "metal has no kernel for it yet"; }

Result<void> encode(OpContext&, const program::Embed&) { return unsupported("metal has no kernel for embed yet"); }

}  // namespace honeycrisp::backend::metal
