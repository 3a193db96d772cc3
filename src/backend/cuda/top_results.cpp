#include "backend/cuda/top_results.h"

#include <algorithm>
#include <bit>
#include <cuda_runtime_api.h>

namespace honeycrisp::backend::cuda {

static_assert(kMostTopK >= kMostTopLogits);

Result<void> TopResults::issue(const float* logits, const Wanted& wanted, uint32_t slot, int32_t* best, Stream stream) {
  if (wanted.n_top == 0) return {};
  const uint32_t n_rows = wanted.n_rows();
  if (n_rows > room_) {
    const uint32_t room = std::bit_ceil(std::max(n_rows, kMostInFlight));
    const uint64_t counters = uint64_t{room} * 2 * sizeof(uint32_t);
    const uint64_t candidates = uint64_t{room} * top_k_slices(n_choosable_) * kMostTopK * sizeof(uint64_t);
    const uint64_t results = uint64_t{room} * (2 * kMostTopK + 1) * sizeof(uint32_t);
    HC_ASSIGN(Memory device, Memory::allocate(counters + candidates, "the search for the largest logits"));
    HC_ASSIGN(Memory host, Memory::allocate(results, "the largest logits", Memory::Place::kHost));
    HC_TRY(check_cuda(cudaMemsetAsync(device.as(), 0, counters, stream), "clearing counters"));
    device_ = std::move(device);
    host_ = std::move(host);
    room_ = room;
  }
  k_ = wanted.most_top;
  const uint64_t first = uint64_t{slot} * kMostTopK;
  const TopKArgs args{.logits = logits,
                      .stride = vocabulary_,
                      .count = n_choosable_,
                      .k = k_,
                      .candidates = device_.as<uint64_t>(uint64_t{room_} * 2 * sizeof(uint32_t)),
                      .counters = device_.as<uint32_t>(),
                      .values = values() + first,
                      .tokens = tokens() + first,
                      .unusable = unusable() + slot,
                      .best = best};
  return check_cuda(launch_top_k(args, n_rows, stream), "finding the largest logits");
}

TopLogits TopResults::read(uint64_t first, uint32_t unusable_at, uint32_t n) const {
  TopLogits top;
  top.n = std::min(n, n_choosable_);
  top.n_unusable = unusable()[unusable_at];
  std::copy_n(values() + first, top.n, top.logits.begin());
  std::copy_n(tokens() + first, top.n, top.tokens.begin());
  return top;
}

}  // namespace honeycrisp::backend::cuda
