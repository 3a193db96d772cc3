#include "backend/cpu/thread_pool.h"

#include "base/cpu_count.h"
#include "base/log.h"

#include <system_error>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace honeycrisp::backend::cpu {
namespace {

constexpr uint32_t kSpins = 2000;  // 30 to 100 µs: longer than a pass, shorter than a time slice

void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The floating-point control word: MXCSR on x86, FPCR on arm64, elsewhere the default is kept.
uint64_t read_control() {
#if defined(__x86_64__)
  return _mm_getcsr();
#elif defined(__aarch64__)
  uint64_t fpcr;
  asm volatile("mrs %0, fpcr" : "=r"(fpcr));
  return fpcr;
#else
  return 0;
#endif
}
void write_control([[maybe_unused]] uint64_t value) {
#if defined(__x86_64__)
  _mm_setcsr(uint32_t(value));
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" : : "r"(value));
#endif
}
#if defined(__x86_64__)
constexpr uint64_t kFlushing = 0x1f80 | 0x8000 | 0x0040;  // all exceptions masked, nearest, FTZ, DAZ
#else
constexpr uint64_t kFlushing = uint64_t{1} << 24;  // FZ
#endif

}  // namespace

FlushSubnormals::FlushSubnormals() : saved_(read_control()) { write_control(kFlushing); }
FlushSubnormals::~FlushSubnormals() { write_control(saved_); }

void wait_for_change(const std::atomic<uint32_t>& value, uint32_t old, uint32_t spins) {
  for (uint32_t i = 0; i < spins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause_cpu();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

ThreadPool::ThreadPool(uint32_t n) : spins_(n <= usable_cores() ? kSpins : 0) {
  threads_.reserve(n - 1);
  for (uint32_t i = 1; i < n; ++i) {
    try {
      threads_.emplace_back([this, i] { work(i); });
    } catch (const std::system_error& e) {
      log_warning("only {} of {} threads could be started: {}", i, n, e.what());
      break;
    }
  }
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  start_.fetch_add(1);
  start_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void ThreadPool::work(uint32_t thread) {
  const FlushSubnormals flush;
  for (uint64_t last_call = 0;;) {
    const uint32_t start = start_.load(std::memory_order_acquire);
    if (stop_) return;
    uint64_t gate = gate_.load(std::memory_order_acquire);
    while ((gate & kClosed) == 0 && gate >> 32 != last_call &&
           !gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
    }
    if ((gate & kClosed) != 0 || gate >> 32 == last_call) {
      wait_for_change(start_, start, spins_);
      continue;
    }
    last_call = gate >> 32;
    body_(context_, thread);
    ran_.fetch_add(1, std::memory_order_release);
    gate_.fetch_sub(1, std::memory_order_release);
    left_.fetch_add(1);
    left_.notify_one();
  }
}

void ThreadPool::call(Body body, void* context, bool on_all) {
  body_ = body;
  context_ = context;
  ran_.store(0, std::memory_order_relaxed);
  gate_.store(uint64_t{++n_calls_} << 32, std::memory_order_release);
  start_.fetch_add(1);  // sequentially consistent: notify_all must not look for waiters before it
  start_.notify_all();
  {
    const FlushSubnormals flush;
    body(context, 0);
  }
  if (!on_all) gate_.fetch_or(kClosed, std::memory_order_acq_rel);
  for (;;) {
    const uint32_t left = left_.load(std::memory_order_acquire);
    // In this order: who has run is inside until it leaves, but who has not may come in between the two.
    const bool all = !on_all || ran_.load(std::memory_order_acquire) == threads_.size();
    if (all && (gate_.load(std::memory_order_acquire) & kInside) == 0) break;
    wait_for_change(left_, left, spins_);
  }
  gate_.fetch_or(kClosed, std::memory_order_acq_rel);
}

}  // namespace honeycrisp::backend::cpu
