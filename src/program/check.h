// Shape check of a Program, grouping of its caches, and byte counts.
#pragma once

#include "base/result.h"
#include "program/program.h"

namespace honeycrisp::program {

/// Groups the cache layers into pools of one geometry and window; fills in Program::pools and each CacheLayer's place.
void assign_pools(Program& program);

/// Verifies that every op's shapes, references and reads-after-writes hold, that attention does not overwrite its own
/// input, and that the embedding has a row for every logit. An error names the step. Backends may rely on a checked
/// Program and only CHECK.
Result<void> check(const Program& program);

/// Bytes of weights that one row of a step reads in this op (an Embed reads one row of its table, a
/// mixture the experts that it chooses).
uint64_t weight_bytes(const Program& program, const Op& op);
/// The same, all ops: what a decoded token reads besides its cache.
uint64_t weight_bytes(const Program& program);
/// Bytes of the recurrent state of one sequence, all layers; 0: the program has none.
uint64_t state_bytes(const Program& program);
/// Multiply-adds with weights that one row takes in this op.
uint64_t weight_multiply_adds(const Program& program, const Op& op);
/// Values of keys and values that a row at `position` reads from the cache in this op.
uint64_t cache_values_read(const Program& program, const Op& op, uint32_t position);
/// Multiply-adds of a row's attention at `position` in this op.
uint64_t attention_multiply_adds(const Program& program, const Op& op, uint32_t position);
/// Bytes of all distinct weights (a tied embedding once).
uint64_t resident_bytes(const Program& program);

}  // namespace honeycrisp::program
