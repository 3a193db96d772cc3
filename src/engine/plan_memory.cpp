// See plan_memory.h.
#include "engine/plan_memory.h"

#include "base/bytes.h"
#include "base/checked.h"

#include <algorithm>

namespace honeycrisp::engine {
namespace {

constexpr uint32_t kMaxChunk = 16384;  // rows: activations of a batch are allocated at load
constexpr uint32_t kMaxSessions = 65536;
constexpr uint32_t kMaxCheckpoints = 1024;

std::string show(std::optional<uint64_t> bytes) { return bytes ? format_bytes(*bytes) : "more than 16 EiB"; }

/// What one full session takes, in bytes and in words.
struct Need {
  std::optional<uint64_t> total;
  std::string text, advice;
};

Need session_need(const program::Program& program, backend::CacheType type, const KvCache::Limits& limits) {
  Need need{.advice = "lower the context"};
  const auto pages = sequence_page_bytes(program.pools, type, limits);
  need.text =
      fmt::format("a context of {} needs {} of {} KV cache", limits.context, show(pages), backend::to_string(type));
  need.total = pages;
  if (!program.states.empty()) {
    const auto states = sequence_state_bytes(program, limits);
    need.total = pages && states ? checked_add(*pages, *states) : std::nullopt;
    need.text += fmt::format(" and {} of recurrent state with {} checkpoints", show(states), limits.checkpoints);
    need.advice += " or state_checkpoints";
  }
  need.text += " per session";
  return need;
}

}  // namespace

backend::Activations activations(const EngineOptions& options) {
  return options.fast_activations ? backend::Activations::k8Bit : backend::Activations::k14Bit;
}

backend::CacheType cache_type(KvType type) {
  switch (type) {
    case KvType::kF16: return backend::CacheType::kF16;
    case KvType::kF32: return backend::CacheType::kF32;
    case KvType::kQ8_0: return backend::CacheType::kQ8_0;
  }
  return backend::CacheType::kF16;
}

Result<KvCache::Limits> plan_cache(const EngineOptions& options, uint32_t context, const model::Model& model,
                                   uint64_t machine_bytes) {
  if (options.chunk == 0 || options.chunk > kMaxChunk)
    return invalid("chunk must be between 1 and {} positions, not {}", kMaxChunk, options.chunk);
  if (options.max_sessions == 0 || options.max_sessions > kMaxSessions)
    return invalid("max_sessions must be between 1 and {}, not {}", kMaxSessions, options.max_sessions);

  const bool recurrent = !model.program.states.empty();
  if (options.state_checkpoints > kMaxCheckpoints)
    return invalid("state_checkpoints must be at most {}, not {}", kMaxCheckpoints, options.state_checkpoints);
  const KvCache::Limits limits{.bytes = options.kv_memory_limit,
                               .context = context,
                               .rollback = options.rollback,
                               .chunk = options.chunk,
                               .sessions = options.max_sessions,
                               .checkpoints = recurrent ? options.state_checkpoints : 0};
  const Need need = session_need(model.program, cache_type(options.kv_type), limits);
  if (machine_bytes != 0 && (!need.total || *need.total > machine_bytes)) {
    return fail(ErrorCode::kOutOfMemory, "{}, and {} of memory may be used here ({})", need.text,
                format_bytes(machine_bytes), need.advice);
  }
  if (options.kv_memory_limit != 0 && (!need.total || *need.total > options.kv_memory_limit)) {
    return fail(ErrorCode::kOutOfMemory, "{}, and the limit is {} ({}, or raise the limit)", need.text,
                format_bytes(options.kv_memory_limit), need.advice);
  }
  return limits;
}

std::string over_device(const backend::Plan& plan, uint64_t bytes) {
  if (plan.device_bytes == 0 || bytes <= plan.device_bytes) return "";
  return fmt::format(
      "weights, the cache of one session and activations take {}, and the GPU should not hold more than {} at once: it "
      "runs, but the system moves memory in and out (lower the context, or take a smaller quantization)",
      format_bytes(bytes), format_bytes(plan.device_bytes));
}

}  // namespace honeycrisp::engine
