// One host thread's means to run threadgroups: the region with the state and the stacks of their fibers, and the
// schedule. Knows nothing of buffers, dispatches or checks; whoever watches is told through Watcher.
#pragma once

#include "backend/metal/soft/abi.h"

#include <cstdint>
#include <memory>
#include <string>

namespace honeycrisp::backend::metal::soft {

/// Told of what happens in a threadgroup. Every function but `access`, `placed`, `group_barrier` and `inactive_lane`
/// reports a fault after which the threadgroup is abandoned.
class Watcher {
 public:
  virtual ~Watcher() = default;
  virtual bool access(Group*, const void* address, size_t bytes, AccessKind, const void* pc) = 0;  // false: abandon
  virtual void placed(Group*, uint32_t offset, uint32_t bytes) = 0;  // a threadgroup variable
  virtual void group_barrier(Group*, uint32_t flags) = 0;
  virtual void bad_index(Group*, const char* file, uint32_t line, uint64_t index) = 0;
  virtual void misaligned(Group*, const char* file, uint32_t line, const void* address, uint32_t alignment) = 0;
  virtual void simd_diverged(Group*, const void* site, const void* other) = 0;
  virtual void barrier_diverged(Group*, const void* site, const void* other) = 0;
  virtual void barrier_missed(Group*, const void* site, uint32_t missing) = 0;
  virtual void inactive_lane(Group*, uint32_t lane, const void* site) = 0;
  virtual void threadgroup_memory_exceeded(Group*, uint32_t bytes) = 0;
};

extern "C" void honeycrisp_metal_fiber_body();

class Worker {
 public:
  /// Null if the memory cannot be reserved. `guard_every_lane`: a page that cannot be touched below each stack, which
  /// makes two mappings of each; a process may have 65,530, too few for the workers of a large machine. Without it only
  /// the lowest stack of a simdgroup has one.
  static std::unique_ptr<Worker> create(bool guard_every_lane);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Before the first threadgroup of a dispatch: forgets where threadgroup variables lie. Arguments take `reserved`
  /// bytes of threadgroup memory and lie in its first `used`; `gap` bytes are left after each variable.
  void begin(const Invocation& call, uint32_t reserved, uint32_t used, uint32_t gap, Watcher& watcher);
  /// Runs one threadgroup to its end; false if it was abandoned. `shuffle` ≠ 0 varies the order of simdgroups.
  bool run(const uint32_t position[3], const uint32_t size[3], uint32_t shuffle = 0);

  unsigned char* threadgroup_memory() { return threadgroup_memory_; }

 private:
  friend void honeycrisp_metal_fiber_body();
  Worker() = default;
  [[noreturn]] void leave(Group* g, void* sp);
  [[noreturn]] void abandon(Group* g);
  [[noreturn]] void next_simdgroup(Group* g);
  uint32_t pick(uint32_t ready);
  static void lane_main();
  static void barrier(Group*, uint32_t flags, const void* site);
  static const Runtime kRuntime;

  Group* group_ = nullptr;  // at the start of the region
  void* initial_sp_[kMaxThreads];
  void* main_sp_ = nullptr;
  Watcher* watcher_ = nullptr;
  uint32_t reserved_ = 0, used_ = 0, gap_ = 0;
  uint32_t running_ = 0, ready_ = 0, at_barrier_ = 0;  // simdgroups: not ended; may run but do not; wait
  uint32_t barrier_flags_ = 0, shuffle_ = 0;
  const void* barrier_site_ = nullptr;
  bool abandoned_ = false;
  alignas(128) unsigned char threadgroup_memory_[2 * kThreadgroupBytes];  // twice: the gaps
};

}  // namespace honeycrisp::backend::metal::soft
