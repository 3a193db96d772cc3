#include "backend/cuda/ceilings.h"

#include "backend/cuda/ceilings_args.h"
#include "base/stopwatch.h"

#include <algorithm>
#include <cuda_runtime_api.h>

namespace honeycrisp::backend::cuda {
namespace {

constexpr uint64_t kTimesOfCache = 8;  // bytes read, at least, of those that the L2 cache holds
constexpr double kLeastSeconds = 0.02;
constexpr uint32_t kRounds = 20000;  // of a launch of the multiplying loop: some milliseconds

/// Launches again and again until the clock has moved enough; how often, and in how many seconds.
template <class Launch>
Result<std::pair<uint64_t, double>> repeat(Launch launch, Stream stream) {
  HC_TRY(check_cuda(launch(), "measuring the device"));
  HC_TRY(check_cuda(cudaStreamSynchronize(stream), "measuring the device"));
  const Stopwatch watch;
  uint64_t times = 0;
  for (uint64_t more = 1; watch.seconds() < kLeastSeconds; more *= 2) {
    for (uint64_t i = 0; i < more; ++i) HC_TRY(check_cuda(launch(), "measuring the device"));
    HC_TRY(check_cuda(cudaStreamSynchronize(stream), "measuring the device"));
    times += more;
  }
  return std::pair(times, watch.seconds());
}

}  // namespace

Result<Ceilings> measure_ceilings(const Memory& memory, uint64_t bytes, const DeviceInfo& device, Stream stream) {
  int cache = 0;
  HC_TRY(check_cuda(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, 0), "asking for the cache's size"));
  const uint64_t least = std::max(kTimesOfCache * uint64_t(cache) / kReadUnit, uint64_t{1}) * kReadUnit;
  const uint8_t* from = memory.as();
  uint64_t n = std::min(std::max(bytes, least), memory.bytes()) / kReadUnit * kReadUnit;
  Memory buffer;
  if (n < least) {
    n = least;
    HC_ASSIGN(buffer, Memory::allocate(n, "a buffer to measure the memory with"));
    HC_TRY(check_cuda(cudaMemsetAsync(buffer.as(), 1, n, stream), "filling a buffer"));
    from = buffer.as();
  }
  HC_ASSIGN(const Memory counters, Memory::allocate(2 * sizeof(uint64_t), "counters"));
  auto* multiply_adds = counters.as<uint64_t>();
  const auto read_directly = [&] {
    return launch_read_directly(from, n, counters.as<uint32_t>(sizeof(uint64_t)), device.multiprocessors, stream);
  };
  const auto read_in_bulk = [&] { return launch_read_in_bulk(from, n, device.multiprocessors, stream); };
  const auto multiply = [&] { return launch_multiply_peak(kRounds, multiply_adds, device.multiprocessors, stream); };

  Ceilings ceilings{.arithmetic = "f16, tensor cores"};
  HC_ASSIGN(const auto direct, repeat(read_directly, stream));
  ceilings.read_bytes_per_second = double(direct.first) * double(n) / direct.second;
  if (device.major >= 9) {
    HC_ASSIGN(const auto bulk, repeat(read_in_bulk, stream));
    ceilings.read_bytes_per_second =
        std::max(ceilings.read_bytes_per_second, double(bulk.first) * double(n) / bulk.second);
  }
  HC_TRY(check_cuda(cudaMemsetAsync(multiply_adds, 0, sizeof(uint64_t), stream), "clearing a counter"));
  HC_ASSIGN(const auto multiplied, repeat(multiply, stream));
  uint64_t done = 0;
  HC_TRY(check_cuda(cudaMemcpy(&done, multiply_adds, sizeof done, cudaMemcpyDeviceToHost), "reading a counter"));
  // The counter knows of the launch before the clock as well.
  const double each = double(done) / double(multiplied.first + 1);
  ceilings.operations_per_second = 2 * each * double(multiplied.first) / multiplied.second;
  return ceilings;
}

}  // namespace honeycrisp::backend::cuda
