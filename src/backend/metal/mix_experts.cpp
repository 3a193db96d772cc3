#include "backend/metal/op_encoder.h"

namespace honeycrisp::backend::metal {

std::string obstacle(const program::Program&, const program::MixExperts&) { return "metal has no kernel for it yet"; }

Result<void> encode(OpContext&, const program::MixExperts&) { return unsupported("metal has no kernel for mix_experts yet"); }

}  // namespace honeycrisp::backend::metal
