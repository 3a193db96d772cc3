// Threads that run one function together. Owns nothing of what they compute.
// A waiting thread spins shortly (the usual wait is a microsecond), then sleeps in the kernel: an idle pool costs
// nothing. Where there are more threads than cores it sleeps at once, because it would spin on the core of one with
// work to do.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace honeycrisp::backend::cpu {

/// Returns once `value` differs from `old`: after so many pauses of some 50 ns it sleeps in the kernel.
void wait_for_change(const std::atomic<uint32_t>& value, uint32_t old, uint32_t spins);

class ThreadPool {
 public:
  /// `n` ≥ 1 threads, the caller of run() included. Fewer if the system refuses to start more: see size().
  explicit ThreadPool(uint32_t n);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t size() const { return uint32_t(threads_.size()) + 1; }

  /// Pauses after which a waiting thread sleeps.
  uint32_t spins() const { return spins_; }

  using Body = void (*)(void* context, uint32_t thread);
  /// Calls body(context, thread) on every thread, thread 0 being the caller, with subnormals flushed; returns when all
  /// are done. One caller at a time.
  void run(Body body, void* context) { call(body, context, true); }
  /// The same, but without the threads that have not begun by the time the caller is through: the body must be one that
  /// any number of threads complete.
  void share(Body body, void* context) { call(body, context, false); }

 private:
  void call(Body body, void* context, bool on_all);
  void work(uint32_t thread);

  // gate_: number of the call, whether it takes no more threads, how many are inside.
  static constexpr uint64_t kClosed = uint64_t{1} << 31, kInside = kClosed - 1;

  const uint32_t spins_;
  Body body_ = nullptr;
  void* context_ = nullptr;
  uint32_t n_calls_ = 0;
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<uint64_t> gate_{kClosed};
  alignas(64) std::atomic<uint32_t> start_{0};  // changes with every call
  alignas(64) std::atomic<uint32_t> ran_{0};    // threads that have done the call's body
  alignas(64) std::atomic<uint32_t> left_{0};   // changes when one of them leaves
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
