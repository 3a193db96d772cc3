#include "warp.h"

#include "backend/cuda/kernels/instructions.cuh"
#include "cuda_fp16.h"

#include <array>
#include <barrier>
#include <bit>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr int kLanes = 32, kWords = 12;
using Words = std::array<uint32_t, kWords>;

// What lanes offer each other. A lane is never more than one exchange ahead: two sets are enough.
struct Exchange {
  std::array<std::array<Words, kLanes>, 2> offered;
  std::barrier<> all{kLanes};
};
thread_local Exchange* exchange = nullptr;
thread_local int lane_of_thread = 0;
thread_local int set = 0;

const std::array<Words, kLanes>& offer(const Words& words) {
  auto& offered = exchange->offered[size_t(set)];
  offered[size_t(lane_of_thread)] = words;
  exchange->all.arrive_and_wait();
  set = 1 - set;
  return offered;
}

float half_of_word(uint32_t word, int i) { return honeycrisp::f16_to_f32(uint16_t(word >> (16 * i))); }

// Register r of A: rows g + 8 (r % 2), columns 8 (r / 2) + 2 t, 2 t + 1; of B: rows 8 r + 2 t, 2 t + 1.
void multiply_halves(float (&d)[4], const Words& mine, const float (&c)[4]) {
  const auto& all = offer(mine);
  const int g = this_lane() / 4, t = this_lane() % 4;
  for (int i = 0; i < 4; ++i) {
    const int row = g + 8 * (i / 2), column = 2 * t + i % 2;
    double sum = double(c[i]);
    for (int k = 0; k < 16; ++k) {
      const uint32_t a = all[size_t(row % 8 * 4 + k % 8 / 2)][size_t(k / 8 * 2 + row / 8)];
      const uint32_t b = all[size_t(column * 4 + k % 8 / 2)][size_t(4 + k / 8)];
      sum += double(half_of_word(a, k % 2)) * double(half_of_word(b, k % 2));
    }
    d[i] = float(sum);
  }
}

// The same of four bytes each, 16 x 8 by 8 x 8: register r of A: rows g + 8 (r % 2), column 4 (r / 2) + t; of B: row 4
// r + t.
void multiply_words(float (&d)[4], const Words& mine) {
  const auto& all = offer(mine);
  const int g = this_lane() / 4, t = this_lane() % 4;
  for (int i = 0; i < 4; ++i) {
    const int row = g + 8 * (i / 2), column = 2 * t + i % 2;
    double sum = double(d[i]);
    for (int k = 0; k < 8; ++k)
      sum += double(std::bit_cast<float>(all[size_t(row % 8 * 4 + k % 4)][size_t(k / 4 * 2 + row / 8)])) *
             double(std::bit_cast<float>(all[size_t(column * 4 + k % 4)][size_t(4 + k / 4)]));
    d[i] = float(sum);
  }
}

// D += A · B of bytes; register r of A: rows g + 8 (r % 2), columns 16 (r / 2) + 4 t ..; of B: rows 16 r + 4 t ..
void multiply_bytes(int (&d)[4], const Words& mine, int n_columns) {
  const auto& all = offer(mine);
  const int g = this_lane() / 4, t = this_lane() % 4;
  for (int i = 0; i < 4; ++i) {
    const int row = g + 8 * (i / 2), column = 2 * t + i % 2;
    for (int k = 0; k < n_columns; ++k) {
      const uint32_t a = all[size_t(row % 8 * 4 + k % 16 / 4)][size_t(k / 16 * 2 + row / 8)];
      const uint32_t b = all[size_t(column * 4 + k % 16 / 4)][size_t(4 + k / 16)];
      d[i] += int(a >> (8 * (k % 4)) & 255) * int(int8_t(b >> (8 * (k % 4))));
    }
  }
}

}  // namespace

int this_lane() { return lane_of_thread; }
uint32_t shuffled(uint32_t v, int from) { return offer({v})[size_t(from) % kLanes][0]; }

void run_warp(const std::function<void(int lane)>& lane) {
  Exchange shared;
  std::vector<std::thread> threads;
  for (int i = 0; i < kLanes; ++i)
    threads.emplace_back([&, i] {
      exchange = &shared;
      lane_of_thread = i;
      set = 0;
      lane(i);
    });
  for (std::thread& thread : threads) thread.join();
}

namespace honeycrisp::backend::cuda {

void mma_f16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1,
             const float (&c)[4]) {
  multiply_halves(d, {a0, a1, a2, a3, b0, b1}, c);
}
void mma_tf32(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  multiply_words(d, {a0, a1, a2, a3, b0, b1});
}
uint32_t mul_f16x2(uint32_t a, uint32_t b) {
  const auto half = [&](int i) { return uint32_t(honeycrisp::f32_to_f16(half_of_word(a, i) * half_of_word(b, i))); };
  return half(0) | half(1) << 16;
}
void mma_bytes(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  multiply_bytes(d, {a[0], a[1], a[2], a[3], b0, b1}, 32);
}
void mma_bytes(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t b0) { multiply_bytes(d, {a0, a1, 0, 0, b0, 0}, 16); }
void mma_bytes(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int c) {
  std::fill(std::begin(d), std::end(d), c);
  mma_bytes(d, a, b0, b1);
}
void mma_bytes(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t b0, int c) {
  std::fill(std::begin(d), std::end(d), c);
  mma_bytes(d, a0, a1, b0);
}

}  // namespace honeycrisp::backend::cuda
