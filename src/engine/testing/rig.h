// A cache and a stepper over the toy backend, for tests below sessions.
#pragma once

#include "engine/stepper.h"
#include "engine/testing/toy_backend.h"

#include <memory>
#include <numeric>
#include <span>
#include <vector>

namespace honeycrisp::engine::toy {

inline constexpr uint32_t kVocabulary = 5;

inline std::vector<int32_t> some_tokens(size_t n, int32_t first = 0) {
  std::vector<int32_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

/// A cache and a stepper over the toy.
struct Rig {
  explicit Rig(std::vector<uint32_t> windows, const KvCache::Limits& limits = {}, uint32_t vocabulary = kVocabulary,
               uint32_t recurrent = 0)
      : program(make_program(std::move(windows), kVocabulary, recurrent)),
        executor(program, control),
        cache(executor, program, limits),
        stepper(executor, cache, {.chunk = limits.chunk, .table_rows = kVocabulary, .vocabulary = vocabulary}) {}

  /// Adds the tokens, computes what is missing, and returns the last row's logits.
  Result<std::vector<float>> append(Sequence& sequence, std::span<const int32_t> tokens,
                                    backend::Role role = backend::Role::kPrompt) {
    const uint32_t before = sequence.size();
    sequence.push(tokens, role);
    std::vector<float> logits(kVocabulary);
    Work work{&sequence, sequence.size() - 1, logits};
    while (true) {
      Result<bool> more = stepper.step({&work, 1});
      if (!more) {
        sequence.truncate(before);
        return tl::unexpected(more.error());
      }
      if (!*more) return logits;
    }
  }
  std::vector<float> expected(const Sequence& sequence) const { return expected_logits(program, sequence.tokens()); }
  /// append() succeeds with the logits of a plain recomputation.
  bool append_matches(Sequence& sequence, std::span<const int32_t> tokens,
                      backend::Role role = backend::Role::kPrompt) {
    const Result<std::vector<float>> logits = append(sequence, tokens, role);
    return logits && *logits == expected(sequence);
  }
  uint32_t used_pages() const {
    uint32_t used = 0;
    for (const PagePool& pool : cache.pools) used += pool.used();
    return used;
  }

  std::shared_ptr<Control> control = std::make_shared<Control>();
  program::Program program;
  Executor executor;
  KvCache cache;
  Stepper stepper;
};

inline const KvCache::Limits kSmall{.context = 1024, .rollback = 16, .chunk = 32, .sessions = 4};

}  // namespace honeycrisp::engine::toy
