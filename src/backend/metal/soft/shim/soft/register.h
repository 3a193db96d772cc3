// How a generated unit describes its kernels: the scanner emits each parameter's attribute and name, and the types come
// from the kernel function itself.
#pragma once
#include "types.h"

namespace honeycrisp::backend::metal::soft {

struct Bound {  // a parameter as the scanner saw it
  Attribute attribute;
  uint8_t index;
};

template <class T>
struct element {
  using type = std::remove_pointer_t<std::remove_reference_t<T>>;
};

template <class T, Bound A>
SOFT_INLINE decltype(auto) fetch(Group& g) {
  using R = std::remove_cvref_t<T>;
  const Invocation& call = g.call;
  if constexpr (A.attribute == Attribute::kBuffer || A.attribute == Attribute::kConstantBuffer) {
    if constexpr (std::is_pointer_v<R>)
      return static_cast<R>(call.buffers[A.index]);
    else
      return static_cast<T>(*static_cast<std::remove_reference_t<T>*>(call.buffers[A.index]));
  } else if constexpr (A.attribute == Attribute::kThreadgroup) {
    void* p = g.threadgroup_memory + call.threadgroup_offsets[A.index];
    if constexpr (std::is_pointer_v<R>)
      return static_cast<R>(p);
    else
      return static_cast<T>(*static_cast<std::remove_reference_t<T>*>(p));
  } else {
    const uint32_t thread = g.simd->index * kLanes + g.simd->lane;
    const uint32_t* size = g.size;
    uint32_t v[3] = {0, 0, 0};
    const auto set = [&](const uint32_t* p) {
      v[0] = p[0];
      v[1] = p[1];
      v[2] = p[2];
    };
    const auto set_position = [&] {
      if (size[1] == 1 && size[2] == 1) {
        v[0] = thread;
      } else {
        v[0] = thread % size[0];
        v[1] = thread / size[0] % size[1];
        v[2] = thread / size[0] / size[1];
      }
    };
    switch (A.attribute) {
      case Attribute::kThreadPositionInGrid:
        set_position();
        for (int i = 0; i < 3; ++i) v[i] += g.position[i] * call.threads_per_threadgroup[i];
        break;
      case Attribute::kThreadPositionInThreadgroup: set_position(); break;
      case Attribute::kThreadgroupPositionInGrid: set(g.position); break;
      case Attribute::kThreadsPerThreadgroup: set(size); break;
      case Attribute::kThreadgroupsPerGrid: set(call.threadgroups_per_grid); break;
      case Attribute::kThreadsPerGrid: set(call.threads_per_grid); break;
      case Attribute::kThreadIndexInThreadgroup: v[0] = thread; break;
      case Attribute::kThreadIndexInSimdgroup: v[0] = g.simd->lane; break;
      case Attribute::kSimdgroupIndexInThreadgroup: v[0] = g.simd->index; break;
      case Attribute::kSimdgroupsPerThreadgroup: v[0] = g.simdgroups; break;
      case Attribute::kThreadsPerSimdgroup: v[0] = kLanes; break;
      default: break;
    }
    if constexpr (std::is_integral_v<R>)
      return R(v[0]);
    else if constexpr (::metal::vector_traits<R>::n == 2)
      return R(v[0], v[1]);
    else
      return R(v[0], v[1], v[2]);
  }
}

template <auto F, Bound... A>
struct Thunk;
template <class... P, void (*F)(P...), Bound... A>
struct Thunk<F, A...> {
  static_assert(sizeof...(P) == sizeof...(A));
  __attribute__((no_sanitize("thread"))) static void call(Group& g) { F(fetch<P, A>(g)...); }
  template <class T>
  static constexpr bool writable = !std::is_const_v<typename element<T>::type>;
  template <class T>
  static constexpr uint32_t bytes() {
    using E = typename element<T>::type;
    if constexpr (std::is_void_v<E>)
      return 1;
    else
      return uint32_t(sizeof(E));
  }
  /// The parameters, given their names and switches.
  template <size_t N>
  struct Table {
    Parameter all[N];
  };
  template <class... Names>
  static constexpr Table<sizeof...(P)> table(const Names&... extra) {
    return {{Parameter{A.attribute, A.index, A.attribute == Attribute::kBuffer && writable<P>, std::is_reference_v<P>,
                       bytes<P>(), extra.name, extra.enabled}...}};
  }
};
struct Extra {
  const char* name;
  const bool* (*enabled)();
};

/// A `threadgroup` variable of a kernel: the same memory for all threads of a threadgroup.
template <class T>
SOFT_INLINE T& threadgroup_variable(uint32_t slot) {
  Group* g = current_group();
  const uint32_t offset = g->variable_offsets[slot];
  if (offset != 0) [[likely]]
    return *reinterpret_cast<T*>(g->threadgroup_memory + offset - 1);
  return *static_cast<T*>(g->runtime.threadgroup_variable(g, slot, sizeof(T)));
}
}  // namespace honeycrisp::backend::metal::soft
