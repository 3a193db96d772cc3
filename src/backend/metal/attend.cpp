#include "backend/metal/op_encoder.h"

namespace honeycrisp::backend::metal {

std::string obstacle(const program::Program&, const program::Attend&, CacheType) { return "metal has no kernel for it yet"; }

Result<void> encode(OpContext&, const program::Attend&) { return unsupported("metal has no kernel for attend yet"); }

}  // namespace honeycrisp::backend::metal
