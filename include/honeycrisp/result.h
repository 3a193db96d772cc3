// Errors are values. Owns: Error and Result<T>, used by every room and by the public API.
// The library never prints, exits or throws across its API: whatever a file, a user or the network
// can cause comes back as an Error whose message names the thing, what was wrong and what to do.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace honeycrisp {

enum class ErrorCode {
  kInvalidInput,  // a file, argument or request is malformed or contradicts itself
  kUnsupported,   // well-formed, but this build or machine cannot do it
  kNotFound,      // a file, model, tensor or key that was asked for is absent
  kIo,            // the operating system or the network failed
  kOutOfMemory,   // host or device memory (or a configured budget) is exhausted
  kContextFull,   // the sequence has reached its context length
  kCancelled,     // the caller asked to stop
  kInternal,      // a fault of ours: please report it
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  // one line, UTF-8, no trailing period or newline
};

/// A value or an Error. `std::expected` in spirit; becomes it once compilers we support have it.
template <class T>
using Result = tl::expected<T, Error>;

/// `return Fail(ErrorCode::kInvalidInput, "…");`
[[nodiscard]] inline tl::unexpected<Error> Fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

/// A short lower-case name of the code, e.g. "invalid input".
inline const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidInput: return "invalid input";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kNotFound: return "not found";
    case ErrorCode::kIo: return "i/o error";
    case ErrorCode::kOutOfMemory: return "out of memory";
    case ErrorCode::kContextFull: return "context full";
    case ErrorCode::kCancelled: return "cancelled";
    case ErrorCode::kInternal: return "internal error";
  }
  return "error";
}

}  // namespace honeycrisp
