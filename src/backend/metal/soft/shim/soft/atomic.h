// Atomics. Threadgroups run on several host threads, so these are real; memory_order_relaxed is the only order MSL has
// for them. A checked module is told of each access first.
#pragma once
#include "types.h"

namespace metal {

enum memory_order { memory_order_relaxed = 0 };

template <class T>
struct _atomic {
  T soft_value;
};
template <class T>
using atomic = _atomic<T>;
using atomic_int = _atomic<int>;
using atomic_uint = _atomic<uint>;
using atomic_bool = _atomic<bool>;
using atomic_ulong = _atomic<ulong>;
using atomic_float = _atomic<float>;

// Out of line and not instrumented: the compiler would turn the builtins into calls that only its own runtime answers.
#ifdef __clang__
#define SOFT_ATOMIC __attribute__((disable_sanitizer_instrumentation, noinline)) inline
#else
#define SOFT_ATOMIC __attribute__((no_sanitize("thread"), noinline)) inline
#endif
#ifdef SOFT_CHECKED
#define SOFT_TELL(p, kind)                                                                                    \
  soft::current_group()->runtime.access(soft::current_group(),                                                \
                                        const_cast<void*>(static_cast<const volatile void*>(p)), sizeof *(p), \
                                        soft::AccessKind::kind, __builtin_return_address(0))
#else
#define SOFT_TELL(p, kind) ((void)0)
#endif

template <class T>
SOFT_ATOMIC T atomic_load_explicit(const volatile _atomic<T>* p, memory_order) {
  SOFT_TELL(&p->soft_value, kAtomic);
  T v;
  __atomic_load(const_cast<T*>(&p->soft_value), &v, __ATOMIC_RELAXED);
  return v;
}
template <class T>
SOFT_ATOMIC void atomic_store_explicit(volatile _atomic<T>* p, std::type_identity_t<T> v, memory_order) {
  SOFT_TELL(&p->soft_value, kAtomicStore);
  __atomic_store(const_cast<T*>(&p->soft_value), &v, __ATOMIC_RELAXED);
}
template <class T>
SOFT_ATOMIC T atomic_exchange_explicit(volatile _atomic<T>* p, std::type_identity_t<T> v, memory_order) {
  SOFT_TELL(&p->soft_value, kAtomic);
  T old;
  __atomic_exchange(const_cast<T*>(&p->soft_value), &v, &old, __ATOMIC_RELAXED);
  return old;
}
template <class T>
SOFT_ATOMIC bool atomic_compare_exchange_weak_explicit(volatile _atomic<T>* p, T* expected, std::type_identity_t<T> v,
                                                       memory_order, memory_order) {
  SOFT_TELL(&p->soft_value, kAtomic);
  return __atomic_compare_exchange(const_cast<T*>(&p->soft_value), expected, &v, false, __ATOMIC_RELAXED,
                                   __ATOMIC_RELAXED);
}
#define SOFT_FETCH(name, expr)                                                                                    \
  template <class T>                                                                                              \
  SOFT_ATOMIC T atomic_fetch_##name##_explicit(volatile _atomic<T>* p, std::type_identity_t<T> v, memory_order) { \
    SOFT_TELL(&p->soft_value, kAtomic);                                                                           \
    T* at = const_cast<T*>(&p->soft_value);                                                                       \
    T old, next;                                                                                                  \
    __atomic_load(at, &old, __ATOMIC_RELAXED);                                                                    \
    do {                                                                                                          \
      next = T(expr);                                                                                             \
    } while (!__atomic_compare_exchange(at, &old, &next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));             \
    return old;                                                                                                   \
  }
SOFT_FETCH(add, old + v)
SOFT_FETCH(sub, old - v)
SOFT_FETCH(and, old& v)
SOFT_FETCH(or, old | v)
SOFT_FETCH(xor, old ^ v)
SOFT_FETCH(min, v < old ? v : old)
SOFT_FETCH(max, old < v ? v : old)
#undef SOFT_FETCH
#undef SOFT_ATOMIC
}  // namespace metal
