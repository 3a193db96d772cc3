// Barriers and simd_* functions. Lanes deposit their values, meet (rendezvous in abi.h), and take what they came for.
// Reductions combine by halves (16 and 16, 8 and 8 ...) when all lanes are active, in ascending order otherwise.
// A lane that did not take part is never read: its value would be undefined on a GPU.
#pragma once
#include "math.h"

namespace metal {

enum class mem_flags : uint {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2,
  mem_texture = 4,
  mem_threadgroup_imageblock = 8
};
SOFT_INLINE constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(uint(a) | uint(b)); }

namespace soft_detail {
using honeycrisp::backend::metal::soft::current_group;
using honeycrisp::backend::metal::soft::Group;
using honeycrisp::backend::metal::soft::kExchangeBytes;
using honeycrisp::backend::metal::soft::kLanes;
using honeycrisp::backend::metal::soft::rendezvous;
using honeycrisp::backend::metal::soft::Simdgroup;

struct site {  // the place of a call, by the identity of its source_location
  const void* id;
  SOFT_INLINE site(std::source_location l = std::source_location::current()) : id(__builtin_bit_cast(const void*, l)) {}
};

template <class T>
struct deposit {  // a lane's view of one rendezvous
  Simdgroup* s;
  uint lane, half;
  T* values;
  SOFT_INLINE bool has(uint from) const { return from < kLanes && (s->took_part[half] >> from & 1); }
};

/// Deposits v, meets the others; `complete(values, active)` runs once, by the last lane.
template <class T, class F>
SOFT_INLINE deposit<T> meet(T v, const void* at, F complete) {
  static_assert(sizeof(T) <= kExchangeBytes);
  Group* g = current_group();
  Simdgroup* s = g->simd;
  const uint half = s->completed & 1, lane = s->lane;
  T* values = reinterpret_cast<T*>(s->exchange[half]);
  values[lane] = v;
  rendezvous(g, s, at, [&] { complete(values, s->active, reinterpret_cast<T*>(s->result[half])); });
  return {s, lane, half, values};
}

template <class T, class F>
SOFT_INLINE T reduce(T v, const void* at, F f) {
  const deposit<T> d = meet(v, at, [&](T* values, uint active, T* result) {
    if (active == ~0u) {
      T t[16];
      for (uint i = 0; i < 16; ++i) t[i] = f(values[i], values[i + 16]);
      for (uint i = 0; i < 8; ++i) t[i] = f(t[i], t[i + 8]);
      for (uint i = 0; i < 4; ++i) t[i] = f(t[i], t[i + 4]);
      for (uint i = 0; i < 2; ++i) t[i] = f(t[i], t[i + 2]);
      *result = f(t[0], t[1]);
    } else {
      T sum = values[__builtin_ctz(active)];
      for (uint rest = active & (active - 1); rest != 0; rest &= rest - 1) sum = f(sum, values[__builtin_ctz(rest)]);
      *result = sum;
    }
  });
  return *reinterpret_cast<T*>(d.s->result[d.half]);
}

/// Each lane gets f of the lanes before it, in ascending order, its own included or not (then `first` for the first).
template <bool kInclusive, class T, class F>
SOFT_INLINE T prefix(T v, T first, const void* at, F f) {
  const deposit<T> d = meet(v, at, [&](T* values, uint active, T*) {
    T sum = first;
    for (uint rest = active; rest != 0; rest &= rest - 1) {
      T& mine = values[__builtin_ctz(rest)];
      const T with = f(sum, mine);
      mine = kInclusive ? with : sum;
      sum = with;
    }
  });
  return d.values[d.lane];
}

template <class T, class From>
SOFT_INLINE T take(T v, const void* at, From from_of_lane) {
  const deposit<T> d = meet(v, at, [](T*, uint, T*) {});
  const uint from = from_of_lane(d.lane);
  if (!d.has(from)) [[unlikely]] {
    current_group()->runtime.inactive_lane(current_group(), from, at);
    return v;
  }
  return d.values[from];
}
}  // namespace soft_detail

SOFT_INLINE void threadgroup_barrier(mem_flags flags, soft_detail::site at = {}) {
  using namespace soft_detail;
  Group* g = current_group();
  rendezvous(g, g->simd, at.id, [&] { g->runtime.barrier(g, uint(flags), at.id); });
}
SOFT_INLINE void simdgroup_barrier(mem_flags flags, soft_detail::site at = {}) {
  using namespace soft_detail;
  Group* g = current_group();
  Simdgroup* s = g->simd;
  rendezvous(g, s, at.id, [&] {
    s->epoch[0] += uint(flags) & 1;
    s->epoch[1] += uint(flags) >> 1 & 1;
  });
}

