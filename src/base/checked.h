// Checked arithmetic for sizes that come from files and requests.
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>

namespace honeycrisp {

template <class T>
[[nodiscard]] std::optional<T> checked_add(T a, T b) {
  T r;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}
template <class T>
[[nodiscard]] std::optional<T> checked_mul(T a, T b) {
  T r;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}

/// For a >= 0 and b > 0; does not overflow.
template <class T>
[[nodiscard]] constexpr T ceil_div(T a, T b) {
  return a / b + (a % b != 0 ? 1 : 0);
}
/// Smallest multiple of `b` that is at least `a`.
template <class T>
[[nodiscard]] constexpr T round_up(T a, T b) {
  return ceil_div(a, b) * b;
}

}  // namespace honeycrisp
