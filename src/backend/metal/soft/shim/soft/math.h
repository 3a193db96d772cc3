// MSL's math, integer, common, geometric and relational functions, by compiler builtins (no C header, whose functions
// would become candidates too). fast:: and precise:: are the same here: the host's libm, correctly rounded or nearly
// so.
#pragma once
#include "types.h"

namespace metal {

#define SOFT_MATH_1(name, expr)                                                               \
  template <floating T>                                                                       \
  SOFT_INLINE T name(T v) {                                                                   \
    const float x = float(v);                                                                 \
    return T(expr);                                                                           \
  }                                                                                           \
  template <vectorlike V>                                                                     \
    requires floating<element_of<V>>                                                          \
  SOFT_INLINE vector_of<V> name(const V& v) {                                                 \
    vector_of<V> r;                                                                           \
    for (uint i = 0; i < vector_traits<V>::n; ++i) r.d[i] = metal::name(element_of<V>(v[i])); \
    return r;                                                                                 \
  }
SOFT_MATH_1(exp, __builtin_expf(x))
SOFT_MATH_1(exp2, __builtin_exp2f(x))
SOFT_MATH_1(exp10, __builtin_powf(10.0f, x))
SOFT_MATH_1(log, __builtin_logf(x))
SOFT_MATH_1(log2, __builtin_log2f(x))
SOFT_MATH_1(log10, __builtin_log10f(x))
SOFT_MATH_1(sqrt, __builtin_sqrtf(x))
SOFT_MATH_1(rsqrt, 1.0f / __builtin_sqrtf(x))
SOFT_MATH_1(sin, __builtin_sinf(x))
SOFT_MATH_1(cos, __builtin_cosf(x))
SOFT_MATH_1(tan, __builtin_tanf(x))
SOFT_MATH_1(asin, __builtin_asinf(x))
SOFT_MATH_1(acos, __builtin_acosf(x))
SOFT_MATH_1(atan, __builtin_atanf(x))
SOFT_MATH_1(sinh, __builtin_sinhf(x))
SOFT_MATH_1(cosh, __builtin_coshf(x))
SOFT_MATH_1(tanh, __builtin_tanhf(x))
SOFT_MATH_1(fabs, __builtin_fabsf(x))
SOFT_MATH_1(floor, __builtin_floorf(x))
SOFT_MATH_1(ceil, __builtin_ceilf(x))
SOFT_MATH_1(rint, __builtin_rintf(x))
SOFT_MATH_1(round, __builtin_roundf(x))
SOFT_MATH_1(trunc, __builtin_truncf(x))
SOFT_MATH_1(fract, __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f))
SOFT_MATH_1(saturate, !(x > 0.0f) ? 0.0f : (x > 1.0f ? 1.0f : x))
SOFT_MATH_1(sign, x > 0.0f ? 1.0f : (x < 0.0f ? -1.0f : (x == 0.0f ? x : 0.0f)))
#undef SOFT_MATH_1

/// A function of scalars, element by element over vectors of one type.
#define SOFT_VECTOR_2(name)                                                                \
  template <class A, class B>                                                              \
    requires same_vector<A, B>                                                             \
  SOFT_INLINE vector_of<A> name(const A& a, const B& b) {                                  \
    using E = element_of<A>;                                                               \
    vector_of<A> r;                                                                        \
    for (uint i = 0; i < vector_traits<A>::n; ++i) r.d[i] = metal::name(E(a[i]), E(b[i])); \
    return r;                                                                              \
  }
#define SOFT_VECTOR_3(name)                                                                         \
  template <class A, class B, class C>                                                              \
    requires(same_vector<A, B> && same_vector<A, C>)                                                \
  SOFT_INLINE vector_of<A> name(const A& a, const B& b, const C& c) {                               \
    using E = element_of<A>;                                                                        \
    vector_of<A> r;                                                                                 \
    for (uint i = 0; i < vector_traits<A>::n; ++i) r.d[i] = metal::name(E(a[i]), E(b[i]), E(c[i])); \
    return r;                                                                                       \
  }

