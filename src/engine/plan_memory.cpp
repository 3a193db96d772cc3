// See plan_memory.h.
#include "engine/plan_memory.h"

#include "base/checked.h"
#include "engine/bytes.h"

#include <algorithm>

namespace honeycrisp::engine {
namespace {

constexpr uint32_t kMaxChunk = 16384;  // rows: activations of a batch are allocated at load
constexpr uint32_t kMaxSessions = 65536;

std::string show(std::optional<uint64_t> bytes) { return bytes ? format_bytes(*bytes) : "more than 16 EiB"; }

}  // namespace

backend::CacheType cache_type(KvType type) {
  switch (type) {
    case KvType::kF16: return backend::CacheType::kF16;
    case KvType::kF32: return backend::CacheType::kF32;
    case KvType::kQ8_0: return backend::CacheType::kQ8_0;
  }
  return backend::CacheType::kF16;
}

uint32_t resolve_context(const EngineOptions& options, uint64_t trained_context) {
  if (options.context != 0) return options.context;
  return trained_context == 0 ? kDefaultContext : uint32_t(std::min<uint64_t>(trained_context, kDefaultContext));
}

Result<KvCache::Limits> plan_cache(const EngineOptions& options, uint32_t context, const model::Model& model,
                                   uint64_t machine_bytes) {
  if (options.chunk == 0 || options.chunk > kMaxChunk)
    return invalid("chunk must be between 1 and {} positions, not {}", kMaxChunk, options.chunk);
  if (options.max_sessions == 0 || options.max_sessions > kMaxSessions)
    return invalid("max_sessions must be between 1 and {}, not {}", kMaxSessions, options.max_sessions);

  KvCache::Limits limits{
      .context = context, .rollback = options.rollback, .chunk = options.chunk, .sessions = options.max_sessions};
  const auto one = sequence_bytes(model.program.pools, cache_type(options.kv_type), limits);
  const std::string_view type = backend::to_string(cache_type(options.kv_type));
  if (machine_bytes != 0 && (!one || *one > machine_bytes)) {
    return fail(ErrorCode::kOutOfMemory,
                "a context of {} needs {} of {} KV cache per session, and this machine has {} of memory (lower the "
                "context)",
                context, show(one), type, format_bytes(machine_bytes));
  }
  if (options.kv_memory_limit != 0 && (!one || *one > options.kv_memory_limit)) {
    return fail(ErrorCode::kOutOfMemory,
                "a context of {} needs {} of {} KV cache per session, and the limit is {} (lower the context or raise "
                "the limit)",
                context, show(one), type, format_bytes(options.kv_memory_limit));
  }
  return limits;
}

}  // namespace honeycrisp::engine
