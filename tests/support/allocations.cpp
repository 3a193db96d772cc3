#include "support/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<size_t> g_bytes{0};
}

namespace honeycrisp::test_support {
size_t allocated_bytes() { return g_bytes; }
}  // namespace honeycrisp::test_support

void* operator new(size_t size) {
  g_bytes += size;
  if (void* p = std::malloc(size == 0 ? 1 : size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
