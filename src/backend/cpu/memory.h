// Aligned memory that is asked for once and owned by one. Null where there is none: callers say what for.
#pragma once

#include "base/checked.h"

#include <cstddef>
#include <cstdlib>
#include <memory>
#ifdef __linux__
#include <sys/mman.h>
#endif

namespace honeycrisp::backend::cpu {

struct FreeMemory {
  void operator()(void* p) const { std::free(p); }
};
template <class T>
using Memory = std::unique_ptr<T, FreeMemory>;

inline constexpr size_t kAlignment = 64;
inline constexpr size_t kHugePage = size_t{2} << 20;

/// Bytes aligned to a cache line, not touched: what is never written costs no pages.
template <class T>
Memory<T> allocate(size_t bytes) {
  return Memory<T>(static_cast<T*>(std::aligned_alloc(kAlignment, round_up(bytes == 0 ? 1 : bytes, kAlignment))));
}

/// For what is read from end to end: in huge pages where the system has them (small ones read 15 % slower), but only
/// where they are filled.
template <class T>
Memory<T> allocate_to_read(size_t bytes) {
  if (bytes < kHugePage) return allocate<T>(bytes);
  Memory<T> memory(static_cast<T*>(std::aligned_alloc(kHugePage, round_up(bytes, kHugePage))));
#ifdef __linux__
  if (memory) (void)madvise(memory.get(), round_up(bytes, kHugePage), MADV_HUGEPAGE);  // a wish
#endif
  return memory;
}

}  // namespace honeycrisp::backend::cpu
