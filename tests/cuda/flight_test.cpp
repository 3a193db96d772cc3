// Steps in flight give the tokens and the bits of steps one by one: through the executor, through sequences that share
// pages, and in whole generations.
#include "cuda/cuda_test.h"
#include "engine/stepper.h"
#include "support/golden_families.h"
#include <honeycrisp/generate.h>

#include <algorithm>
#include <deque>

namespace honeycrisp::testing {
namespace {

using engine::Sequence;
using test_support::golden_path;
using test_support::TinyProgram;

class CudaFlight : public OnCuda {};

/// A layer of attention, with packed weights for the persistent kernel, or with f32 for graphs.
std::unique_ptr<TinyProgram> make_program(bool persistent) {
  auto t = std::make_unique<TinyProgram>(persistent ? 512 : 96, !persistent);
  t->only_packed = persistent;
  t->attention([](auto&, auto&) {});
  t->finish();
  return t;
}

/// A cache and a stepper over the device.
struct Bed {
  explicit Bed(bool persistent)
      : tiny(make_program(persistent)),
        executor(compile(backend::cuda_backend(), tiny->program, CacheType::kF16)),
        cache(*executor, tiny->program, {.context = 2048, .chunk = 64, .sessions = 4}),
        stepper(*executor, cache, {.chunk = 64, .table_rows = vocabulary(), .vocabulary = vocabulary()}) {
    EXPECT_EQ(is_persistent(*executor), persistent) << reasons(*executor);
  }
  uint32_t vocabulary() const { return tiny->program.vocabulary; }

  TopLogits append(Sequence& sequence, const std::vector<int32_t>& tokens, Role role, uint32_t n_top = 1,
                   uint32_t ahead = 0) {
    TopLogits top;
    sequence.push(tokens, role);
    const engine::Work work{.sequence = &sequence, .n_top = n_top, .top = &top, .ahead = ahead};
    while (true) {
      const auto more = stepper.step({&work, 1});
      EXPECT_TRUE(more.has_value()) << more.error().message;
      if (!more || !*more) return top;
      if (sequence.computed() == sequence.size()) return top;
    }
  }

