// A program compiled for a backend, and one sequence computed in any chunks and either role: what the tests of every
// GPU backend share.
#pragma once

#include "backend/backend.h"
#include "base/checked.h"

#include <cstring>
#include <gtest/gtest.h>
#include <numeric>
#include <vector>

namespace honeycrisp::testing {

using backend::CacheType;
using backend::Role;

inline std::unique_ptr<backend::Executor> compile(const backend::Backend& backend, const program::Program& program,
                                                  CacheType type, uint32_t max_rows = 512,
                                                  uint32_t max_positions = 2048) {
  backend::CompileOptions options;
  options.cache_type = type;
  options.max_rows = max_rows;
  options.max_positions = max_positions;
  auto executor = backend.compile(program, options);
  EXPECT_TRUE(executor.has_value()) << executor.error().message;
  return executor ? std::move(*executor) : nullptr;
}

/// Logits of every position of one sequence, `chunk` rows at a time. Pages lie in descending order.
inline std::vector<float> all_logits(backend::Executor& executor, const program::Program& program,
                                     const std::vector<int32_t>& tokens, size_t chunk, Role role) {
  std::vector<backend::PageId> pages(ceil_div<size_t>(tokens.size(), program::kPagePositions));
  std::iota(pages.rbegin(), pages.rend(), 0);
  for (uint32_t pool = 0; pool < program.pools.size(); ++pool)
    EXPECT_TRUE(executor.reserve_pages(pool, uint32_t(pages.size())).has_value());
  backend::SequencePages sequence;
  sequence.tables.assign(program.pools.size(), pages);
  if (!program.states.empty()) {
    EXPECT_TRUE(executor.reserve_states(1).has_value());
    sequence.state = 0;
  }
  std::vector<float> logits(tokens.size() * program.vocabulary);
  for (size_t first = 0; first < tokens.size(); first += chunk) {
    std::vector<backend::Row> rows;
    for (size_t i = first; i < std::min(tokens.size(), first + chunk); ++i)
      rows.push_back({tokens[i], uint32_t(i), 0, true, role});
    const auto done =
        executor.step({rows, {&sequence, 1}},
                      std::span(logits).subspan(first * program.vocabulary, rows.size() * program.vocabulary));
    EXPECT_TRUE(done.has_value()) << done.error().message;
    if (!done) break;
  }
  return logits;
}

inline std::vector<int32_t> some_tokens(uint32_t n, uint32_t vocabulary) {
  std::vector<int32_t> tokens;
  for (uint32_t i = 0; i < n; ++i) tokens.push_back(int32_t(i * 7 % vocabulary));
  return tokens;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline constexpr Role kRoles[] = {Role::kPrompt, Role::kGenerated};
inline const char* name_of(Role role) { return role == Role::kPrompt ? "prompt" : "generated"; }

}  // namespace honeycrisp::testing
