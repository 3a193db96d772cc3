#include "backend/cpu/ceilings.h"

#include "base/stopwatch.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace honeycrisp::backend::cpu {
namespace {

constexpr uint64_t kBlock = uint64_t{1} << 18;         // bytes that a thread takes at a time
constexpr uint64_t kLeastBuffer = uint64_t{64} << 20;  // more than the caches of a core
constexpr uint64_t kRounds = 4096;                     // of the multiplying loop between two looks at the clock
constexpr double kLeastSeconds = 0.04;

struct Work {
  const Isa* isa;
  uint8_t* buffer;
  uint64_t n_blocks;
  std::atomic<uint64_t> next{0}, multiply_adds{0}, kept{0};
};

void fill(void* context, uint32_t) {
  Work& work = *static_cast<Work*>(context);
  for (uint64_t i; (i = work.next.fetch_add(1)) < work.n_blocks;)
    std::memset(work.buffer + i * kBlock, int(i % 251) + 1, kBlock);
}

void read(void* context, uint32_t) {
  Work& work = *static_cast<Work*>(context);
  uint64_t sum = 0;
  for (uint64_t i; (i = work.next.fetch_add(1)) < work.n_blocks;)
    sum += work.isa->read_stream(work.buffer + i * kBlock, kBlock);
  work.kept += sum;
}

void multiply(void* context, uint32_t) {
  Work& work = *static_cast<Work*>(context);
  uint64_t kept = 0, done = 0;
  for (const Stopwatch watch; watch.seconds() < kLeastSeconds;) done += work.isa->multiply_peak(kRounds, &kept);
  work.multiply_adds += done;
  work.kept += kept;
}

}  // namespace

Result<void> CeilingProbe::reserve(ThreadPool& pool, uint64_t bytes) {
  bytes = std::max(bytes, kLeastBuffer) / kBlock * kBlock;
  if (bytes == bytes_) return {};
  buffer_ = allocate_to_read<uint8_t>(bytes);
  bytes_ = 0;
  if (!buffer_) return fail(ErrorCode::kOutOfMemory, "{} bytes to measure the memory with cannot be allocated", bytes);
  bytes_ = bytes;
  Work work{.isa = nullptr, .buffer = buffer_.get(), .n_blocks = bytes / kBlock};
  pool.run(fill, &work);
  return {};
}

Result<Ceilings> CeilingProbe::measure(ThreadPool& pool, const Isa& isa, uint64_t buffer_bytes) {
  HC_TRY(reserve(pool, buffer_bytes));
  Work work{.isa = &isa, .buffer = buffer_.get(), .n_blocks = bytes_ / kBlock};
  uint64_t bytes = 0;
  const Stopwatch reading;
  while (reading.seconds() < kLeastSeconds) {
    work.next = 0;
    pool.run(read, &work);
    bytes += bytes_;
  }
  Ceilings ceilings{.read_bytes_per_second = double(bytes) / reading.seconds(),
                    .operations_per_second = 0,
                    .arithmetic = fmt::format("int8, {}", isa.name)};
  const Stopwatch multiplying;
  pool.run(multiply, &work);
  ceilings.operations_per_second = 2 * double(work.multiply_adds.load()) / multiplying.seconds();
  return ceilings;
}

}  // namespace honeycrisp::backend::cpu