// A NaN operand gives the other one, as fmin and fmax do.
template <scalar T>
SOFT_INLINE T max(T a, T b) {
  return a < b || a != a ? b : a;
}
template <scalar T>
SOFT_INLINE T min(T a, T b) {
  return b < a || a != a ? b : a;
}
template <floating T>
SOFT_INLINE T fmax(T a, T b) {
  return metal::max(a, b);
}
template <floating T>
SOFT_INLINE T fmin(T a, T b) {
  return metal::min(a, b);
}
template <scalar T>
SOFT_INLINE T max3(T a, T b, T c) {
  return metal::max(metal::max(a, b), c);
}
template <scalar T>
SOFT_INLINE T min3(T a, T b, T c) {
  return metal::min(metal::min(a, b), c);
}
template <scalar T>
SOFT_INLINE T clamp(T v, T low, T high) {
  return metal::min(metal::max(v, low), high);
}
template <floating T>
SOFT_INLINE T fma(T a, T b, T c) {
  return T(__builtin_fmaf(float(a), float(b), float(c)));
}
template <floating T>
SOFT_INLINE T mix(T a, T b, T t) {
  return T(a + (b - a) * t);
}
template <floating T>
SOFT_INLINE T step(T edge, T v) {
  return v < edge ? T(0.0f) : T(1.0f);
}
template <floating T>
SOFT_INLINE T smoothstep(T low, T high, T v) {
  const T t = metal::clamp(T((v - low) / (high - low)), T(0.0f), T(1.0f));
  return T(t * t * (T(3.0f) - T(2.0f) * t));
}
/// A function of two floats, and element by element over vectors of one type.
#define SOFT_MATH_2(name, expr)             \
  template <floating T>                     \
  SOFT_INLINE T name(T a, T b) {            \
    const float x = float(a), y = float(b); \
    return T(expr);                         \
  }                                         \
  SOFT_VECTOR_2(name)
SOFT_MATH_2(pow, __builtin_powf(x, y))
SOFT_MATH_2(powr, __builtin_powf(x, y))
SOFT_MATH_2(fmod, __builtin_fmodf(x, y))
SOFT_MATH_2(atan2, __builtin_atan2f(x, y))
SOFT_MATH_2(copysign, __builtin_copysignf(x, y))
#undef SOFT_MATH_2
template <floating T>
SOFT_INLINE T divide(T a, T b) {
  return T(a / b);
}
template <floating T>
SOFT_INLINE T ldexp(T a, int e) {
  return T(__builtin_ldexpf(float(a), e));
}
SOFT_VECTOR_2(max)
SOFT_VECTOR_2(min)
SOFT_VECTOR_2(fmax)
SOFT_VECTOR_2(fmin)
SOFT_VECTOR_2(step)
template <class A, class B, class C>
  requires(same_vector<A, B> && same_vector<A, C>)
SOFT_INLINE vector_of<A> fma(const A& a, const B& b, const C& c) {
  using E = element_of<A>;
#if defined(__GNUC__) && !defined(__clang__)
  if constexpr (whole<A> && vector_traits<A>::n == 4)
    return from_whole<vector_of<A>>(__builtin_ia32_vfmaddps(to_whole(a), to_whole(b), to_whole(c)));
#endif
  vector_of<A> r;
  for (uint i = 0; i < vector_traits<A>::n; ++i) r.d[i] = metal::fma(E(a[i]), E(b[i]), E(c[i]));
  return r;
}
SOFT_VECTOR_3(mix)
SOFT_VECTOR_3(clamp)
SOFT_VECTOR_3(smoothstep)
template <vectorlike A>
SOFT_INLINE vector_of<A> clamp(const A& a, element_of<A> low, element_of<A> high) {
  return metal::clamp(vector_of<A>(a), vector_of<A>(low), vector_of<A>(high));
}
template <vectorlike A>
SOFT_INLINE vector_of<A> max(const A& a, element_of<A> b) {
  return metal::max(vector_of<A>(a), vector_of<A>(b));
}
template <vectorlike A>
SOFT_INLINE vector_of<A> min(const A& a, element_of<A> b) {
  return metal::min(vector_of<A>(a), vector_of<A>(b));
}
template <vectorlike A>
SOFT_INLINE vector_of<A> mix(const A& a, const std::type_identity_t<vector_of<A>>& b, element_of<A> t) {
  return metal::mix(vector_of<A>(a), b, vector_of<A>(t));
}

