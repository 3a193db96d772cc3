// The cpu backend: the instruction set of the machine, all threads, weights used in place from the mapped file.
#pragma once

#include "backend/backend.h"

namespace honeycrisp::backend {

const Backend& cpu_backend();

}  // namespace honeycrisp::backend
