// What the tests of the cpu backend share: executors of tiny programs, and sequences to run on them.
#pragma once

#include "backend/cpu/executor.h"
#include "base/checked.h"
#include "support/tiny_program.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <vector>

namespace honeycrisp::backend::cpu::testing {

using namespace honeycrisp::test_support;

/// The available instruction sets, and variants of them that only the tests run.
std::vector<const Isa*> tested_isas();

constexpr uint32_t kMaxRows = 64;

inline CompileOptions options(CacheType type, uint32_t max_rows = kMaxRows,
                              Activations activations = Activations::k14Bit) {
  return {.cache_type = type, .activations = activations, .max_rows = max_rows, .max_positions = 2048};
}

inline std::unique_ptr<Executor> make(const TinyProgram& t, const Isa& isa, uint32_t threads,
                                      CacheType type = CacheType::kF32, uint32_t max_rows = kMaxRows,
                                      Activations activations = Activations::k14Bit) {
  auto executor = make_executor(t.program, options(type, max_rows, activations), isa, threads, "test");
  EXPECT_TRUE(executor.has_value()) << executor.error().message;
  return executor ? std::move(*executor) : nullptr;
}

// Sequences with pages and recurrent states of their own. Pages lie in descending order.
class Sequences {
 public:
  Sequences(Executor& executor, const program::Program& program, uint32_t n, uint32_t positions)
      : executor_(executor), program_(program) {
    const uint32_t n_pages = ceil_div(positions, kPositionsPerPage);
    for (uint32_t pool = 0; pool < program.pools.size(); ++pool)
      EXPECT_TRUE(executor.reserve_pages(pool, n * n_pages).has_value());
    EXPECT_TRUE(executor.reserve_states(n).has_value());
    pages_.resize(size_t{n} * n_pages);
    std::iota(pages_.rbegin(), pages_.rend(), 0);
    for (uint32_t i = 0; i < n; ++i)
      all_.push_back({.tables = std::vector(program.pools.size(),
                                            std::span<const PageId>(pages_).subspan(size_t{i} * n_pages, n_pages)),
                      .state = n - 1 - i});
  }
  /// Logits of every row.
  std::vector<float> step(const std::vector<Row>& rows) {
    std::vector<float> logits(rows.size() * program_.vocabulary);
    step(rows, logits);
    return logits;
  }
  void step(const std::vector<Row>& rows, std::span<float> logits) {
    const auto done = executor_.step({rows, all_}, logits);
    EXPECT_TRUE(done.has_value()) << done.error().message;
  }

 private:
  Executor& executor_;
  const program::Program& program_;
  std::vector<PageId> pages_;
  std::vector<SequencePages> all_;
};

inline Row row(uint32_t position, uint32_t sequence = 0) {
  return {int32_t((position * 7 + sequence * 3) % TinyProgram::kVocabulary), position, sequence, true, Role::kPrompt};
}

// Logits of every position of one sequence, computed `chunk` rows at a time.
inline std::vector<float> all_logits(Executor& executor, const program::Program& p, uint32_t positions,
                                     uint32_t chunk) {
  Sequences sequences(executor, p, 1, positions);
  std::vector<float> all;
  for (uint32_t first = 0; first < positions; first += chunk) {
    std::vector<Row> rows;
    for (uint32_t i = first; i < std::min(positions, first + chunk); ++i) rows.push_back(row(i));
    const std::vector<float> logits = sequences.step(rows);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

}  // namespace honeycrisp::backend::cpu::testing
