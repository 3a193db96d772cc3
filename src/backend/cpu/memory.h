// Aligned memory that is asked for once and owned by one. Null where there is none: callers say what for.
#pragma once

#include "base/checked.h"

#include <cstddef>
#include <cstdint>
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

struct FreeZeros {
  size_t bytes = 0;
  void operator()(void* p) const {
#ifdef __linux__
    munmap(p, bytes);
#else
    std::free(p);
#endif
  }
};
template <class T>
using Zeros = std::unique_ptr<T, FreeZeros>;

/// Zeros for what is read from end to end and perhaps never filled: what is not touched costs no pages, huge or not.
template <class T>
Zeros<T> allocate_zeros(size_t bytes) {
#ifdef __linux__
  if (bytes > SIZE_MAX / 2) return nullptr;
  bytes = round_up(bytes, kHugePage);
  const size_t mapped = bytes + kHugePage;  // and what is too much before and after the aligned part goes back
  void* const all = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  std::byte* const begin = static_cast<std::byte*>(all);
  std::byte* const aligned = begin + (kHugePage - reinterpret_cast<uintptr_t>(all) % kHugePage) % kHugePage;
  if (aligned != begin) munmap(begin, size_t(aligned - begin));
  if (aligned + bytes != begin + mapped) munmap(aligned + bytes, size_t(begin + mapped - (aligned + bytes)));
  (void)madvise(aligned, bytes, MADV_HUGEPAGE);  // a wish
  return Zeros<T>(reinterpret_cast<T*>(aligned), FreeZeros{bytes});
#else
  return Zeros<T>(static_cast<T*>(std::calloc(bytes, 1)), FreeZeros{bytes});
#endif
}

}  // namespace honeycrisp::backend::cpu