#define SOFT_REDUCE(name, condition, expr)                                          \
  template <class T>                                                                \
    requires(condition)                                                             \
  SOFT_INLINE T name(T v, soft_detail::site at = {}) {                              \
    return soft_detail::reduce(v, at.id, [](T a, T b) -> T { return T(expr); });    \
  }                                                                                 \
  template <vectorlike V>                                                           \
  SOFT_INLINE vector_of<V> name(const V& v, soft_detail::site at = {}) {            \
    using T = vector_of<V>;                                                         \
    return soft_detail::reduce(T(v), at.id, [](T a, T b) -> T { return T(expr); }); \
  }
SOFT_REDUCE(simd_sum, scalar<T>, a + b)
SOFT_REDUCE(simd_product, scalar<T>, a* b)
SOFT_REDUCE(simd_max, scalar<T>, metal::max(a, b))
SOFT_REDUCE(simd_min, scalar<T>, metal::min(a, b))
SOFT_REDUCE(simd_and, std::is_integral_v<T>, a& b)
SOFT_REDUCE(simd_or, std::is_integral_v<T>, a | b)
SOFT_REDUCE(simd_xor, std::is_integral_v<T>, a ^ b)
#undef SOFT_REDUCE

#define SOFT_PREFIX(name, inclusive, first, expr)                                                     \
  template <scalar T>                                                                                 \
  SOFT_INLINE T name(T v, soft_detail::site at = {}) {                                                \
    return soft_detail::prefix<inclusive>(v, T(first), at.id, [](T a, T b) -> T { return T(expr); }); \
  }
SOFT_PREFIX(simd_prefix_inclusive_sum, true, 0, a + b)
SOFT_PREFIX(simd_prefix_exclusive_sum, false, 0, a + b)
SOFT_PREFIX(simd_prefix_inclusive_product, true, 1, a* b)
SOFT_PREFIX(simd_prefix_exclusive_product, false, 1, a* b)
#undef SOFT_PREFIX

#define SOFT_TAKE(name, Index, from)                                                   \
  template <class T>                                                                   \
  SOFT_INLINE T name(T v, Index i, soft_detail::site at = {}) {                        \
    return soft_detail::take(v, at.id, [=](uint lane) -> uint { return uint(from); }); \
  }
SOFT_TAKE(simd_shuffle, ushort, i)
SOFT_TAKE(simd_broadcast, ushort, i)
SOFT_TAKE(simd_shuffle_xor, ushort, lane ^ i)
SOFT_TAKE(simd_shuffle_rotate_down, ushort, (lane + i) % 32)
SOFT_TAKE(simd_shuffle_rotate_up, ushort, (lane + 32 - i % 32) % 32)
// Past the end a lane keeps its own value: the specification leaves it undefined for the first or last lanes.
SOFT_TAKE(simd_shuffle_down, ushort, lane + i > 31 ? lane : lane + i)
SOFT_TAKE(simd_shuffle_up, ushort, lane < i ? lane : lane - i)
#undef SOFT_TAKE
template <class T>
SOFT_INLINE T simd_broadcast_first(T v, soft_detail::site at = {}) {
  const auto d = soft_detail::meet(v, at.id, [](T*, uint, T*) {});
  return d.values[__builtin_ctz(d.s->took_part[d.half])];
}

/// The bits of simd_ballot.
struct simd_vote {
  using vote_t = ulong;
  vote_t bits;
  SOFT_INLINE explicit constexpr simd_vote(vote_t v = 0) : bits(v) {}
  SOFT_INLINE explicit constexpr operator vote_t() const { return bits; }
  SOFT_INLINE bool all() const { return bits == 0xffffffffull; }
  SOFT_INLINE bool any() const { return bits != 0; }
};
SOFT_INLINE simd_vote simd_ballot(bool v, soft_detail::site at = {}) {
  using namespace soft_detail;
  const uint lane = current_group()->simd->lane;
  return simd_vote(reduce(v ? 1u << lane : 0u, at.id, [](uint a, uint b) { return a | b; }));
}
SOFT_INLINE simd_vote simd_active_threads_mask(soft_detail::site at = {}) {
  const auto d = soft_detail::meet(0u, at.id, [](uint*, uint, uint*) {});
  return simd_vote(d.s->took_part[d.half]);
}
SOFT_INLINE bool simd_any(bool v, soft_detail::site at = {}) {
  return soft_detail::reduce(uint(v), at.id, [](uint a, uint b) { return a | b; }) != 0;
}
SOFT_INLINE bool simd_all(bool v, soft_detail::site at = {}) {
  return soft_detail::reduce(uint(v), at.id, [](uint a, uint b) { return a & b; }) != 0;
}
SOFT_INLINE bool simd_is_first(soft_detail::site at = {}) {
  const auto d = soft_detail::meet(0u, at.id, [](uint*, uint, uint*) {});
  return d.lane == uint(__builtin_ctz(d.s->took_part[d.half]));
}
}  // namespace metal
