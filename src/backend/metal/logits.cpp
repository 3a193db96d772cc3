#include "backend/metal/op_encoder.h"

namespace honeycrisp::backend::metal {

std::string obstacle(const program::Program&, const program::Logits&) { return "metal has no kernel for it yet"; }

Result<void> encode(OpContext&, const program::Logits&) { return unsupported("metal has no kernel for logits yet"); }

}  // namespace honeycrisp::backend::metal
