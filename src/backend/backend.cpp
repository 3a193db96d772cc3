#include "backend/backend.h"

#include "program/program.h"

#include <algorithm>

namespace honeycrisp::backend {
namespace {

struct CacheTypeInfo {
  CacheType type;
  std::string_view name;
  uint32_t block_elements, block_bytes;
};
constexpr CacheTypeInfo kCacheTypes[] = {
    {CacheType::kF16, "f16", 1, 2},
    {CacheType::kF32, "f32", 1, 4},
    {CacheType::kQ8_0, "q8_0", 32, 34},
};

const CacheTypeInfo& info(CacheType type) { return kCacheTypes[size_t(type)]; }

}  // namespace

std::string_view to_string(CacheType type) { return info(type).name; }

uint64_t cache_bytes(CacheType type, uint64_t elements) {
  return elements / info(type).block_elements * info(type).block_bytes;
}

Result<void> check_exact_activations(Activations activations, std::string_view backend) {
  if (activations == Activations::k14Bit) return {};
  return unsupported("fast activations are of the cpu backend alone, and {} has none (choose cpu, or leave them out)",
                     backend);
}

Result<void> check_cache_type(const program::Program& program, CacheType type) {
  const uint32_t block = info(type).block_elements;
  for (const program::CachePool& pool : program.pools)
    for (uint32_t dim : {pool.key_dim, pool.value_dim})
      if (dim % block != 0)
        return unsupported("a KV cache of type {} needs heads of a multiple of {}, this model has {}", info(type).name,
                           block, dim);
  return {};
}

uint32_t n_choosable(const program::Program& program, const CompileOptions& options) {
  return options.n_choosable == 0 ? program.vocabulary : std::min(options.n_choosable, program.vocabulary);
}

Result<void> Executor::issue(const Batch&, bool) {
  return unsupported("{}: it has no steps in flight", plan().backend);
}

Result<TopLogits> Executor::collect() { return unsupported("{}: it has no steps in flight", plan().backend); }

Result<Ceilings> Executor::measure_ceilings(uint64_t) {
  return unsupported("{}: it cannot measure what the device can do at most", plan().backend);
}

Result<void> Executor::profile(double* seconds) {
  if (seconds == nullptr) return {};
  return unsupported("{}: it cannot measure its steps one by one", plan().backend);
}

}  // namespace honeycrisp::backend