// ---- integers ----
template <scalar T>
SOFT_INLINE T abs(T a) {
  return a < T(0) ? T(-a) : a;
}
template <class T>
  requires std::is_integral_v<T>
SOFT_INLINE T popcount(T v) {
  return T(__builtin_popcountll(static_cast<unsigned long long>(std::make_unsigned_t<T>(v))));
}
template <class T>
  requires std::is_integral_v<T>
SOFT_INLINE T clz(T v) {
  constexpr int bits = 8 * sizeof(T);
  return v == 0 ? T(bits)
                : T(__builtin_clzll(static_cast<unsigned long long>(std::make_unsigned_t<T>(v))) - (64 - bits));
}
template <class T>
  requires std::is_integral_v<T>
SOFT_INLINE T ctz(T v) {
  return v == 0 ? T(8 * sizeof(T)) : T(__builtin_ctzll(static_cast<unsigned long long>(std::make_unsigned_t<T>(v))));
}
template <class T>
  requires std::is_integral_v<T>
SOFT_INLINE T mulhi(T a, T b) {
  if constexpr (sizeof(T) == 8)
    return T((__int128(a) * __int128(b)) >> 64);
  else
    return T((long(a) * long(b)) >> (8 * sizeof(T)));
}
template <class T>
  requires std::is_integral_v<T>
SOFT_INLINE T mul24(T a, T b) {
  return T(a * b);
}
template <class T>
  requires std::is_integral_v<T>
SOFT_INLINE T mad24(T a, T b, T c) {
  return T(a * b + c);
}
template <class T>
  requires std::is_integral_v<T>
SOFT_INLINE T extract_bits(T v, uint offset, uint bits) {
  if (bits == 0) return T(0);
  constexpr uint width = 8 * sizeof(T);
  return T(T(std::make_unsigned_t<T>(v) << (width - bits - offset)) >> (width - bits));
}
template <class T>
  requires std::is_integral_v<T>
SOFT_INLINE T rotate(T v, T by) {
  using U = std::make_unsigned_t<T>;
  constexpr uint width = 8 * sizeof(T);
  const uint n = uint(U(by)) % width;
  return n == 0 ? v : T(U(U(v) << n) | U(U(v) >> (width - n)));
}
template <vectorlike V>
SOFT_INLINE vector_of<V> abs(const V& v) {
  vector_of<V> r;
  for (uint i = 0; i < vector_traits<V>::n; ++i) r.d[i] = metal::abs(element_of<V>(v[i]));
  return r;
}
template <vectorlike V>
SOFT_INLINE vector_of<V> popcount(const V& v) {
  vector_of<V> r;
  for (uint i = 0; i < vector_traits<V>::n; ++i) r.d[i] = metal::popcount(element_of<V>(v[i]));
  return r;
}

// ---- geometric ----
template <class A, class B>
  requires same_vector<A, B>
SOFT_INLINE element_of<A> dot(const A& a, const B& b) {
  element_of<A> s = element_of<A>(a[0] * b[0]);
  for (uint i = 1; i < vector_traits<A>::n; ++i) s = element_of<A>(s + element_of<A>(a[i] * b[i]));
  return s;
}
template <vectorlike A>
SOFT_INLINE element_of<A> length_squared(const A& a) {
  return metal::dot(a, a);
}
template <vectorlike A>
SOFT_INLINE element_of<A> length(const A& a) {
  return metal::sqrt(metal::dot(a, a));
}
template <vectorlike A>
SOFT_INLINE vector_of<A> normalize(const A& a) {
  return a * metal::rsqrt(metal::dot(a, a));
}
template <class A, class B>
  requires same_vector<A, B>
SOFT_INLINE element_of<A> distance(const A& a, const B& b) {
  return metal::length(a - b);
}

