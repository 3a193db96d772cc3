// What the rooms add to the public Result: formatted failures and early return.
#pragma once

#include <honeycrisp/result.h>

#include <fmt/format.h>

namespace honeycrisp {

/// `return invalid("tensor {}: offset {} is past the end", name, offset);`
template <class... A>
[[nodiscard]] tl::unexpected<Error> fail(ErrorCode code, fmt::format_string<A...> f, A&&... args) {
  return Fail(code, fmt::format(f, std::forward<A>(args)...));
}
template <class... A>
[[nodiscard]] tl::unexpected<Error> invalid(fmt::format_string<A...> f, A&&... args) {
  return Fail(ErrorCode::kInvalidInput, fmt::format(f, std::forward<A>(args)...));
}
template <class... A>
[[nodiscard]] tl::unexpected<Error> unsupported(fmt::format_string<A...> f, A&&... args) {
  return Fail(ErrorCode::kUnsupported, fmt::format(f, std::forward<A>(args)...));
}

}  // namespace honeycrisp

#define HC_CONCAT_(a, b) a##b
#define HC_CONCAT(a, b) HC_CONCAT_(a, b)

/// HC_ASSIGN(auto file, MappedFile::open(path)); returns the error from the enclosing function, if there is one.
#define HC_ASSIGN(decl, expr) HC_ASSIGN_(HC_CONCAT(hc_result_, __LINE__), decl, expr)
#define HC_ASSIGN_(tmp, decl, expr)                                               \
  auto tmp = (expr);                                                              \
  if (!tmp) return ::tl::unexpected<::honeycrisp::Error>(std::move(tmp).error()); \
  decl = std::move(*tmp)

/// HC_TRY(check(x)); the same for Result<void> or a value that is not needed.
#define HC_TRY(expr) HC_TRY_(HC_CONCAT(hc_result_, __LINE__), expr)
#define HC_TRY_(tmp, expr) \
  if (auto tmp = (expr); !tmp) return ::tl::unexpected<::honeycrisp::Error>(std::move(tmp).error())
