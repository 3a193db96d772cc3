#include "backend/cuda/kv_cache.h"

#include "base/check.h"
#include "base/checked.h"

#include <algorithm>
#include <bit>
#include <cuda_runtime_api.h>

namespace honeycrisp::backend::cuda {
namespace {

static_assert(kCacheF16 == uint8_t(CacheType::kF16) && kCacheF32 == uint8_t(CacheType::kF32) &&
              kCacheQ8_0 == uint8_t(CacheType::kQ8_0));

constexpr uint64_t kChunkBytes = uint64_t{16} << 20;
constexpr uint32_t kMaxChunks = 1 << 15;  // per pool: 512 GiB
constexpr uint32_t kVectorElements = 8;   // that the attention kernels load together
constexpr uint32_t kMaxHeadDim = 576;     // what fits the shared memory of an attention block

}  // namespace

Result<void> KvCache::check(const program::Program& program, CacheType type) {
  HC_TRY(check_cache_type(program, type));
  for (const program::CachePool& pool : program.pools) {
    for (uint32_t dim : {pool.key_dim, pool.value_dim})
      if (dim % kVectorElements != 0)
        return unsupported("attention on CUDA needs heads of a multiple of {}, this model has {}", kVectorElements,
                           dim);
    if (std::max(pool.key_dim, pool.value_dim) > kMaxHeadDim)
      return unsupported("attention on CUDA takes heads of at most {} elements, this model has {} and {}", kMaxHeadDim,
                         pool.key_dim, pool.value_dim);
    const uint64_t head = cache_bytes(type, uint64_t{pool.key_dim} + pool.value_dim) * program::kPagePositions;
    const auto heads = checked_mul<uint64_t>(pool.n_kv_heads, pool.n_layers);
    if (!heads || !checked_mul(*heads, head)) return invalid("a page of the KV cache would not fit the address space");
  }
  return {};
}

Result<KvCache> KvCache::make(const program::Program& program, CacheType type, Stream stream) {
  KvCache cache;
  cache.type_ = type;
  cache.stream_ = stream;
  for (const program::CachePool& shape : program.pools) {
    Pool pool;
    pool.key_bytes = cache_bytes(type, uint64_t{program::kPagePositions} * shape.key_dim);
    pool.value_bytes = cache_bytes(type, uint64_t{program::kPagePositions} * shape.value_dim);
    pool.n_kv_heads = shape.n_kv_heads;
    pool.page_bytes = (pool.key_bytes + pool.value_bytes) * shape.n_kv_heads * shape.n_layers;
    pool.pages_per_chunk = uint32_t(std::bit_floor(std::max<uint64_t>(1, kChunkBytes / pool.page_bytes)));
    cache.pools_.push_back(std::move(pool));
  }
  HC_ASSIGN(cache.tables_, Memory::allocate(std::max<size_t>(1, cache.pools_.size()) * kMaxChunks * sizeof(void*),
                                            "tables of the KV cache"));
  return cache;
}

Result<void> KvCache::reserve(uint32_t index, uint32_t n_pages) {
  Pool& pool = pools_[index];
  while (uint64_t{pool.pages_per_chunk} * pool.chunks.size() < n_pages) {
    if (pool.chunks.size() == kMaxChunks)
      return fail(ErrorCode::kOutOfMemory, "KV cache: {} pages of {} bytes are more than a pool holds", n_pages,
                  pool.page_bytes);
    HC_ASSIGN(Memory chunk, Memory::allocate(pool.page_bytes * pool.pages_per_chunk,
                                             fmt::format("KV cache: pages {} to {} of pool {}",
                                                         pool.chunks.size() * pool.pages_per_chunk,
                                                         (pool.chunks.size() + 1) * pool.pages_per_chunk - 1, index)));
    const void* pointer = chunk.as();
    void* slot = tables_.as<void*>() + uint64_t{index} * kMaxChunks + pool.chunks.size();
    HC_TRY(check_cuda(cudaMemcpy(slot, &pointer, sizeof pointer, cudaMemcpyHostToDevice), "extending the KV cache"));
    pool.chunks.push_back(std::move(chunk));
  }
  pool.n_pages = std::max(pool.n_pages, n_pages);
  return {};
}

Result<void> KvCache::copy_page(uint32_t index, PageId from, PageId to) {
  const Pool& pool = pools_[index];
  HC_CHECK(from < pool.n_pages && to < pool.n_pages, "pages {} and {} of {}", from, to, pool.n_pages);
  return check_cuda(
      cudaMemcpyAsync(page(pool, to), page(pool, from), pool.page_bytes, cudaMemcpyDeviceToDevice, stream_),
      fmt::format("copying a page of {} bytes", pool.page_bytes));
}

CacheView KvCache::view(const program::CacheLayer& layer) const {
  const Pool& pool = pools_[layer.pool];
  CacheView view;
  view.chunks = tables_.as<uint8_t*>() + uint64_t{layer.pool} * kMaxChunks;
  view.chunk_shift = uint32_t(std::countr_zero(pool.pages_per_chunk));
  view.page_bytes = pool.page_bytes;
  view.head_bytes = pool.key_bytes + pool.value_bytes;
  view.layer_offset = view.head_bytes * pool.n_kv_heads * layer.layer_in_pool;
  view.value_offset = pool.key_bytes;
  view.n_kv_heads = layer.n_kv_heads;
  view.key_dim = layer.key_dim;
  view.value_dim = layer.value_dim;
  view.type = uint8_t(type_);
  return view;
}

}  // namespace honeycrisp::backend::cuda
