// Scalars, vectors, swizzles and packed vectors of MSL, with its rules: a vector is made from one scalar, or from parts
// that give exactly its number of components, or explicitly from a vector of the same length; operators take two
// vectors of one type, or a vector and a scalar.
#pragma once
#include "../../abi.h"
//
#include <source_location>
#include <type_traits>

using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;
using half = _Float16;

namespace metal {
namespace soft = honeycrisp::backend::metal::soft;

// The unsized integer names that MSL shares with C.
using ::size_t;
using ptrdiff_t = ::ptrdiff_t;

template <class D, class S>
SOFT_INLINE D as_type(const S& s) {
  static_assert(sizeof(D) == sizeof(S), "as_type: the sizes differ");
  D d;
  __builtin_memcpy(static_cast<void*>(&d), &s, sizeof d);
  return d;
}

/// Brain float: the upper half of a float. Arithmetic is float's, rounded to nearest even.
struct bfloat {
  ushort bits;
  bfloat() = default;
  SOFT_INLINE constexpr bfloat(float f) : bits(round(f)) {}
  template <class T>
    requires(std::is_arithmetic_v<T> && !std::is_same_v<T, float>)
  SOFT_INLINE constexpr explicit bfloat(T v) : bits(round(float(v))) {}
  SOFT_INLINE constexpr explicit bfloat(half v) : bits(round(float(v))) {}
  SOFT_INLINE constexpr operator float() const { return __builtin_bit_cast(float, uint(bits) << 16); }

 private:
  static SOFT_INLINE constexpr ushort round(float f) {
    const uint x = __builtin_bit_cast(uint, f);
    if ((x & 0x7fffffffu) > 0x7f800000u) return ushort(x >> 16 | 0x40u);
    return ushort((x + 0x7fffu + (x >> 16 & 1)) >> 16);
  }
};
#define SOFT_BFLOAT(op)                                                                       \
  SOFT_INLINE bfloat operator op(bfloat a, bfloat b) { return bfloat(float(a) op float(b)); } \
  SOFT_INLINE bfloat& operator op##=(bfloat & a, float b) { return a = bfloat(float(a) op float(b)); }
SOFT_BFLOAT(+);
SOFT_BFLOAT(-);
SOFT_BFLOAT(*);
SOFT_BFLOAT(/);
#undef SOFT_BFLOAT

template <class T>
concept floating = std::is_same_v<T, float> || std::is_same_v<T, half> || std::is_same_v<T, bfloat>;
template <class T>
concept scalar = (std::is_arithmetic_v<T> && !std::is_same_v<T, double>) || floating<T>;

template <class T, uint N>
struct vec;

/// Components I... of a vector of N, in place.
template <class T, uint N, uint... I>
struct swizzle {
  T d[N];
  using vector = vec<T, sizeof...(I)>;
  SOFT_INLINE operator vector() const { return vector(d[I]...); }
  SOFT_INLINE T operator[](uint i) const {
    constexpr uint at[] = {I...};
    return d[at[i]];
  }
  SOFT_INLINE swizzle& operator=(const vector& v) {
    uint j = 0;
    ((d[I] = v.d[j++]), ...);
    return *this;
  }
  SOFT_INLINE swizzle& operator=(const swizzle& o) { return *this = vector(o); }
};

template <class T, uint N>
struct packed_vec;

/// What a vector, a swizzle or a packed vector is made of.
template <class X>
struct vector_traits {
  static constexpr bool is = false;
};
template <class T, uint N>
struct vector_traits<vec<T, N>> {
  static constexpr bool is = true;
  static constexpr uint n = N;
  using element = T;
  using vector = vec<T, N>;
};
template <class T, uint N, uint... I>
struct vector_traits<swizzle<T, N, I...>> : vector_traits<vec<T, sizeof...(I)>> {};
template <class T, uint N>
struct vector_traits<packed_vec<T, N>> : vector_traits<vec<T, N>> {};
template <class X>
concept vectorlike = vector_traits<std::remove_cvref_t<X>>::is;
template <class X>
using vector_of = typename vector_traits<std::remove_cvref_t<X>>::vector;
template <class X>
using element_of = typename vector_traits<std::remove_cvref_t<X>>::element;
template <class A, class B>
concept same_vector = vectorlike<A> && vectorlike<B> && std::is_same_v<vector_of<A>, vector_of<B>>;

#include "swizzles.inl"

template <class T, uint N>
struct components;
template <class T>
struct alignas(2 * sizeof(T)) components<T, 2> {
  union {
    T d[2];
    struct {
      T x, y;
    };
    struct {
      T r, g;
    };
    SOFT_SWIZZLES_2(T)
  };
};
template <class T>
struct alignas(4 * sizeof(T)) components<T, 3> {
  union {
    T d[3];
    struct {
      T x, y, z;
    };
    struct {
      T r, g, b;
    };
    SOFT_SWIZZLES_3(T)
  };
};
template <class T>
struct alignas(4 * sizeof(T)) components<T, 4> {
  union {
    T d[4];
    struct {
      T x, y, z, w;
    };
    struct {
      T r, g, b, a;
    };
    SOFT_SWIZZLES_4(T)
  };
};

template <class T, uint N>
struct vec : components<T, N> {
  using components<T, N>::d;
  vec() = default;
  vec(const vec&) = default;
  SOFT_INLINE vec& operator=(const vec& o) {
    for (uint i = 0; i < N; ++i) d[i] = o.d[i];
    return *this;
  }
  template <scalar S>
  SOFT_INLINE constexpr vec(S s) {
    for (uint i = 0; i < N; ++i) d[i] = T(s);
  }
  template <class U>
    requires(!std::is_same_v<U, T>)
  SOFT_INLINE constexpr explicit vec(const vec<U, N>& o) {
#ifndef SOFT_CHECKED
    if constexpr (N == 4 && sizeof(T) == 4 && sizeof(U) == 4) {
      if (!__builtin_is_constant_evaluated()) {
        typedef T to __attribute__((vector_size(16)));
        typedef U from __attribute__((vector_size(16)));
        from f;
        __builtin_memcpy(&f, &o, sizeof f);
        const to t = __builtin_convertvector(f, to);
        __builtin_memcpy(static_cast<void*>(this), &t, sizeof t);
        return;
      }
    }
#endif
    for (uint i = 0; i < N; ++i) d[i] = T(o.d[i]);
  }
  template <class... A>
    requires(sizeof...(A) >= 2)
  SOFT_INLINE constexpr vec(const A&... parts) {
    static_assert((count<A>() + ...) == N, "vector constructor: wrong number of components");
    uint k = 0;
    (put(k, parts), ...);
  }
  SOFT_INLINE T& operator[](uint i) { return d[i]; }
  SOFT_INLINE const T& operator[](uint i) const { return d[i]; }

