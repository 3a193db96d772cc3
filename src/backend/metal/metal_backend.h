// The backends of Metal: "metal" over Apple's framework, "metal-soft" over the software device, for tests and for who
// has no Mac. One host, the same kernels.
#pragma once

#include "backend/backend.h"

namespace honeycrisp::backend {

const Backend& metal_backend();
const Backend& metal_soft_backend();

}  // namespace honeycrisp::backend
