#include "backend/cpu/thread_pool.h"

#include "base/log.h"

#include <system_error>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace honeycrisp::backend::cpu {
namespace {

constexpr int kSpins = 2000;  // some 30 µs: longer than a pass, shorter than a time slice
constexpr int kYields = 50;

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

void Barrier::wait_for_change(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause_cpu();
  }
  for (int i = 0; i < kYields; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    std::this_thread::yield();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

ThreadPool::ThreadPool(uint32_t n) {
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
  start_.fetch_add(1, std::memory_order_release);
  start_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void ThreadPool::work(uint32_t thread) {
  const FlushSubnormals flush;
  for (uint32_t seen = 0;; ++seen) {
    Barrier::wait_for_change(start_, seen);
    if (stop_) return;
    body_(context_, thread);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

void ThreadPool::run(void (*body)(void*, uint32_t), void* context) {
  body_ = body;
  context_ = context;
  running_.store(uint32_t(threads_.size()), std::memory_order_relaxed);
  start_.fetch_add(1, std::memory_order_release);
  start_.notify_all();
  {
    const FlushSubnormals flush;
    body(context, 0);
  }
  for (uint32_t left; (left = running_.load(std::memory_order_acquire)) != 0;) Barrier::wait_for_change(running_, left);
}

}  // namespace honeycrisp::backend::cpu
