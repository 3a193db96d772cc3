#include "support/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_THREAD__)
#define HC_THREAD_SANITIZER
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HC_THREAD_SANITIZER
#endif
#endif

namespace {
std::atomic<size_t> g_bytes{0};
}

namespace honeycrisp::test_support {
size_t allocated_bytes() { return g_bytes; }
}  // namespace honeycrisp::test_support

#ifdef HC_THREAD_SANITIZER  // whose operator new cannot be replaced
#include <sanitizer/allocator_interface.h>

[[maybe_unused]] static const int g_hooks = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, size_t size) { g_bytes += size; }, [](const volatile void*) {});
#else
void* operator new(size_t size) {
  g_bytes += size;
  if (void* p = std::malloc(size == 0 ? 1 : size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
#endif
