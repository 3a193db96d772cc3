// What a kernel module (a .metal file compiled for the host) and the runtime share: the layout of a running
// threadgroup, the inline switch between its threads, and the table by which a module describes itself. Included by
// both sides, so it holds no code of either and includes almost nothing.
//
// Every thread of a threadgroup is a fiber with a stack of its own. The stacks and the state of one worker lie in one
// aligned region of memory, so that a kernel finds the state of its threadgroup from the stack pointer alone: no
// thread-local variable, no symbol that a module would have to import. x86-64 only: the switch is assembly.
#pragma once

#include <cstddef>
#include <cstdint>

namespace honeycrisp::backend::metal::soft {

inline constexpr uint32_t kAbiVersion = 1;
inline constexpr uint32_t kLanes = 32;  // threads of a simdgroup
inline constexpr uint32_t kMaxThreads = 1024, kMaxSimdgroups = kMaxThreads / kLanes;
inline constexpr uint32_t kMaxBuffers = 31, kMaxThreadgroupArguments = 8, kMaxThreadgroupVariables = 64;
inline constexpr uint32_t kThreadgroupBytes = 32 << 10;  // bytes that a threadgroup may use, as on Apple's GPUs
inline constexpr size_t kStackBytes = 64 << 10;
inline constexpr size_t kRegionBytes = 128u
                                       << 20;  // power of two, its own alignment: the state, then kMaxThreads stacks
inline constexpr size_t kStateBytes = 4 * kStackBytes;
inline constexpr size_t kExchangeBytes = 32;  // the widest value that simd_* functions exchange, per lane

enum class AccessKind : uint8_t { kRead, kWrite, kAtomic, kAtomicStore };  // kAtomic reads too
enum BarrierFlags : uint32_t { kFlagDevice = 1, kFlagThreadgroup = 2 };

/// One simdgroup and the rendezvous of its lanes. Lanes run one at a time, each until it needs the others.
struct alignas(64) Simdgroup {
  uint32_t left;          // lanes that have yet to arrive at the rendezvous, the running one included
  uint32_t active;        // lanes that have not ended
  uint32_t lane;          // the running lane
  uint32_t completed;     // rendezvous so far; its parity says which half of `exchange` is in use
  const void* site;       // source_location of the rendezvous that the first lane arrived at; null before
  uint32_t unstarted;     // lanes that have not run at all
  uint32_t index;         // of this simdgroup in its threadgroup
  uint32_t all;           // lanes that exist
  uint32_t took_part[2];  // lanes that were active in the last rendezvous of either parity
  uint32_t epoch[2];      // simdgroup barriers so far that order device, threadgroup memory
  void* sp[kLanes];       // of the lanes that do not run
  alignas(64) unsigned char exchange[2][kLanes * kExchangeBytes];  // lane i at i * sizeof(value)
  alignas(64) unsigned char result[2][kExchangeBytes];
};

struct Group;

/// What inlined code of a module asks of the runtime.
struct Runtime {
  void (*barrier)(Group*, uint32_t flags, const void* site);  // called once per simdgroup, by its last lane
  void (*diverged)(Group*, const void* site);                 // does not return
  void (*inactive_lane)(Group*, uint32_t lane, const void* site);
  void* (*threadgroup_variable)(Group*, uint32_t slot, uint32_t bytes);
  // Checked modules only. None returns if the access cannot be made.
  void (*access)(Group*, const void* address, size_t bytes, AccessKind, const void* pc);
  void (*bad_index)(Group*, const char* file, uint32_t line, uint64_t index);
  void (*misaligned)(Group*, const char* file, uint32_t line, const void* address, uint32_t alignment);
};

/// What all threadgroups of a dispatch have in common.
struct Invocation {
  void* buffers[kMaxBuffers];
  uint32_t threadgroup_offsets[kMaxThreadgroupArguments];  // into the worker's threadgroup memory
  uint32_t threads_per_threadgroup[3], threadgroups_per_grid[3], threads_per_grid[3];
  void (*entry)(Group&);
};

/// A running threadgroup; lies at the start of its worker's region.
struct Group {
  Simdgroup* simd;  // the running one
  Invocation call;  // copies: instrumentation leaves out the region of stacks, and only that
  Runtime runtime;
  unsigned char* threadgroup_memory;
  uint32_t position[3];  // in the grid
  uint32_t size[3];      // threads of this threadgroup: fewer at the grid's edge, if dispatched by threads
  uint32_t threads;      // the product of size
  uint32_t simdgroups;
  uint32_t variable_offsets[kMaxThreadgroupVariables];  // of threadgroup variables, + 1; 0: not yet placed
  uint32_t epoch[2];                                    // threadgroup barriers that order device, threadgroup memory
  void* worker;                                         // the runtime's
  Simdgroup simds[kMaxSimdgroups];
};
static_assert(sizeof(Group) <= kStateBytes);

#define SOFT_INLINE inline __attribute__((always_inline))

/// The threadgroup that this code runs in. Not volatile: it never changes within a call, however often fibers switch.
SOFT_INLINE Group* current_group() {
  uintptr_t sp;
  asm("movq %%rsp, %0" : "=r"(sp));
  return reinterpret_cast<Group*>(sp & ~uintptr_t(kRegionBytes - 1));
}

/// Parks this fiber at *save and continues the one parked at `load`. The compiler saves what is live, and no more; code
/// that inlines this is compiled without a red zone.
SOFT_INLINE void switch_fiber(void** save, void* load) {
  asm volatile(
      "pushq %%rbp\n\t"
      "leaq 0f(%%rip), %%rax\n\t"
      "pushq %%rax\n\t"
      "movq %%rsp, (%0)\n\t"
      "movq %1, %%rsp\n\t"
      "popq %%rax\n\t"
      "jmp *%%rax\n"
      "0:\n\t"
      "popq %%rbp"
      : "+D"(save), "+S"(load)
      :
      : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1", "xmm2",
        "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15",
        "cc", "memory");
}

/// Where all active lanes of a simdgroup meet. The last to arrive runs `complete` and goes on at once; the others go on
/// when it is their turn. A lane that ended counts no more: if the last to come ended instead, a waiting one completes.
template <class Complete>
SOFT_INLINE void rendezvous(Group* g, Simdgroup* s, const void* site, Complete complete) {
  const uint32_t number = s->completed, lane = s->lane;
  if (s->site != site) [[unlikely]] {
    if (s->site) g->runtime.diverged(g, site);
    s->site = site;
  }
  const uint32_t left = s->left & ~(1u << lane);
  s->left = left;
  if (left) [[likely]] {
    const uint32_t next = uint32_t(__builtin_ctz(left));
    s->lane = next;
    switch_fiber(&s->sp[lane], s->sp[next]);
    if (s->completed != number) [[likely]]
      return;
  }
  complete();
  s->took_part[number & 1] = s->active;
  s->left = s->active;
  s->site = nullptr;
  s->completed = number + 1;
}

// ---- how a module describes itself ----

enum class Attribute : uint8_t {
  kBuffer,
  kConstantBuffer,
  kThreadgroup,
  kThreadPositionInGrid,
  kThreadPositionInThreadgroup,
  kThreadIndexInThreadgroup,
  kThreadgroupPositionInGrid,
  kThreadsPerThreadgroup,
  kThreadsPerGrid,
  kThreadgroupsPerGrid,
  kThreadIndexInSimdgroup,
  kSimdgroupIndexInThreadgroup,
  kSimdgroupsPerThreadgroup,
  kThreadsPerSimdgroup,
};

struct Parameter {
  Attribute attribute;
  uint8_t index;             // of a buffer or threadgroup argument
  bool writable;             // a device buffer whose type is not const
  bool reference;            // one element is bound, `bytes` long
  uint32_t bytes;            // of the element pointed to
  const char* name;          // as the kernel calls it
  const bool* (*enabled)();  // the function constant that switches it on, or null: always
};

struct KernelInfo {
  const char* name;  // host_name of an instantiation, else the function's
  void (*entry)(Group&);
  const Parameter* parameters;
  uint32_t parameter_count;
  uint32_t line;
};

inline constexpr uint32_t kDerivedConstant = ~0u;
struct FunctionConstant {
  const char* name;
  uint32_t index;  // or kDerivedConstant: computed from others by Unit::derive, never given
  uint32_t bytes;
  void* (*address)();  // of the calling thread's copy
  bool* (*defined)();  // null if derived
};

/// One .metal file.
struct Unit {
  const char* file;
  const KernelInfo* kernels;
  uint32_t kernel_count;
  const FunctionConstant* constants;
  uint32_t constant_count;
  void (*derive)();  // computes constants that depend on function constants, on the calling thread
};

struct Module {
  uint32_t abi;
  bool checked;  // every memory access calls Runtime::access
  const Unit* const* units;
  uint32_t unit_count;
  bool* armed;  // set once the module is loaded: accesses before (static initialisers) are nobody's
};

inline constexpr const char* kModuleSymbol = "honeycrisp_metal_module";  // const Module* honeycrisp_metal_module();

}  // namespace honeycrisp::backend::metal::soft
