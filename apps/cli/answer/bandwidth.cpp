#include "cli/answer/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <numeric>
#include <thread>
#include <vector>

namespace honeycrisp::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kBufferBytes = size_t(64) << 20;  // more than any core's own caches
constexpr auto kDuration = std::chrono::milliseconds(30);
constexpr size_t kBlockWords = 32 * 1024;  // between two looks at the clock

/// Eight independent sums, so that the adds hide the latency of the loads.
uint64_t sum_words(const uint64_t* words, size_t n) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 8 <= n; i += 8)
    for (size_t j = 0; j < 8; ++j) sums[j] += words[i + j];
  return std::accumulate(sums, sums + 8, uint64_t(0));
}

struct Slice {
  const uint64_t* words;
  size_t n;
  double bytes_per_second = 0;
  uint64_t sum = 0;  // kept, so that the reads are not optimised away
};

void read_for_a_while(Slice& slice) {
  const auto start = Clock::now();
  uint64_t words_read = 0;
  size_t at = 0;
  for (auto now = start; now - start < kDuration; now = Clock::now()) {
    const size_t n = std::min(kBlockWords, slice.n - at);
    slice.sum += sum_words(slice.words + at, n);
    words_read += n;
    at = at + n == slice.n ? 0 : at + n;
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  slice.bytes_per_second = double(words_read * sizeof(uint64_t)) / seconds;
}

}  // namespace

double measure_read_bandwidth(uint32_t threads) {
  const size_t n_words = kBufferBytes / sizeof(uint64_t);
  const std::unique_ptr<uint64_t[]> buffer(new (std::nothrow) uint64_t[n_words]);
  if (!buffer || threads == 0) return 0;
  std::fill_n(buffer.get(), n_words, 1);  // pages exist only once they are written
  std::vector<Slice> slices(threads);
  for (size_t t = 0; t < threads; ++t) {
    const size_t first = n_words / threads * t / 8 * 8;
    slices[t] = {buffer.get() + first, n_words / threads / 8 * 8};
  }
  std::vector<std::thread> workers;
  for (size_t t = 1; t < threads; ++t) workers.emplace_back(read_for_a_while, std::ref(slices[t]));
  read_for_a_while(slices[0]);
  for (std::thread& worker : workers) worker.join();
  uint64_t sum = 0;
  double rate = 0;
  for (const Slice& slice : slices) {
    sum += slice.sum;
    rate += slice.bytes_per_second;
  }
  return sum == 0 ? 0 : rate;
}

}  // namespace honeycrisp::cli