  std::unique_ptr<TinyProgram> tiny;
  std::unique_ptr<backend::Executor> executor;
  engine::KvCache cache;
  engine::Stepper stepper;
};

/// Tokens and logits of `n` greedy steps, of which every fifth, if `odd`, is given another token than the likely one.
struct Path {
  std::vector<int32_t> tokens;
  std::vector<float> logits;  // of the largest
  bool operator==(const Path& other) const { return tokens == other.tokens && same_bits(logits, other.logits); }
};
Path walk(Bed& bed, Sequence& sequence, TopLogits top, int n, uint32_t ahead, bool odd = false) {
  Path path;
  for (int i = 0; i < n; ++i) {
    const int32_t token = odd && i % 5 == 4 ? (top.tokens[0] + 1) % int32_t(bed.vocabulary()) : top.tokens[0];
    top = bed.append(sequence, {token}, Role::kGenerated, 1 + uint32_t(i) / 200, ahead);
    path.tokens.push_back(token);
    path.logits.insert(path.logits.end(), top.logits.begin(), top.logits.begin() + top.n);
  }
  return path;
}

TEST_F(CudaFlight, sequences_walk_the_same_path_and_share_their_pages) {
  for (const bool persistent : {true, false}) {
    SCOPED_TRACE(persistent ? "persistent" : "graph");
    Bed bed(persistent);
    const std::vector<int32_t> prompt = some_tokens(50, bed.vocabulary());
    for (const bool odd : {false, true}) {
      std::deque<Sequence> sequences;
      std::vector<Path> paths, later;
      for (const uint32_t ahead : {0u, 1u, 2u, 3u, 9u}) {
        Sequence& sequence = sequences.emplace_back(bed.cache);
        const TopLogits top = bed.append(sequence, prompt, Role::kPrompt);
        paths.push_back(walk(bed, sequence, top, 600, ahead, odd));  // through pages, and chunks of attention
        EXPECT_EQ(paths.back(), paths[0]) << ahead;
        // With steps in flight, others go on from a beginning that they share.
        bed.stepper.land(sequence);
        Sequence fork = sequence.fork();
        fork.truncate(301);
        Path path = walk(bed, fork, bed.append(fork, {3}, Role::kGenerated), 100, ahead);
        const Path own = walk(bed, sequence, bed.append(sequence, {5}, Role::kGenerated), 30, ahead);
        path.tokens.insert(path.tokens.end(), own.tokens.begin(), own.tokens.end());
        path.logits.insert(path.logits.end(), own.logits.begin(), own.logits.end());
        later.push_back(std::move(path));
        EXPECT_EQ(later.back(), later[0]) << ahead;
        bed.stepper.land(fork);
      }
      bed.stepper.land(sequences.back());
    }
  }
}

TEST_F(CudaFlight, an_executor_collects_what_it_was_given_in_order) {
  for (const bool persistent : {true, false}) {
    Bed bed(persistent);
    ASSERT_EQ(bed.executor->most_in_flight(), 4u);
    const std::vector<backend::PageId> page = {0};
    ASSERT_TRUE(bed.executor->reserve_pages(0, 1));
    const backend::SequencePages pages{.tables = {page}};
    const auto row = [&](uint32_t position, uint8_t n_top) {
      return backend::Row{
          .token = 1, .position = position, .wants_logits = true, .role = Role::kGenerated, .n_top = n_top};
    };
    const auto issue = [&](backend::Row r, bool follows) {
      return bed.executor->issue({.rows = {&r, 1}, .sequences = {&pages, 1}}, follows);
    };
    EXPECT_FALSE(issue(row(0, 0), false)) << "all logits";
    for (uint32_t i = 0; i < 4; ++i) ASSERT_TRUE(issue(row(i, uint8_t(1 + i)), i != 0));
    int32_t token = 1;
    for (uint32_t i = 0; i < 4; ++i) {
      const auto flown = bed.executor->collect();
      ASSERT_TRUE(flown.has_value()) << flown.error().message;
      EXPECT_EQ(flown->n, 1 + i);
      if (i == 3) break;
      token = flown->tokens[0];
    }
    backend::Row last = row(3, 1);
    last.token = token;
    TopLogits alone;
    ASSERT_TRUE(bed.executor->step({.rows = {&last, 1}, .sequences = {&pages, 1}}, {}, {&alone, 1}));
    ASSERT_TRUE(issue(last, false));
    EXPECT_EQ(bed.executor->collect().value().tokens, alone.tokens);
  }
}

// A bias of nothing takes all logits, and so a step at a time.
TEST_F(CudaFlight, generations_are_those_of_single_steps) {
  for (const char* family : {"llama", "gemma3", "qwen3moe", "qwen3next"}) {
    SCOPED_TRACE(family);
    const auto engine = Engine::load(golden_path(family, ".gguf"), {.backend = "cuda", .context = 256});
    ASSERT_TRUE(engine) << engine.error().message;
    Session flown = (*engine)->new_session().value(), stepped = (*engine)->new_session().value();
    std::vector<Token> prompt = some_tokens(9, (*engine)->info().vocabulary);
    // Stops in the middle, after each of which the session goes on from what it holds.
    for (const uint32_t n : {1u, 2u, 7u, 60u, 70u}) {
      const auto go_on = [&](Session& session, const SamplingOptions& sampling) {
        uint32_t asked = 0;
        return generate(**engine, session, prompt, sampling, {.should_stop = [&] { return asked++ == n; }}).value();
      };
      const Generation a = go_on(flown, {.temperature = 0});
      const Generation b = go_on(stepped, {.temperature = 0, .logit_bias = {{0, 0.0f}}});
      EXPECT_EQ(a.tokens, b.tokens);
      EXPECT_EQ(a.finish_reason, b.finish_reason);
      EXPECT_TRUE(std::ranges::equal(flown.tokens(), stepped.tokens()));
      prompt.insert(prompt.end(), a.tokens.begin(), a.tokens.end());
    }
    EXPECT_GT(prompt.size(), 20u);
  }
}

}  // namespace
}  // namespace honeycrisp::testing
