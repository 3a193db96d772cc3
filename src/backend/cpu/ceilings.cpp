#include "backend/cpu/ceilings.h"

#include "backend/cpu/memory.h"
#include "base/stopwatch.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fmt/format.h>
#include <numeric>
#include <vector>

namespace honeycrisp::backend::cpu {
namespace {

constexpr uint64_t kBlock = uint64_t{1} << 18;         // bytes that a thread takes at a time
constexpr uint64_t kUnit = 256;                        // bytes, of which read_stream() takes a multiple
constexpr uint64_t kLeastMemory = uint64_t{64} << 20;  // more than the caches of a core
constexpr uint64_t kRounds = 4096;                     // of the multiplying loop between two looks at the clock
constexpr double kLeastSeconds = 0.04;

using Blocks = std::vector<std::span<const uint8_t>>;

struct Work {
  const Isa* isa;
  const Blocks* blocks;
  std::atomic<uint64_t> next{0}, multiply_adds{0}, kept{0};
};

// The first `bytes` of it, cut for threads that take piece by piece.
Blocks cut(std::span<const std::span<const uint8_t>> memory, uint64_t bytes) {
  Blocks blocks;
  for (std::span<const uint8_t> rest : memory)
    while (rest.size() >= kUnit && bytes >= kUnit) {
      const uint64_t n = std::min({kBlock, bytes, uint64_t{rest.size()}}) / kUnit * kUnit;
      blocks.push_back(rest.first(n));
      rest = rest.subspan(n);
      bytes -= n;
    }
  return blocks;
}

uint64_t size_of(const Blocks& blocks) {
  return std::accumulate(blocks.begin(), blocks.end(), uint64_t{0}, [](uint64_t n, auto b) { return n + b.size(); });
}

void read(void* context, uint32_t) {
  Work& work = *static_cast<Work*>(context);
  uint64_t sum = 0;
  for (uint64_t i; (i = work.next.fetch_add(1)) < work.blocks->size();)
    sum += work.isa->read_stream((*work.blocks)[i].data(), (*work.blocks)[i].size());
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

Result<Ceilings> measure_ceilings(ThreadPool& pool, const Isa& isa, std::span<const std::span<const uint8_t>> memory,
                                  uint64_t bytes) {
  Blocks blocks = cut(memory, std::max(bytes, kLeastMemory));
  Memory<uint8_t> buffer;
  if (size_of(blocks) < kLeastMemory) {
    buffer = allocate_to_read<uint8_t>(kLeastMemory);
    if (!buffer)
      return fail(ErrorCode::kOutOfMemory, "{} bytes to measure the memory with cannot be allocated", kLeastMemory);
    std::memset(buffer.get(), 1, kLeastMemory);  // pages exist only once they are written
    const std::span<const uint8_t> whole(buffer.get(), kLeastMemory);
    blocks = cut({&whole, 1}, kLeastMemory);
  }
  Work work{.isa = &isa, .blocks = &blocks};
  uint64_t read_bytes = 0;
  const Stopwatch reading;
  while (reading.seconds() < kLeastSeconds) {
    work.next = 0;
    pool.run(read, &work);
    read_bytes += size_of(blocks);
  }
  Ceilings ceilings{.read_bytes_per_second = double(read_bytes) / reading.seconds(),
                    .operations_per_second = 0,
                    .arithmetic = fmt::format("int8, {}", isa.name)};
  const Stopwatch multiplying;
  pool.run(multiply, &work);
  ceilings.operations_per_second = 2 * double(work.multiply_adds.load()) / multiplying.seconds();
  return ceilings;
}

}  // namespace honeycrisp::backend::cpu