 private:
  template <class A>
  static constexpr uint count() {
    if constexpr (vectorlike<A>)
      return vector_traits<A>::n;
    else
      return 1;
  }
  template <class A>
  SOFT_INLINE constexpr void put(uint& k, const A& a) {
    if constexpr (vectorlike<A>)
      for (uint i = 0; i < vector_traits<A>::n; ++i) d[k++] = T(a[i]);
    else
      d[k++] = T(a);
  }
};

/// No padding, aligned as its element.
template <class T, uint N>
struct packed_vec {
  T d[N];
  packed_vec() = default;
  SOFT_INLINE constexpr packed_vec(const vec<T, N>& v) { *this = v; }
  template <class... A>
    requires(sizeof...(A) >= 2)
  SOFT_INLINE constexpr packed_vec(const A&... parts) : packed_vec(vec<T, N>(parts...)) {}
  SOFT_INLINE constexpr operator vec<T, N>() const {
    vec<T, N> r(T(0));
    for (uint i = 0; i < N; ++i) r.d[i] = d[i];
    return r;
  }
  SOFT_INLINE constexpr packed_vec& operator=(const vec<T, N>& v) {
    for (uint i = 0; i < N; ++i) d[i] = v.d[i];
    return *this;
  }
  SOFT_INLINE T& operator[](uint i) { return d[i]; }
  SOFT_INLINE const T& operator[](uint i) const { return d[i]; }
};

// Element by element. Compilers keep the loops scalar, so the fast build takes whole vectors where there are such: four
// (or two) elements of 4 bytes. The same operations on the same elements, hence the same bits. Checked modules keep to
// the loops: an access is to be seen as it was written.
#ifdef SOFT_CHECKED
template <class A>
inline constexpr bool whole = false;
#else
template <class A>
inline constexpr bool whole = sizeof(element_of<A>) == 4 && (vector_traits<A>::n == 4 || vector_traits<A>::n == 2);
#endif
template <class A>
struct whole_of {
  typedef element_of<A> type __attribute__((vector_size(sizeof(element_of<A>) * vector_traits<A>::n)));
};
template <class A>
SOFT_INLINE typename whole_of<A>::type to_whole(const A& a) {
  typename whole_of<A>::type w;
  const vector_of<A> v(a);
  __builtin_memcpy(&w, &v, sizeof w);
  return w;
}
template <class V>
SOFT_INLINE V from_whole(const typename whole_of<V>::type& w) {
  V v;
  __builtin_memcpy(static_cast<void*>(&v), &w, sizeof w);
  return v;
}
#define SOFT_BINARY(op)                                                                    \
  template <class A, class B>                                                              \
    requires same_vector<A, B>                                                             \
  SOFT_INLINE auto operator op(const A& a, const B& b) {                                   \
    if constexpr (whole<A>) {                                                              \
      return from_whole<vector_of<A>>(to_whole(a) op to_whole(b));                         \
    } else {                                                                               \
      vector_of<A> r;                                                                      \
      for (uint i = 0; i < vector_traits<A>::n; ++i) r.d[i] = element_of<A>(a[i] op b[i]); \
      return r;                                                                            \
    }                                                                                      \
  }                                                                                        \
  template <vectorlike A, scalar B>                                                        \
  SOFT_INLINE auto operator op(const A& a, B b) {                                          \
    return vector_of<A>(a) op vector_of<A>(b);                                             \
  }                                                                                        \
  template <scalar A, vectorlike B>                                                        \
  SOFT_INLINE auto operator op(A a, const B& b) {                                          \
    return vector_of<B>(a) op vector_of<B>(b);                                             \
  }                                                                                        \
  template <vectorlike A, class B>                                                         \
    requires(same_vector<A, B> || scalar<B>)                                               \
  SOFT_INLINE A& operator op##=(A & a, const B & b) {                                      \
    a = a op b;                                                                            \
    return a;                                                                              \
  }
