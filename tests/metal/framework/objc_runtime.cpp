// An Objective-C runtime for Apple's non-fragile ABI on x86-64 ELF, as clang -fobjc-runtime=macosx-11.0 emits it: as
// much of it as device.mm and the look-alike need. Classes, messages, reference counts, autorelease pools, constant
// strings; blocks come from libBlocksRuntime. Not: categories, weak references, exceptions, protocols at run time,
// forwarding. For tests on Linux, never shipped.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

// The layouts that the compiler emits.
struct Method {
  const char* name;
  const char* types;
  void* implementation;
};
struct MethodList {
  uint32_t entry_bytes, count;
  Method methods[1];
};
struct Description {
  uint32_t flags, instance_start, instance_bytes, reserved;
  const uint8_t* layout;
  const char* name;
  MethodList* methods;
};
constexpr uint32_t kMeta = 1;
using Table = std::unordered_map<const char*, void*>;
struct Class {
  Class* isa;
  Class* super;
  Table* table;  // ours; the compiler puts _objc_empty_cache here
  void* vtable;
  Description* description;
};
struct Object {
  Class* isa;
};
using Id = Object*;
using Selector = const char*;  // one pointer for each name

std::mutex mutex;
std::atomic<long> live;
// Never destroyed: objects may outlive static destruction.
std::unordered_map<std::string, Selector>& selectors() {
  static auto* all = new std::unordered_map<std::string, Selector>;
  return *all;
}

Selector selector(const char* name) {
  std::lock_guard lock(mutex);
  const auto [at, added] = selectors().try_emplace(name);
  if (added) at->second = at->first.c_str();
  return at->second;
}

void fill(Class* c) {
  c->table = new Table;
  if (const MethodList* list = c->description->methods)
    for (uint32_t i = 0; i < list->count; ++i) {
      const auto* m =
          reinterpret_cast<const Method*>(reinterpret_cast<const char*>(list->methods) + i * list->entry_bytes);
      (*c->table)[selector(m->name)] = m->implementation;
    }
}

void* find(const Class* c, Selector s) {
  for (; c; c = c->super)
    if (const auto at = c->table->find(s); at != c->table->end()) return at->second;
  return nullptr;
}

void* find_or_end(const Class* c, Selector s) {
  if (void* f = find(c, s)) return f;
  std::fprintf(stderr, "objc: %s does not respond to %s\n", c->description->name, s);
  std::abort();
}

}  // namespace

