// The cuda backend: one NVIDIA GPU, weights in its memory, a decode step as one CUDA graph.
#pragma once

#include "backend/backend.h"

namespace honeycrisp::backend {

const Backend& cuda_backend();

}  // namespace honeycrisp::backend