SOFT_BINARY(+)
SOFT_BINARY(-)
SOFT_BINARY(*)
SOFT_BINARY(/)
SOFT_BINARY(%)
SOFT_BINARY(&)
SOFT_BINARY(|)
SOFT_BINARY(^)
SOFT_BINARY(<<)
SOFT_BINARY(>>)
#undef SOFT_BINARY
#define SOFT_COMPARE(op)                                                  \
  template <class A, class B>                                             \
    requires same_vector<A, B>                                            \
  SOFT_INLINE auto operator op(const A& a, const B& b) {                  \
    vec<bool, vector_traits<A>::n> r;                                     \
    for (uint i = 0; i < vector_traits<A>::n; ++i) r.d[i] = a[i] op b[i]; \
    return r;                                                             \
  }                                                                       \
  template <vectorlike A, scalar B>                                       \
  SOFT_INLINE auto operator op(const A& a, B b) {                         \
    return a op vector_of<A>(b);                                          \
  }                                                                       \
  template <scalar A, vectorlike B>                                       \
  SOFT_INLINE auto operator op(A a, const B& b) {                         \
    return vector_of<B>(a) op b;                                          \
  }
SOFT_COMPARE(<)
SOFT_COMPARE(>)
SOFT_COMPARE(<=)
SOFT_COMPARE(>=)
SOFT_COMPARE(==)
SOFT_COMPARE(!=)
SOFT_COMPARE(&&)
SOFT_COMPARE(||)
#undef SOFT_COMPARE
#define SOFT_UNARY(op, result)                                       \
  template <vectorlike A>                                            \
  SOFT_INLINE auto operator op(const A& a) {                         \
    result r;                                                        \
    for (uint i = 0; i < vector_traits<A>::n; ++i) r.d[i] = op a[i]; \
    return r;                                                        \
  }
SOFT_UNARY(-, vector_of<A>)
SOFT_UNARY(+, vector_of<A>)
SOFT_UNARY(~, vector_of<A>)
#define SOFT_BOOLS vec<bool, vector_traits<A>::n>
SOFT_UNARY(!, SOFT_BOOLS)
#undef SOFT_BOOLS
#undef SOFT_UNARY
template <vectorlike A>
SOFT_INLINE A& operator++(A& a) {
  return a += element_of<A>(1);
}

#define SOFT_VECTORS(t)                   \
  using t##2 = vec<t, 2>;                 \
  using t##3 = vec<t, 3>;                 \
  using t##4 = vec<t, 4>;                 \
  using packed_##t##2 = packed_vec<t, 2>; \
  using packed_##t##3 = packed_vec<t, 3>; \
  using packed_##t##4 = packed_vec<t, 4>;
SOFT_VECTORS(bool)
SOFT_VECTORS(char)
SOFT_VECTORS(uchar)
SOFT_VECTORS(short)
SOFT_VECTORS(ushort)
SOFT_VECTORS(int)
SOFT_VECTORS(uint)
SOFT_VECTORS(long)
SOFT_VECTORS(ulong)
SOFT_VECTORS(half)
SOFT_VECTORS(bfloat)
SOFT_VECTORS(float)
#undef SOFT_VECTORS

using std::conditional_t;
using std::enable_if_t;
using std::is_floating_point_v;
using std::is_integral_v;
using std::is_same;
using std::is_same_v;
}  // namespace metal
