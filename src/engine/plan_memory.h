// Whether the sizes that were asked for make sense and fit, before anything of them is allocated.
#pragma once

#include "backend/backend.h"
#include "base/result.h"
#include "engine/kv_cache.h"
#include "model/model.h"
#include <honeycrisp/engine.h>

namespace honeycrisp::engine {

backend::CacheType cache_type(KvType type);
backend::Activations activations(const EngineOptions& options);

/// Limits of the cache for a context that is resolved. Errors: an option out of range (named), a session that cannot
/// fit into kv_memory_limit or into the machine's memory (`machine_bytes`, 0: unknown), with the numbers.
Result<KvCache::Limits> plan_cache(const EngineOptions& options, uint32_t context, const model::Model& model,
                                   uint64_t machine_bytes);

/// Bytes that a program takes with one full session on the plan's device, held against what that keeps well. Empty if
/// they fit or no limit is known, else both numbers and what that means: it runs, slowly.
std::string over_device(const backend::Plan& plan, uint64_t bytes);

}  // namespace honeycrisp::engine
