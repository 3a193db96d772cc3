#include "backend/metal/soft/worker.h"

#include <cstring>
#include <sys/mman.h>

namespace honeycrisp::backend::metal::soft {

// A new fiber starts here, with the stack pointer where its start lies. It moves below that first, so that what the
// start consists of stays whole and the stack can be used again without being prepared anew.
extern "C" void honeycrisp_metal_fiber_start();
asm(R"(
.text
.globl honeycrisp_metal_fiber_start
.hidden honeycrisp_metal_fiber_start
.type honeycrisp_metal_fiber_start,@function
honeycrisp_metal_fiber_start:
    subq $64, %rsp
    andq $-64, %rsp
    xorl %ebp, %ebp
    call honeycrisp_metal_fiber_body
    ud2
.size honeycrisp_metal_fiber_start,.-honeycrisp_metal_fiber_start
)");

namespace {
constexpr size_t kGuardBytes = 4096;
uint32_t lanes_of(uint32_t threads, uint32_t simdgroup) {
  const uint32_t rest = threads - simdgroup * kLanes;
  return rest >= kLanes ? ~0u : (1u << rest) - 1;
}
Worker* worker_of(Group* g) { return static_cast<Worker*>(g->worker); }
}  // namespace

const Runtime Worker::kRuntime = {
    .barrier = &Worker::barrier,
    .diverged =
        [](Group* g, const void* site) {
          worker_of(g)->watcher_->simd_diverged(g, site, g->simd->site);
          worker_of(g)->abandon(g);
        },
    .inactive_lane = [](Group* g, uint32_t lane,
                        const void* site) { worker_of(g)->watcher_->inactive_lane(g, lane, site); },
    .threadgroup_variable = [](Group* g, uint32_t slot, uint32_t bytes) -> void* {
      Worker* w = worker_of(g);
      const uint32_t offset = (w->used_ + 15) / 16 * 16;
      w->reserved_ += (bytes + 15) / 16 * 16;
      if (w->reserved_ > kThreadgroupBytes || offset + bytes + w->gap_ > sizeof w->threadgroup_memory_) {
        w->watcher_->threadgroup_memory_exceeded(g, w->reserved_);
        w->abandon(g);
      }
      g->variable_offsets[slot] = offset + 1;
      w->used_ = offset + bytes + w->gap_;
      w->watcher_->placed(g, offset, bytes);
      return w->threadgroup_memory_ + offset;
    },
    .access =
        [](Group* g, const void* p, size_t bytes, AccessKind kind, const void* pc) {
          if (!worker_of(g)->watcher_->access(g, p, bytes, kind, pc)) worker_of(g)->abandon(g);
        },
    .bad_index =
        [](Group* g, const char* file, uint32_t line, uint64_t index) {
          worker_of(g)->watcher_->bad_index(g, file, line, index);
          worker_of(g)->abandon(g);
        },
    .misaligned =
        [](Group* g, const char* file, uint32_t line, const void* p, uint32_t alignment) {
          worker_of(g)->watcher_->misaligned(g, file, line, p, alignment);
          worker_of(g)->abandon(g);
        },
};

std::unique_ptr<Worker> Worker::create(bool guard_every_lane) {
  // twice the size, so that an aligned half can be had; what is not touched costs nothing
  void* raw = mmap(nullptr, 2 * kRegionBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(raw),
                  region = (begin + kRegionBytes - 1) & ~uintptr_t(kRegionBytes - 1);
  if (region > begin) munmap(raw, region - begin);
  munmap(reinterpret_cast<void*>(region + kRegionBytes), begin + kRegionBytes - region);
  std::unique_ptr<Worker> w(new Worker);
  w->group_ = reinterpret_cast<Group*>(region);
  auto* base = reinterpret_cast<unsigned char*>(region);
  bool ok = mprotect(base, kStateBytes, PROT_READ | PROT_WRITE) == 0;
  for (uint32_t i = 0; i < kMaxThreads && ok; ++i) {
    unsigned char* stack = base + kStateBytes + i * kStackBytes;
    const size_t guard = guard_every_lane || i % kLanes == 0 ? kGuardBytes : 0;
    ok = mprotect(stack + guard, kStackBytes - guard, PROT_READ | PROT_WRITE) == 0;
    // Staggered, or the tops of all stacks would compete for the same cache lines.
    void** top = reinterpret_cast<void**>(stack + kStackBytes - 64 - (i % 16) * 320);
    if (ok) *top = reinterpret_cast<void*>(&honeycrisp_metal_fiber_start);
    w->initial_sp_[i] = top;
  }
  return ok ? std::move(w) : nullptr;
}

Worker::~Worker() {
  if (group_) munmap(group_, kRegionBytes);
}

void Worker::begin(const Invocation& call, uint32_t reserved, uint32_t used, uint32_t gap, Watcher& watcher) {
  watcher_ = &watcher;
  reserved_ = reserved;
  gap_ = gap;
  used_ = used;
  group_->call = call;
  group_->runtime = kRuntime;
  group_->threadgroup_memory = threadgroup_memory_;
  group_->worker = this;
  std::memset(group_->variable_offsets, 0, sizeof group_->variable_offsets);
}

bool Worker::run(const uint32_t position[3], const uint32_t size[3], uint32_t shuffle) {
  Group& g = *group_;
  std::memcpy(g.position, position, sizeof g.position);
  std::memcpy(g.size, size, sizeof g.size);
  g.threads = size[0] * size[1] * size[2];
  g.simdgroups = (g.threads + kLanes - 1) / kLanes;
  g.epoch[0] = g.epoch[1] = 0;
  for (uint32_t i = 0; i < g.simdgroups; ++i) {
    Simdgroup& s = g.simds[i];
    s.left = s.active = s.unstarted = s.all = lanes_of(g.threads, i);
    s.lane = s.completed = 0;
    s.site = nullptr;
    s.index = i;
    s.epoch[0] = s.epoch[1] = 0;
    std::memcpy(s.sp, initial_sp_ + i * kLanes, sizeof s.sp);
  }
  running_ = g.simdgroups == 32 ? ~0u : (1u << g.simdgroups) - 1;
  at_barrier_ = 0;
  barrier_site_ = nullptr;
  abandoned_ = false;
  shuffle_ = shuffle;
  ready_ = running_;
  const uint32_t first = pick(ready_);
  ready_ &= ~(1u << first);
  g.simd = &g.simds[first];
  switch_fiber(&main_sp_, g.simd->sp[0]);
  return !abandoned_;
}

uint32_t Worker::pick(uint32_t ready) {
  if (shuffle_ != 0) {
    shuffle_ = shuffle_ * 1664525u + 1013904223u;
    const uint32_t turn = shuffle_ >> 27;
    const uint32_t turned = ready >> turn | (turn ? ready << (32 - turn) : 0);
    return (uint32_t(__builtin_ctz(turned)) + turn) % 32;
  }
  return uint32_t(__builtin_ctz(ready));
}

void Worker::leave(Group*, void* sp) {
  void* dead;
  switch_fiber(&dead, sp);
  __builtin_unreachable();
}

void Worker::abandon(Group* g) {
  abandoned_ = true;
  leave(g, main_sp_);
}

/// The running simdgroup has ended.
void Worker::next_simdgroup(Group* g) {
  running_ &= ~(1u << g->simd->index);
  if (ready_ == 0) {
    if (at_barrier_ == 0) leave(g, main_sp_);
    watcher_->barrier_missed(g, barrier_site_, uint32_t(__builtin_popcount(g->simd->all)));
    abandon(g);
  }
  const uint32_t next = pick(ready_);
  ready_ &= ~(1u << next);
  g->simd = &g->simds[next];
  leave(g, g->simd->sp[g->simd->lane]);
}

/// What every fiber runs: its lane's kernel, and after that, on the same stack, those of lanes that have not started,
/// so that a kernel without rendezvous needs one stack for a simdgroup.
void Worker::lane_main() {
  Group* g = current_group();
  for (;;) {
    g->simd->unstarted &= ~(1u << g->simd->lane);
    g->call.entry(*g);
    Simdgroup* s = g->simd;
    s->active &= ~(1u << s->lane);
    s->left &= ~(1u << s->lane);
    if (s->left != 0) {
      s->lane = uint32_t(__builtin_ctz(s->left));
      if (s->unstarted >> s->lane & 1) continue;
    } else if (s->active != 0) {
      s->lane = uint32_t(__builtin_ctz(s->active));  // all others wait: this one completes their rendezvous
    } else {
      worker_of(g)->next_simdgroup(g);
    }
    worker_of(g)->leave(g, s->sp[s->lane]);
  }
}

/// A simdgroup has arrived at a threadgroup barrier: on its last lane's fiber.
void Worker::barrier(Group* g, uint32_t flags, const void* site) {
  Worker* w = worker_of(g);
  Simdgroup* s = g->simd;
  if (w->barrier_site_ && w->barrier_site_ != site) {
    w->watcher_->barrier_diverged(g, site, w->barrier_site_);
    w->abandon(g);
  }
  const uint32_t exist = g->simdgroups == 32 ? ~0u : (1u << g->simdgroups) - 1;
  if (s->active != s->all || w->running_ != exist) {
    const uint32_t missing =
        uint32_t(__builtin_popcount(s->all & ~s->active)) + kLanes * uint32_t(__builtin_popcount(exist & ~w->running_));
    w->watcher_->barrier_missed(g, site, missing);
    w->abandon(g);
  }
  w->barrier_flags_ = w->at_barrier_ ? w->barrier_flags_ & flags : flags;
  w->barrier_site_ = site;
  w->at_barrier_ |= 1u << s->index;
  if (w->at_barrier_ == w->running_) {
    w->ready_ = w->running_ & ~(1u << s->index);
    w->at_barrier_ = 0;
    w->barrier_site_ = nullptr;
    w->watcher_->group_barrier(g, w->barrier_flags_);
    return;
  }
  const uint32_t next = w->pick(w->ready_);
  w->ready_ &= ~(1u << next);
  g->simd = &g->simds[next];
  void** park = &s->sp[s->lane];
  switch_fiber(park, g->simd->sp[g->simd->lane]);
}

extern "C" __attribute__((used, visibility("hidden"))) void honeycrisp_metal_fiber_body() { Worker::lane_main(); }

}  // namespace honeycrisp::backend::metal::soft