extern "C" {

#define API __attribute__((visibility("default")))
API char _objc_empty_cache[16] = {};
API char _objc_empty_vtable[16] = {};
API Class __CFConstantStringClassReference = {};
extern Class* __start_objc_classlist[] __attribute__((weak));
extern Class* __stop_objc_classlist[] __attribute__((weak));
extern Selector __start_objc_selrefs[] __attribute__((weak));
extern Selector __stop_objc_selrefs[] __attribute__((weak));
extern void* _NSConcreteStackBlock[];
extern void* _NSConcreteMallocBlock[];
extern void* _NSConcreteGlobalBlock[];
void* _Block_copy(const void*);
void _Block_release(const void*);

__attribute__((constructor(101))) static void load() {
  for (Selector* s = __start_objc_selrefs; s < __stop_objc_selrefs; ++s) *s = selector(*s);
  for (Class** c = __start_objc_classlist; c < __stop_objc_classlist; ++c) {
    fill(*c);
    fill((*c)->isa);
    if (std::strcmp((*c)->description->name, "NSConstantString") == 0) __CFConstantStringClassReference = **c;
  }
}

API void* hc_objc_lookup(Id self, Selector s) { return find_or_end(self->isa, s); }
API void* hc_objc_lookup_super(void** super, Selector s) {
  return find_or_end(static_cast<Class*>(super[1])->super, s);
}

// A message keeps every argument register for the method it jumps to; one to nil gives zero.
asm(R"(
.text
.macro HC_SAVE
  pushq %rbp
  movq %rsp, %rbp
  subq $192, %rsp
  movq %rdi, -8(%rbp)
  movq %rsi, -16(%rbp)
  movq %rdx, -24(%rbp)
  movq %rcx, -32(%rbp)
  movq %r8, -40(%rbp)
  movq %r9, -48(%rbp)
  movq %rax, -56(%rbp)
  movaps %xmm0, -192(%rbp)
  movaps %xmm1, -176(%rbp)
  movaps %xmm2, -160(%rbp)
  movaps %xmm3, -144(%rbp)
  movaps %xmm4, -128(%rbp)
  movaps %xmm5, -112(%rbp)
  movaps %xmm6, -96(%rbp)
  movaps %xmm7, -80(%rbp)
.endm
.macro HC_RESTORE
  movq %rax, %r11
  movq -8(%rbp), %rdi
  movq -16(%rbp), %rsi
  movq -24(%rbp), %rdx
  movq -32(%rbp), %rcx
  movq -40(%rbp), %r8
  movq -48(%rbp), %r9
  movq -56(%rbp), %rax
  movaps -192(%rbp), %xmm0
  movaps -176(%rbp), %xmm1
  movaps -160(%rbp), %xmm2
  movaps -144(%rbp), %xmm3
  movaps -128(%rbp), %xmm4
  movaps -112(%rbp), %xmm5
  movaps -96(%rbp), %xmm6
  movaps -80(%rbp), %xmm7
  leave
.endm
.globl objc_msgSend, objc_msgSendSuper2
objc_msgSend:
  testq %rdi, %rdi
  jz 1f
  HC_SAVE
  call hc_objc_lookup@PLT
  HC_RESTORE
  jmp *%r11
1:
  xorl %eax, %eax
  xorl %edx, %edx
  xorps %xmm0, %xmm0
  xorps %xmm1, %xmm1
  ret
objc_msgSendSuper2:
  HC_SAVE
  call hc_objc_lookup_super@PLT
  HC_RESTORE
  movq (%rdi), %rdi
  jmp *%r11
)");
Id objc_msgSend(Id, Selector);  // as it is called here: without arguments

// ---- memory: 16 bytes before an object hold its count

static std::atomic<long>& count(Id o) { return reinterpret_cast<std::atomic<long>*>(o)[-2]; }
static bool is_block(Id o) {
  auto* const isa = reinterpret_cast<void**>(o->isa);
  return isa == _NSConcreteStackBlock || isa == _NSConcreteMallocBlock || isa == _NSConcreteGlobalBlock;
}
static bool is_immortal(Id o) {
  return o->isa == &__CFConstantStringClassReference || (o->isa->description->flags & kMeta) != 0;
}

API Id class_createInstance(Class* c, size_t) {
  auto* const p = static_cast<char*>(std::calloc(1, 16 + c->description->instance_bytes));
  const auto o = reinterpret_cast<Id>(p + 16);
  o->isa = c;
  count(o) = 1;
  ++live;
  // C++ members, base classes first
  static const Selector construct = selector(".cxx_construct");
  std::vector<void*> constructors;
  for (; c; c = c->super)
    if (const auto at = c->table->find(construct); at != c->table->end()) constructors.push_back(at->second);
  for (; !constructors.empty(); constructors.pop_back())
    reinterpret_cast<Id (*)(Id, Selector)>(constructors.back())(o, construct);
  return o;
}
API void object_dispose(Id o) {
  static const Selector destruct = selector(".cxx_destruct");
  for (const Class* c = o->isa; c; c = c->super)
    if (const auto at = c->table->find(destruct); at != c->table->end())
      reinterpret_cast<void (*)(Id, Selector)>(at->second)(o, destruct);
  --live;
  std::free(reinterpret_cast<char*>(o) - 16);
}
API Id objc_retain(Id o) {
  if (!o) return o;
  if (is_block(o)) return static_cast<Id>(_Block_copy(o));
  if (!is_immortal(o)) ++count(o);
  return o;
}
API void objc_release(Id o) {
  if (!o) return;
  if (is_block(o)) return _Block_release(o);
  if (is_immortal(o) || --count(o) > 0) return;
  static const Selector dealloc = selector("dealloc");
  objc_msgSend(o, dealloc);
}
API Id objc_retainBlock(Id o) { return o ? static_cast<Id>(_Block_copy(o)) : o; }
API void objc_storeStrong(Id* at, Id value) {
  const Id old = *at;
  objc_retain(value);
  *at = value;
  objc_release(old);
}

static thread_local std::vector<Id> pool;  // null: where a pool begins
API Id objc_autorelease(Id o) {
  if (!o) return o;
  if (pool.empty()) {
    std::fprintf(stderr, "objc: an object is autoreleased without a pool\n");
    std::abort();
  }
  pool.push_back(o);
  return o;
}
API void* objc_autoreleasePoolPush() {
  pool.push_back(nullptr);
  return reinterpret_cast<void*>(pool.size());
}
API void objc_autoreleasePoolPop(void* token) {
  for (const size_t keep = reinterpret_cast<size_t>(token) - 1; pool.size() > keep;) {
    const Id o = pool.back();
    pool.pop_back();
    objc_release(o);
  }
}
API Id objc_autoreleaseReturnValue(Id o) { return objc_autorelease(o); }
API Id objc_retainAutorelease(Id o) { return objc_autorelease(objc_retain(o)); }
API Id objc_retainAutoreleaseReturnValue(Id o) { return objc_retainAutorelease(o); }
API Id objc_retainAutoreleasedReturnValue(Id o) { return objc_retain(o); }
API Id objc_unsafeClaimAutoreleasedReturnValue(Id o) { return o; }

API Id objc_alloc(Class* c) {
  static const Selector s = selector("alloc");
  return objc_msgSend(reinterpret_cast<Id>(c), s);
}
API Id objc_alloc_init(Class* c) {
  static const Selector s = selector("init");
  return objc_msgSend(objc_alloc(c), s);
}
API Id objc_opt_new(Class* c) { return objc_alloc_init(c); }
API Id objc_getProperty(Id o, Selector, long offset, bool) {
  return objc_autorelease(objc_retain(*reinterpret_cast<Id*>(reinterpret_cast<char*>(o) + offset)));
}
static void set_property(Id o, Id value, long offset) {  // strings are immutable: a copy is the same
  objc_storeStrong(reinterpret_cast<Id*>(reinterpret_cast<char*>(o) + offset), value);
}
API void objc_setProperty_nonatomic_copy(Id o, Selector, Id value, long offset) { set_property(o, value, offset); }
API void objc_setProperty_atomic_copy(Id o, Selector, Id value, long offset) { set_property(o, value, offset); }

}  // extern "C"

namespace honeycrisp::backend::metal::framework {
long live_objects() { return live; }
}  // namespace honeycrisp::backend::metal::framework
