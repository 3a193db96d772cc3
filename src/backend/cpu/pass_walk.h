// How threads get through the passes of a step together. A pass is over when its items are done, not when every thread
// has come by: one that the system does not let run, because of other work or too few cores, holds nobody up unless it
// has items in its hands. Owns nothing of what an item is.
#pragma once

#include "backend/cpu/thread_pool.h"
#include "base/check.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

namespace honeycrisp::backend::cpu {

class PassWalk {
 public:
  struct Pass {
    uint32_t step, pass;  // the caller's names for it
    uint32_t n_items;     // ≥ 1
    uint32_t range;       // items that a thread takes at a time
  };
  /// `spins`: see wait_for_change().
  explicit PassWalk(uint32_t spins) : spins_(spins) {}

  void reserve(size_t n_passes) { passes_.reserve(n_passes); }

  // Only while no thread walks.
  void clear() { passes_.clear(); }
  void add(const Pass& pass) { passes_.push_back(pass); }
  void begin() {
    done_.store(0, std::memory_order_relaxed);
    next_.store(0, std::memory_order_release);
  }

  /// Walks on until all passes are over. enter(pass) is called before a thread's first items of a pass,
  /// run(pass, first, end) for items, ended(pass) once per pass by the thread that ends it.
  template <class Enter, class Run, class Ended>
  void walk(Enter enter, Run run, Ended ended) {
    uint32_t entered = UINT32_MAX, done = 0;  // items of the running pass that this thread has done
    for (;;) {
      const uint32_t change = changes_.load(std::memory_order_acquire);
      uint64_t next = next_.load(std::memory_order_acquire);
      uint32_t index = pass_of(next);
      if (index == passes_.size()) return;
      if (item_of(next) < passes_[index].n_items) {
        const uint32_t range = passes_[index].range;
        next = next_.fetch_add(range, std::memory_order_acq_rel);
        index = pass_of(next);  // which may have become a later one
        if (index == passes_.size()) return;
        const Pass& pass = passes_[index];
        const uint32_t first = item_of(next);
        if (first >= pass.n_items) continue;
        if (entered != index) enter(pass);
        entered = index;
        const uint32_t end = std::min(first + range, pass.n_items);
        run(pass, first, end);
        done += end - first;
      } else if (done > 0) {  // told once, when there is nothing left to take
        const uint32_t all = done_.fetch_add(done, std::memory_order_acq_rel) + done;
        done = 0;
        if (all == passes_[index].n_items) go_on(index, ended);
      } else {
        wait_for_change(changes_, change, spins_);
      }
    }
  }

 private:
  static uint32_t pass_of(uint64_t next) { return uint32_t(next >> 32); }
  static uint32_t item_of(uint64_t next) { return uint32_t(next); }

  template <class Ended>
  void go_on(uint32_t index, Ended ended) {
    ended(passes_[index]);
    done_.store(0, std::memory_order_relaxed);
    next_.store(uint64_t{index + 1} << 32, std::memory_order_release);
    changes_.fetch_add(1);  // sequentially consistent: notify_all must not look for waiters before it
    changes_.notify_all();
  }

  const uint32_t spins_;
  std::vector<Pass> passes_;
  alignas(64) std::atomic<uint64_t> next_{0};  // the running pass, and its first item that nobody has taken
  alignas(64) std::atomic<uint32_t> done_{0};  // items of it that are done, as far as told
  alignas(64) std::atomic<uint32_t> changes_{0};
};

}  // namespace honeycrisp::backend::cpu