// ---- relational ----
template <scalar T>
SOFT_INLINE T select(T when_false, T when_true, bool condition) {
  return condition ? when_true : when_false;
}
template <vectorlike A>
SOFT_INLINE vector_of<A> select(const A& when_false, const std::type_identity_t<vector_of<A>>& when_true,
                                const vec<bool, vector_traits<A>::n>& condition) {
  vector_of<A> r;
  for (uint i = 0; i < vector_traits<A>::n; ++i)
    r.d[i] = condition.d[i] ? when_true.d[i] : element_of<A>(when_false[i]);
  return r;
}
template <uint N>
SOFT_INLINE bool any(const vec<bool, N>& v) {
  bool r = false;
  for (uint i = 0; i < N; ++i) r |= v.d[i];
  return r;
}
template <uint N>
SOFT_INLINE bool all(const vec<bool, N>& v) {
  bool r = true;
  for (uint i = 0; i < N; ++i) r &= v.d[i];
  return r;
}
#define SOFT_IS(name, expr)                                                                   \
  template <floating T>                                                                       \
  SOFT_INLINE bool name(T v) {                                                                \
    const float x = float(v);                                                                 \
    return expr;                                                                              \
  }                                                                                           \
  template <vectorlike V>                                                                     \
  SOFT_INLINE vec<bool, vector_traits<V>::n> name(const V& v) {                               \
    vec<bool, vector_traits<V>::n> r;                                                         \
    for (uint i = 0; i < vector_traits<V>::n; ++i) r.d[i] = metal::name(element_of<V>(v[i])); \
    return r;                                                                                 \
  }
SOFT_IS(isnan, __builtin_isnan(x))
SOFT_IS(isinf, __builtin_isinf(x))
SOFT_IS(isfinite, __builtin_isfinite(x))
SOFT_IS(signbit, __builtin_signbit(x) != 0)
#undef SOFT_IS
#undef SOFT_VECTOR_2
#undef SOFT_VECTOR_3

#define SOFT_VARIANTS  \
  using metal::exp;    \
  using metal::exp2;   \
  using metal::exp10;  \
  using metal::log;    \
  using metal::log2;   \
  using metal::log10;  \
  using metal::sqrt;   \
  using metal::rsqrt;  \
  using metal::sin;    \
  using metal::cos;    \
  using metal::tan;    \
  using metal::tanh;   \
  using metal::pow;    \
  using metal::powr;   \
  using metal::fmin;   \
  using metal::fmax;   \
  using metal::divide; \
  using metal::atan2;  \
  using metal::fma;    \
  using metal::min;    \
  using metal::max;    \
  using metal::clamp;  \
  using metal::floor;  \
  using metal::ceil;   \
  using metal::round;  \
  using metal::rint;   \
  using metal::trunc;  \
  using metal::fabs;   \
  using metal::fmod;   \
  using metal::saturate;
namespace precise {
SOFT_VARIANTS
}
namespace fast {
SOFT_VARIANTS
}
#undef SOFT_VARIANTS

template <class T>
struct numeric_limits;
template <>
struct numeric_limits<float> {
  static constexpr float max() { return 3.402823466e+38f; }
  static constexpr float lowest() { return -max(); }
  static constexpr float min() { return 1.175494351e-38f; }
  static constexpr float epsilon() { return 1.192092896e-07f; }
  static constexpr float infinity() { return __builtin_inff(); }
  static constexpr float quiet_NaN() { return __builtin_nanf(""); }
};
template <>
struct numeric_limits<half> {
  static constexpr half max() { return half(65504.0f); }
  static constexpr half lowest() { return half(-65504.0f); }
  static constexpr half min() { return half(6.103515625e-5f); }
  static constexpr half epsilon() { return half(9.765625e-4f); }
  static constexpr half infinity() { return half(__builtin_inff()); }
};
template <class T>
  requires std::is_integral_v<T>
struct numeric_limits<T> {
  static constexpr T max() { return std::is_signed_v<T> ? T(std::make_unsigned_t<T>(-1) >> 1) : T(-1); }
  static constexpr T lowest() { return std::is_signed_v<T> ? T(~max()) : T(0); }
  static constexpr T min() { return lowest(); }
};
}  // namespace metal
