// Compiled into every kernel module: the table by which the runtime finds its units (SOFT_UNITS: SOFT_UNIT(stem) of
// each file), and, in a checked one, what the compiler's instrumentation calls. -fsanitize=thread calls a function at
// each access to memory and -fsanitize=bounds,alignment at a fault; none of their runtimes is linked. Not instrumented
// itself.
#include "backend/metal/soft/abi.h"

namespace soft = honeycrisp::backend::metal::soft;

extern "C" {
#define SOFT_UNIT(stem) extern const soft::Unit soft_unit_##stem;
SOFT_UNITS
#undef SOFT_UNIT
}

namespace {
bool armed = false;
#define SOFT_UNIT(stem) &soft_unit_##stem,
const soft::Unit* const units[] = {SOFT_UNITS};
#undef SOFT_UNIT
#ifdef SOFT_CHECKED
constexpr bool kChecked = true;
#else
constexpr bool kChecked = false;
#endif
const soft::Module module{soft::kAbiVersion, kChecked, units, sizeof units / sizeof *units, &armed};
}  // namespace

extern "C" __attribute__((visibility("default"))) const soft::Module* honeycrisp_metal_module() { return &module; }

#ifdef SOFT_CHECKED
namespace {

using soft::AccessKind;

SOFT_INLINE void access(const void* p, size_t bytes, AccessKind kind, const void* pc) {
  if (!armed || bytes == 0) return;
  soft::Group* g = soft::current_group();
  // the region of stacks: memory of the thread itself
  if (reinterpret_cast<uintptr_t>(p) - reinterpret_cast<uintptr_t>(g) < soft::kRegionBytes) return;
  g->runtime.access(g, p, bytes, kind, pc);
}

struct Location {  // the layouts that GCC and clang share for the undefined behaviour sanitizer
  const char* file;
  uint32_t line, column;
};
struct OutOfBounds {
  Location at;
};
struct TypeMismatch {
  Location at;
  const void* type;
  unsigned char log_alignment, kind;
};

}  // namespace

#define PC __builtin_return_address(0)
#define HOOK(n)                                                                     \
  void __tsan_read##n(void* p) { access(p, n, AccessKind::kRead, PC); }             \
  void __tsan_write##n(void* p) { access(p, n, AccessKind::kWrite, PC); }           \
  void __tsan_unaligned_read##n(void* p) { access(p, n, AccessKind::kRead, PC); }   \
  void __tsan_unaligned_write##n(void* p) { access(p, n, AccessKind::kWrite, PC); } \
  void __tsan_volatile_read##n(void* p) { access(p, n, AccessKind::kRead, PC); }    \
  void __tsan_volatile_write##n(void* p) { access(p, n, AccessKind::kWrite, PC); }  \
  void __tsan_read_write##n(void* p) {                                              \
    access(p, n, AccessKind::kRead, PC);                                            \
    access(p, n, AccessKind::kWrite, PC);                                           \
  }                                                                                 \
  void __tsan_unaligned_read_write##n(void* p) {                                    \
    access(p, n, AccessKind::kRead, PC);                                            \
    access(p, n, AccessKind::kWrite, PC);                                           \
  }

extern "C" {
HOOK(1)
HOOK(2)
HOOK(4)
HOOK(8)
HOOK(16)
void __tsan_read_range(void* p, size_t n) { access(p, n, AccessKind::kRead, PC); }
void __tsan_write_range(void* p, size_t n) { access(p, n, AccessKind::kWrite, PC); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void* __tsan_memcpy(void* to, const void* from, size_t n) {
  access(from, n, AccessKind::kRead, PC);
  access(to, n, AccessKind::kWrite, PC);
  return __builtin_memcpy(to, from, n);
}
void* __tsan_memmove(void* to, const void* from, size_t n) {
  access(from, n, AccessKind::kRead, PC);
  access(to, n, AccessKind::kWrite, PC);
  return __builtin_memmove(to, from, n);
}
void* __tsan_memset(void* to, int value, size_t n) {
  access(to, n, AccessKind::kWrite, PC);
  return __builtin_memset(to, value, n);
}
void __ubsan_handle_out_of_bounds(OutOfBounds* d, uintptr_t index) {
  soft::Group* g = soft::current_group();
  g->runtime.bad_index(g, d->at.file, d->at.line, index);
}
void __ubsan_handle_type_mismatch_v1(TypeMismatch* d, uintptr_t pointer) {
  soft::Group* g = soft::current_group();
  g->runtime.misaligned(g, d->at.file, d->at.line, reinterpret_cast<const void*>(pointer), 1u << d->log_alignment);
}
}
#endif
