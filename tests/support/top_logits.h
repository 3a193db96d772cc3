// The largest logits that a backend brings back against a search in all of them, in batches that mix what rows want;
// and a model whose logits are what a test says. What the tests of every backend share.
#pragma once

#include "backend/backend.h"
#include "backend/top_logits.h"
#include "base/checked.h"
#include "program/check.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <vector>

namespace honeycrisp::testing {

/// After token t the logits are column t of a table, times `scales[t]`.
struct LogitsModel {
  program::Program program;
  std::vector<float> embedding, table;

  LogitsModel(const std::vector<std::vector<float>>& columns, const std::vector<float>& scales) {
    const auto n = uint32_t(columns.size()), vocabulary = uint32_t(columns[0].size());
    embedding.resize(size_t{vocabulary} * n);
    table.resize(size_t{vocabulary} * n);
    for (uint32_t t = 0; t < n; ++t) {
      embedding[size_t{t} * n + t] = scales[t];
      for (uint32_t i = 0; i < vocabulary; ++i) table[size_t{i} * n + t] = columns[t][i];
    }
    program.vocabulary = vocabulary;
    program.n_layers = 1;
    program.buffers.push_back({"x", n});
    for (std::vector<float>* values : {&embedding, &table})
      program.weights.push_back({.name = "w",
                                 .format = quant::Format::kF32,
                                 .cols = n,
                                 .rows = vocabulary,
                                 .slices = 1,
                                 .data = reinterpret_cast<const std::byte*>(values->data()),
                                 .bytes = values->size() * sizeof(float)});
    program.steps.push_back({program::Embed{{0, 0, vocabulary}, {0, 0, n}, 1.0f}, "embed", {}});
    program.steps.push_back({program::Logits{{0, 0, n}, {}, {1, 0, vocabulary}, 1.0f, 0.0f}, "logits", {}});
    const auto checked = program::check(program);
    EXPECT_TRUE(checked.has_value()) << checked.error().message;
  }
  LogitsModel(const LogitsModel&) = delete;  // the program points into it
};

/// Several models, the vocabulary of which is of an odd size: random logits, many ties, order, zeros of both signs,
/// bans, and numbers that nobody may sample.
inline std::vector<std::unique_ptr<LogitsModel>> logits_models(uint32_t vocabulary) {
  constexpr float kHuge = 3e38f;  // times 10 it is infinite
  uint64_t seed = 7;
  const auto random = [&] {
    seed = seed * 6364136223846793005 + 1442695040888963407;
    return float(int64_t(seed >> 40) - (1 << 23)) / float(1 << 21);  // ±4
  };
  const auto column = [&](auto value) {
    std::vector<float> values(vocabulary);
    for (uint32_t i = 0; i < vocabulary; ++i) values[i] = value(i);
    return values;
  };
  const std::vector<float> ones(8, 1.0f);
  std::vector<std::unique_ptr<LogitsModel>> models;
  models.push_back(std::make_unique<LogitsModel>(
      std::vector{column([&](uint32_t) { return random(); }), column([&](uint32_t) { return std::round(random()); }),
                  column([](uint32_t i) { return float(i); }), column([](uint32_t i) { return -float(i); }),
                  column([](uint32_t) { return -2.5f; }), column([](uint32_t i) { return i % 2 == 0 ? 0.0f : -0.0f; }),
                  column([&](uint32_t) { return random(); }),
                  column([](uint32_t i) { return i % 5 == 1 ? kHuge : 1; })},
      std::vector<float>{1, 1, 1, 1, 1, 1, 1e-3f, 10}));
  // A row of the table that is no number makes every token's logit so.
  models.push_back(std::make_unique<LogitsModel>(
      std::vector(8, column([&](uint32_t i) { return i % 1000 == 7 ? std::nanf("") : random(); })), ones));
  models.push_back(std::make_unique<LogitsModel>(
      std::vector(8, column([&](uint32_t i) { return i < vocabulary / 2 || i % 3 == 0 ? -kHuge : random(); })),
      std::vector<float>(8, 10)));
  return models;
}

/// Rows of one sequence from position 0 on, n_top of each: −1 no logits at all.
inline Result<void> step_of_wants(backend::Executor& executor, const program::Program& program,
                                  std::span<const int32_t> tokens, std::span<const backend::Role> roles,
                                  std::span<const int> wants, std::span<float> logits, std::span<TopLogits> top) {
  std::vector<backend::PageId> pages(ceil_div<size_t>(tokens.size(), program::kPagePositions));
  std::iota(pages.begin(), pages.end(), 0);
  for (uint32_t pool = 0; pool < program.pools.size(); ++pool)
    if (auto made = executor.reserve_pages(pool, uint32_t(pages.size())); !made) return made;
  backend::SequencePages sequence;
  sequence.tables.assign(program.pools.size(), pages);
  if (!program.states.empty()) {
    if (auto made = executor.reserve_states(1); !made) return made;
    sequence.state = 0;
  }
  std::vector<backend::Row> rows;
  for (uint32_t i = 0; i < tokens.size(); ++i)
    rows.push_back({.token = tokens[i],
                    .position = i,
                    .wants_logits = wants[i] >= 0,
                    .role = roles[i],
                    .n_top = uint8_t(std::max(0, wants[i]))});
  return executor.step({rows, {&sequence, 1}}, logits, top);
}

/// `n_choosable`: what the executor was compiled for, resolved.
inline void expect_top_logits(backend::Executor& executor, const program::Program& program, uint32_t n_choosable,
                              std::span<const int32_t> tokens, std::span<const backend::Role> roles) {
  const size_t n = tokens.size(), vocabulary = program.vocabulary;
  const std::vector<int> all(n, 0);
  std::vector<float> expected(n * vocabulary);
  const auto done = step_of_wants(executor, program, tokens, roles, all, expected, {});
  ASSERT_TRUE(done.has_value()) << done.error().message;
  const auto row = [&](size_t i) { return std::span<const float>(expected).subspan(i * vocabulary, vocabulary); };

  for (const std::vector<int>& pattern :
       {std::vector{1}, {40}, {64}, {-1, 3}, {0, 5}, {64, 1, 0, -1, 2}, {7, 0}, {0, -1, 0}}) {
    std::vector<int> wants(n);
    size_t n_all = 0, n_top = 0;
    for (size_t i = 0; i < n; ++i) {
      wants[i] = pattern[i % pattern.size()];
      n_all += wants[i] == 0 ? 1 : 0;
      n_top += wants[i] > 0 ? 1 : 0;
    }
    std::vector<float> logits(n_all * vocabulary);
    std::vector<TopLogits> tops(n_top);
    const auto stepped = step_of_wants(executor, program, tokens, roles, wants, logits, tops);
    ASSERT_TRUE(stepped.has_value()) << stepped.error().message;
    const float* next = logits.data();
    for (size_t i = 0, at = 0; i < n; ++i) {
      if (wants[i] == 0) {
        ASSERT_EQ(std::memcmp(next, row(i).data(), vocabulary * sizeof(float)), 0) << "row " << i;
        next += vocabulary;
      } else if (wants[i] > 0) {
        const TopLogits want = backend::top_logits(row(i).first(n_choosable), uint32_t(wants[i])), &got = tops[at++];
        ASSERT_EQ(got.n, want.n) << "row " << i;
        ASSERT_EQ(got.n_unusable, want.n_unusable) << "row " << i;
        for (uint32_t rank = 0; rank < want.n; ++rank) {
          ASSERT_EQ(got.tokens[rank], want.tokens[rank]) << "row " << i << ", rank " << rank;
          ASSERT_EQ(std::memcmp(&got.logits[rank], &want.logits[rank], sizeof(float)), 0)
              << "row " << i << ", rank " << rank;
        }
      }
    }
  }
}

/// The models above on a backend: batches of so many rows of prompts, generated rows and both.
inline void expect_top_logits_of_models(const backend::Backend& on, uint32_t vocabulary,
                                        const std::vector<size_t>& rows) {
  using backend::Role;
  for (const auto& model : logits_models(vocabulary))
    for (const uint32_t n_choosable : {0u, vocabulary - 3, 30u}) {
      const auto executor = on.compile(model->program, {.max_rows = 16, .n_choosable = n_choosable});
      ASSERT_TRUE(executor.has_value()) << executor.error().message;
      for (const size_t n : rows) {
        std::vector<int32_t> tokens(n);
        for (size_t i = 0; i < n; ++i) tokens[i] = int32_t(i % 8);
        std::vector<Role> mixed(n, Role::kGenerated);
        std::fill_n(mixed.begin(), n / 2, Role::kPrompt);
        for (const std::vector<Role>& roles : {std::vector(n, Role::kPrompt), std::vector(n, Role::kGenerated), mixed})
          expect_top_logits(**executor, model->program, n_choosable == 0 ? vocabulary : n_choosable, tokens, roles);
      }
    }
}

}  // namespace honeycrisp::testing
