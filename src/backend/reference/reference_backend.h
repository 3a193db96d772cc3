// The plain backend: f32 buffers, f64 sums, one obvious loop per op, one thread. It is the truth that every other
// backend is tested against, so clarity comes before speed in every line. Weights are read from the file's own layout.
#pragma once

#include "backend/backend.h"

namespace honeycrisp::backend {

const Backend& reference_backend();

}  // namespace honeycrisp::backend
