#include "backend/cpu/pass_walk.h"

#include <chrono>
#include <gtest/gtest.h>
#include <thread>

namespace honeycrisp::backend::cpu {
namespace {

using Pass = PassWalk::Pass;

constexpr uint32_t kPasses = 500;

// Passes of 1 to 40 items, each of which looks whether all items of the pass before are done.
struct Shared {
  explicit Shared(uint32_t n) : pool(n), walk(pool.spins()), done(kPasses), entered(kPasses) {}
  ThreadPool pool;
  PassWalk walk;
  std::vector<std::atomic<uint32_t>> done, entered;  // [passes]
  std::atomic<uint32_t> too_early{0}, ended{0}, not_entered{0};

  static uint32_t items(uint32_t pass) { return 1 + pass * 7 % 40; }
  void work() {
    uint32_t last = UINT32_MAX;
    walk.walk(
        [&](const Pass& p) {
          last = p.step;
          ++entered[p.step];
        },
        [&](const Pass& p, uint32_t first, uint32_t end) {
          if (last != p.step) ++not_entered;
          if (p.step > 0 && done[p.step - 1] != items(p.step - 1)) ++too_early;
          done[p.step] += end - first;
        },
        [&](const Pass& p) {
          if (done[p.step] == items(p.step)) ++ended;
        });
  }
};

TEST(PassWalk, does_every_item_once_and_one_pass_after_the_other) {
  for (uint32_t n : {1u, 2u, 3u, 6u}) {
    Shared s(n);
    for (int round = 1; round <= 5; ++round) {
      s.walk.clear();
      for (uint32_t i = 0; i < kPasses; ++i) {
        s.done[i] = 0;
        s.walk.add({.step = i, .pass = 0, .n_items = Shared::items(i), .range = 1 + i % 3});
      }
      s.walk.begin();
      s.pool.share([](void* c, uint32_t) { static_cast<Shared*>(c)->work(); }, &s);
      for (uint32_t i = 0; i < kPasses; ++i) {
        ASSERT_EQ(s.done[i], Shared::items(i)) << n << " threads, pass " << i;
        ASSERT_LE(s.entered[i], n * uint32_t(round));
      }
      EXPECT_EQ(s.ended, kPasses * uint32_t(round));
    }
    EXPECT_EQ(s.too_early, 0u) << n;
    EXPECT_EQ(s.not_entered, 0u) << n;
  }
}

TEST(PassWalk, a_thread_without_items_holds_nobody_up) {
  PassWalk walk(0);
  for (uint32_t i = 0; i < 3; ++i) walk.add({.step = i, .pass = 0, .n_items = 5, .range = 2});
  walk.begin();
  // The other one never comes.
  uint32_t done = 0;
  walk.walk([](const Pass&) {}, [&](const Pass&, uint32_t first, uint32_t end) { done += end - first; },
            [](const Pass&) {});
  EXPECT_EQ(done, 15u);
  walk.walk([](const Pass&) {}, [&](const Pass&, uint32_t, uint32_t) { ADD_FAILURE(); }, [](const Pass&) {});
}

}  // namespace
}  // namespace honeycrisp::backend::cpu
