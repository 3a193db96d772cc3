#include "backend/cpu/thread_pool.h"

#include <cfloat>
#include <chrono>
#include <ctime>
#include <gtest/gtest.h>

namespace honeycrisp::backend::cpu {
namespace {

TEST(ThreadPool, runs_the_body_once_on_every_thread) {
  for (uint32_t n : {1u, 2u, 3u, 5u}) {
    ThreadPool pool(n);
    ASSERT_EQ(pool.size(), n);
    std::vector<std::atomic<int>> calls(n);
    for (int round = 0; round < 100; ++round)
      pool.run([](void* c, uint32_t t) { ++(*static_cast<std::vector<std::atomic<int>>*>(c))[t]; }, &calls);
    for (const auto& c : calls) EXPECT_EQ(c, 100);
  }
}

TEST(ThreadPool, shared_work_does_not_wait_for_threads_that_have_not_begun) {
  ThreadPool pool(4);
  std::atomic<int> calls{0};
  for (int round = 0; round < 2000; ++round) {
    calls = 0;
    pool.share([](void* c, uint32_t) { ++*static_cast<std::atomic<int>*>(c); }, &calls);
    const int at_return = calls;
    ASSERT_GE(at_return, 1);
    ASSERT_LE(at_return, 4);
    std::this_thread::yield();
    ASSERT_EQ(calls, at_return) << "a thread began after the call had returned";
  }
  calls = 0;
  pool.run([](void* c, uint32_t) { ++*static_cast<std::atomic<int>*>(c); }, &calls);
  EXPECT_EQ(calls, 4);
}

TEST(ThreadPool, flushes_subnormals_in_every_thread_and_restores_the_caller) {
  ThreadPool pool(3);
  std::vector<float> halves(3, 1);
  pool.run(
      [](void* c, uint32_t t) {
        volatile float least = FLT_MIN;
        (*static_cast<std::vector<float>*>(c))[t] = least * 0.5f;
      },
      &halves);
#if defined(__x86_64__) || defined(__aarch64__)
  for (float h : halves) EXPECT_EQ(h, 0.0f);
#endif
  volatile float least = FLT_MIN;
  EXPECT_GT(least * 0.5f, 0.0f);
}

TEST(ThreadPool, sleeps_when_idle) {
  ThreadPool pool(3);
  pool.run([](void*, uint32_t) {}, nullptr);
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(double(std::clock() - before) / CLOCKS_PER_SEC, 0.05);
}

}  // namespace
}  // namespace honeycrisp::backend::cpu
