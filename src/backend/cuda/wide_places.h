// Where the vectors of wide steps lie. The persistent kernel's plan gives each a place of its own, as its blocks run at
// several ops at a time; a kernel an op needs no more than what is read later.
#pragma once

#include "backend/cuda/persistent_args.h"

#include <vector>

namespace honeycrisp::backend::cuda {

/// Gives the places of ops that run one after another anew, so that one serves again once its content has been read for
/// the last time. embedded: place of the `embedded_width` floats that are there before the first op. Returns the width
/// of a plane.
uint32_t share_places(std::vector<StepOp>& ops, uint32_t& embedded, uint32_t embedded_width);

}  // namespace honeycrisp::backend::cuda
