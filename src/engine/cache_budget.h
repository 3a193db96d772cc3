// How many bytes the pages and the recurrent states of an engine may take together.
#pragma once

#include "base/bytes.h"
#include "base/result.h"

#include <cstdint>
#include <string_view>

namespace honeycrisp::engine {

struct CacheBudget {
  uint64_t limit = UINT64_MAX;
  uint64_t reserved = 0;

  uint64_t left() const { return limit - reserved; }
  /// The error for `n` more of `what` that do not fit.
  tl::unexpected<Error> refuse(uint64_t bytes, uint64_t n, std::string_view what) const {
    return fail(ErrorCode::kOutOfMemory,
                "the KV cache needs {} more for {} {}, but {} of the {} allowed are taken (close sessions, lower the "
                "context or raise the KV memory limit)",
                format_bytes(bytes), n, what, format_bytes(reserved), format_bytes(limit));
  }
};

}  // namespace honeycrisp::engine
