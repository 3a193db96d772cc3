// The largest of a row's logits that lie in main memory. Knows nothing of batches.
#pragma once

#include "backend/rank.h"
#include <honeycrisp/top_logits.h>

#include <span>

namespace honeycrisp::backend {

/// The n (1..kMostTopLogits) largest of `logits` [ids], which may be fewer.
TopLogits top_logits(std::span<const float> logits, uint32_t n);

}  // namespace honeycrisp::backend
