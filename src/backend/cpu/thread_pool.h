// Threads that run one function together, and the barrier they meet at. Owns nothing of what they compute.
// A waiting thread spins shortly (the usual wait is a microsecond), then yields, then sleeps in the kernel: an idle
// pool costs nothing, and on a busy machine a preempted thread is not waited for by burning its core.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace honeycrisp::backend::cpu {

/// Where `n` threads meet. The last one to arrive runs an action before any of them goes on.
class Barrier {
 public:
  explicit Barrier(uint32_t n) : n_(n) {}

  template <class Action>
  void arrive_and_wait(Action last) {
    const uint32_t generation = generation_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_) {
      arrived_.store(0, std::memory_order_relaxed);
      last();
      generation_.store(generation + 1);  // sequentially consistent: notify_all must not look for waiters before it
      generation_.notify_all();
    } else {
      wait_for_change(generation_, generation);
    }
  }

  /// Returns once `value` differs from `old`.
  static void wait_for_change(const std::atomic<uint32_t>& value, uint32_t old);

 private:
  const uint32_t n_;
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
};

class ThreadPool {
 public:
  /// `n` ≥ 1 threads, the caller of run() included. Fewer if the system refuses to start more: see size().
  explicit ThreadPool(uint32_t n);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t size() const { return uint32_t(threads_.size()) + 1; }

  /// Calls body(context, thread) on every thread, thread 0 being the caller, with subnormals flushed; returns when all
  /// are done. One caller at a time.
  void run(void (*body)(void* context, uint32_t thread), void* context);

 private:
  void work(uint32_t thread);

  void (*body_)(void*, uint32_t) = nullptr;
  void* context_ = nullptr;
  bool stop_ = false;
  alignas(64) std::atomic<uint32_t> start_{0};
  alignas(64) std::atomic<uint32_t> running_{0};
  std::vector<std::thread> threads_;
};

/// Within its scope this thread flushes subnormal operands and results to zero and rounds to nearest, so that bits do
/// not depend on which thread computes (and subnormals do not cost hundreds of cycles).
class FlushSubnormals {
 public:
  FlushSubnormals();
  ~FlushSubnormals();
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  uint64_t saved_;
};

}  // namespace honeycrisp::backend::cpu
