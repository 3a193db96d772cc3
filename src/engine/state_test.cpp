// Recurrent state over the toy backend, whose logits show any state that is not what it should be: checkpoints, forks,
// rewinds, failures and budgets all give the bits of a plain recomputation.
#include "engine/plan_memory.h"
#include "engine/testing/rig.h"
#include "engine/testing/toy_engine.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <list>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

namespace honeycrisp::engine {
namespace {

using namespace toy;
using backend::Role;

constexpr uint32_t kLayers = 2;  // recurrent
const KvCache::Limits kFour{.context = 8192, .rollback = 16, .chunk = 32, .sessions = 4, .checkpoints = 4};

KvCache::Limits with_bytes(uint64_t bytes) {
  KvCache::Limits limits = kFour;
  limits.bytes = bytes;
  return limits;
}

struct StateRig : Rig {
  explicit StateRig(const KvCache::Limits& limits = kFour, std::vector<uint32_t> windows = {0})
      : Rig(std::move(windows), limits, kVocabulary, kLayers) {}
  /// Rows that computing what is missing and one more token take.
  uint64_t rows_of_next(Sequence& sequence) {
    const uint64_t before = control->rows;
    EXPECT_TRUE(append_matches(sequence, some_tokens(1, 3)));
    return control->rows - before;
  }
};

TEST(State, chunks_of_any_size_give_the_same_logits) {
  for (const uint32_t chunk : {1u, 2u, 3u, 7u, 64u, 65u, 512u}) {
    KvCache::Limits limits = kFour;
    limits.chunk = chunk;
    StateRig rig(limits);
    Sequence sequence(rig.cache);
    EXPECT_TRUE(rig.append_matches(sequence, some_tokens(700))) << chunk;
    EXPECT_TRUE(rig.append_matches(sequence, some_tokens(1, 9), Role::kGenerated)) << chunk;
  }
}

TEST(State, a_program_without_recurrent_layers_has_none) {
  Rig rig({0}, kFour);
  Sequence sequence(rig.cache);
  EXPECT_TRUE(rig.append_matches(sequence, some_tokens(300)));
  EXPECT_EQ(rig.cache.states.capacity(), 0u);
  EXPECT_EQ(rig.control->steps, 10u) << "nothing is cut";
  EXPECT_EQ(sequence.pages().state, kNoState);
}

TEST(State, a_rewind_goes_on_from_the_newest_checkpoint_with_the_same_roles) {
  KvCache::Limits limits = kFour;
  limits.chunk = 512;
  StateRig rig(limits);
  Sequence sequence(rig.cache);
  rig.append(sequence, some_tokens(400)).value();  // ends batches at 128 and 384
  rig.append(sequence, some_tokens(20, 50), Role::kGenerated).value();
  sequence.truncate(410);
  EXPECT_EQ(sequence.computed(), 384u);
  rig.control->roles.clear();
  EXPECT_EQ(rig.rows_of_next(sequence), 27u);
  EXPECT_EQ(rig.control->roles[15], Role::kPrompt);
  EXPECT_EQ(rig.control->roles[16], Role::kGenerated);
  sequence.truncate(383);
  EXPECT_EQ(sequence.computed(), 128u);
  EXPECT_TRUE(rig.append_matches(sequence, some_tokens(10, 2)));
  sequence.truncate(127);
  EXPECT_EQ(sequence.computed(), 0u) << "below all checkpoints";
  EXPECT_TRUE(rig.append_matches(sequence, some_tokens(10, 3)));
  sequence.truncate(0);
  EXPECT_TRUE(rig.append_matches(sequence, some_tokens(10, 4)));
}

TEST(State, a_rewind_to_a_checkpoint_can_be_repeated) {
  StateRig rig;
  Sequence sequence(rig.cache);
  rig.append(sequence, some_tokens(140)).value();
  for (const int32_t first : {1, 2, 3}) {
    sequence.truncate(130);
    EXPECT_EQ(sequence.computed(), 128u);
    EXPECT_TRUE(rig.append_matches(sequence, some_tokens(5, first)));
  }
}

TEST(State, rewinds_recompute_in_proportion_to_the_way_back) {
  StateRig rig;
  Sequence sequence(rig.cache);
  std::vector<float> logits(kVocabulary);
  for (uint32_t n = 0; n < 6000; n += 40) rig.append(sequence, some_tokens(40)).value();
  EXPECT_EQ(sequence.states().checkpoints(), 4u);
  EXPECT_LE(rig.cache.states.used(), 5u);
  for (const uint32_t back : {100u, 500u, 2000u}) {
    Sequence fork = sequence.fork();
    fork.truncate(fork.size() - back);
    EXPECT_LE(fork.size() - fork.computed(), 8 * back) << back;
    EXPECT_GT(fork.computed(), 0u) << back;
  }
}

TEST(State, without_checkpoints_a_rewind_starts_from_zeros) {
  KvCache::Limits limits = kFour;
  limits.checkpoints = 0;
  StateRig rig(limits);
  Sequence sequence(rig.cache);
  rig.append(sequence, some_tokens(200)).value();
  EXPECT_EQ(rig.control->state_copies, 0u);
  EXPECT_EQ(rig.cache.states.capacity(), 1u);
  sequence.truncate(199);
  EXPECT_EQ(sequence.computed(), 0u);
  EXPECT_EQ(rig.rows_of_next(sequence), 200u);
}

TEST(State, forks_share_until_they_step_and_may_step_in_one_batch) {
  StateRig rig;
  Sequence first(rig.cache);
  rig.append(first, some_tokens(70)).value();
  const uint64_t copies = rig.control->state_copies;
  Sequence second = first.fork();
  Sequence third = second.fork();
  EXPECT_EQ(rig.control->state_copies, copies);
  std::vector<std::vector<float>> logits(3, std::vector<float>(kVocabulary));
  std::vector<Work> works;
  for (Sequence* sequence : {&first, &second, &third}) {
    const int32_t i = int32_t(works.size());
    sequence->push(some_tokens(30, i), Role::kPrompt);
    works.push_back({sequence, 99, logits[size_t(i)]});
  }
  ASSERT_TRUE(rig.stepper.reserve(works));
  while (rig.stepper.step(works).value()) {
  }
  EXPECT_EQ(rig.control->state_copies, copies + 2) << "the last holder steps in place";
  EXPECT_EQ(logits[0], rig.expected(first));
  EXPECT_EQ(logits[1], rig.expected(second));
  EXPECT_EQ(logits[2], rig.expected(third));
  third.truncate(64);  // the checkpoint of the first, made before the forks
  EXPECT_EQ(third.computed(), 64u);
  EXPECT_TRUE(rig.append_matches(third, some_tokens(1)));
}

TEST(State, closing_frees_every_slot) {
  StateRig rig;
  {
    Sequence first(rig.cache);
    rig.append(first, some_tokens(200)).value();
    Sequence second = first.fork();
    rig.append(second, some_tokens(100)).value();
    first.mark();
    Sequence moved = std::move(first);
    EXPECT_TRUE(rig.append_matches(moved, some_tokens(2)));
  }
  EXPECT_EQ(rig.cache.states.used(), 0u);
  EXPECT_EQ(rig.used_pages(), 0u);
}

TEST(State, a_failed_step_goes_back_to_a_checkpoint) {
  for (const bool throws : {false, true}) {
    StateRig rig;
    rig.control->throws = throws;
    Sequence sequence(rig.cache);
    rig.append(sequence, some_tokens(70)).value();
    for (const uint64_t after : {0u, 1u, 2u}) {
      rig.control->fail_after = rig.control->steps + after;
      if (throws) {
        EXPECT_THROW((void)rig.append(sequence, some_tokens(90, 1)), std::bad_alloc);
        sequence.truncate(70);
      } else {
        EXPECT_EQ(rig.append(sequence, some_tokens(90, 1)).error().code, ErrorCode::kInternal);
      }
      EXPECT_EQ(sequence.size(), 70u);
      EXPECT_EQ(sequence.computed(), 64u);
      rig.control->fail_after = UINT64_MAX;
      EXPECT_EQ(rig.rows_of_next(sequence), 7u);
      sequence.truncate(70);
    }
    Sequence young(rig.cache);
    rig.append(young, some_tokens(10)).value();
    rig.control->throws = false;
    rig.control->fail_after = rig.control->steps;
    EXPECT_FALSE(rig.append(young, some_tokens(1)));
    rig.control->fail_after = UINT64_MAX;
    EXPECT_TRUE(rig.append_matches(young, some_tokens(1)));
  }
}

TEST(State, a_failure_spoils_no_fork) {
  StateRig rig;
  Sequence first(rig.cache);
  rig.append(first, some_tokens(100)).value();
  Sequence second = first.fork();
  rig.control->fail_after = rig.control->steps;
  EXPECT_FALSE(rig.append(first, some_tokens(3)));
  rig.control->fail_after = UINT64_MAX;
  EXPECT_EQ(second.computed(), 100u);
  EXPECT_EQ(rig.rows_of_next(second), 1u);
  EXPECT_TRUE(rig.append_matches(first, some_tokens(1)));
}

TEST(State, a_mark_takes_a_step_back_to_where_it_began) {
  StateRig rig;
  Sequence sequence(rig.cache);
  rig.append(sequence, some_tokens(100)).value();
  for (const uint32_t accepted : {0u, 3u, 8u, 5u, 1u}) {
    const uint32_t begin = sequence.size();
    sequence.mark();
    ASSERT_TRUE(rig.append_matches(sequence, some_tokens(8, int32_t(accepted)), Role::kGenerated));
    sequence.truncate(begin + accepted);
    EXPECT_EQ(sequence.computed(), accepted == 8 ? begin + 8 : begin);
    EXPECT_EQ(rig.rows_of_next(sequence), accepted == 8 ? 1u : accepted + 1);
  }
  sequence.truncate(101);  // before the mark
  EXPECT_EQ(sequence.computed(), 64u);
  EXPECT_TRUE(rig.append_matches(sequence, some_tokens(1)));
}

TEST(State, the_budget_is_kept_and_named_and_nothing_is_lost) {
  StateRig rig(with_bytes(2 * kStateBytes + 1000), {});
  Sequence first(rig.cache), second(rig.cache), third(rig.cache);
  rig.append(first, some_tokens(70)).value();
  rig.append(second, some_tokens(70)).value();
  const Error error = rig.append(third, some_tokens(1)).error();
  EXPECT_EQ(error.code, ErrorCode::kOutOfMemory);
  EXPECT_NE(error.message.find("2.0 KiB more for 1 recurrent states, but"), std::string::npos) << error.message;
  EXPECT_EQ(third.size(), 0u);
  EXPECT_EQ(rig.rows_of_next(first), 1u);

  Sequence fork = second.fork();
  third.push(some_tokens(1), Role::kPrompt);
  fork.push(some_tokens(1), Role::kPrompt);
  std::vector<float> logits(2 * kVocabulary);
  const Work works[] = {{&third, 0, std::span(logits).first(kVocabulary)},
                        {&fork, 70, std::span(logits).last(kVocabulary)}};
  EXPECT_EQ(rig.stepper.reserve(works).error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(rig.stepper.step(works).error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(fork.computed(), 70u) << "a step that has not run spoils nothing";
  {
    const Sequence closed = std::move(second);
  }
  ASSERT_TRUE(rig.stepper.step({&works[1], 1}).value());
  EXPECT_EQ(fork.computed(), 71u);
  EXPECT_TRUE(std::ranges::equal(std::span(logits).last(kVocabulary), rig.expected(fork)));
}

TEST(State, forks_that_fit_exactly_are_not_refused) {
  StateRig rig(with_bytes(2 * kStateBytes), {});
  Sequence first(rig.cache);
  rig.append(first, some_tokens(10)).value();
  Sequence second = first.fork();
  first.push(some_tokens(1), Role::kPrompt);
  second.push(some_tokens(1), Role::kPrompt);
  std::vector<float> logits(2 * kVocabulary);
  const Work works[] = {{&first, 10, std::span(logits).first(kVocabulary)},
                        {&second, 10, std::span(logits).last(kVocabulary)}};
  EXPECT_TRUE(rig.stepper.reserve(works));
  EXPECT_TRUE(rig.stepper.step(works).value());
  EXPECT_TRUE(std::ranges::equal(std::span(logits).first(kVocabulary), rig.expected(first)));
}

TEST(State, checkpoints_give_way_to_what_a_step_needs) {
  StateRig rig;
  rig.control->max_states = 3;
  Sequence first(rig.cache);
  rig.append(first, some_tokens(300)).value();
  EXPECT_EQ(rig.cache.states.used(), 3u);
  Sequence second(rig.cache), third(rig.cache);
  EXPECT_TRUE(rig.append_matches(second, some_tokens(70)));
  EXPECT_TRUE(rig.append_matches(third, some_tokens(70)));
  EXPECT_EQ(rig.cache.states.used(), 3u);
  for (Sequence* sequence : {&first, &second, &third}) {
    sequence->truncate(69);
    EXPECT_TRUE(rig.append_matches(*sequence, some_tokens(1)));
  }
  Sequence fourth(rig.cache);
  EXPECT_EQ(rig.append(fourth, some_tokens(1)).error().code, ErrorCode::kOutOfMemory);
}

TEST(State, checkpoints_leave_the_pages_their_share) {
  // One full session fits: its checkpoints take what is meant for them and no more.
  KvCache::Limits limits = kFour;
  limits.context = 4096;
  limits.sessions = 1;
  StateRig rig(limits);
  Sequence first(rig.cache);
  EXPECT_TRUE(rig.append_matches(first, some_tokens(4000)));
  EXPECT_EQ(rig.cache.states.capacity(), 5u);
  EXPECT_TRUE(rig.append_matches(first, some_tokens(96)));
}

TEST(State, windows_and_states_resume_at_a_position_that_both_can) {
  KvCache::Limits limits = kFour;
  limits.rollback = 100;
  StateRig rig(limits, {0, 40});
  Sequence sequence(rig.cache);
  for (const uint32_t size : {500u, 499u, 420u, 330u, 64u, 10u}) {
    sequence.truncate(std::min(sequence.size(), size));
    ASSERT_TRUE(rig.append_matches(sequence, some_tokens(501 - sequence.size())));
  }
  sequence.truncate(450);
  EXPECT_EQ(sequence.computed(), 448u);
  EXPECT_EQ(rig.rows_of_next(sequence), 3u);
}

/// Sessions over two recurrent layers beside the toy's attention.
struct StateEngine : ToyEngine {
  explicit StateEngine(const EngineOptions& options = {.context = 512, .chunk = 8})
      : ToyEngine(options, kToyTokens, {}, true, kLayers) {}
  bool is_right(const Session& session) const {
    return std::ranges::equal(session.logits(), expected_logits(program, session.tokens()));
  }
  program::Program program = make_program({0, 40}, kToyTokens, kLayers);
};

TEST(StateSession, failures_and_stops_leave_every_session_usable) {
  StateEngine toy;
  Session first = toy->new_session().value(), second = toy->new_session().value();
  const std::vector<Token> prompt(100, kA), many(150, kB), one = {kC};
  ASSERT_TRUE(first.append(prompt));
  ASSERT_TRUE(second.append(one));
  for (const bool throws : {false, true}) {
    toy.control->throws = throws;
    toy.control->fail_after = toy.control->steps + 3;
    EXPECT_FALSE(toy->step(std::vector<Feed>{{&first, one}, {&second, many}}));
    toy.control->fail_after = UINT64_MAX;
    EXPECT_EQ(first.position(), 100u);
    EXPECT_EQ(second.position(), 1u);
    EXPECT_TRUE(toy.is_right(first) && toy.is_right(second)) << "the logits stay";
    Session fork = first.fork().value();
    ASSERT_TRUE(toy->step(std::vector<Feed>{{&first, one}, {&second, many}, {&fork, many}}));
    EXPECT_TRUE(toy.is_right(first) && toy.is_right(second) && toy.is_right(fork));
    ASSERT_TRUE(first.rewind(100) && second.rewind(1));
    ASSERT_TRUE(first.rewind(99) && first.decode(kA) && second.rewind(0) && second.append(one));
  }
  int asked = 0;
  EXPECT_EQ(first.append(many, [&] { return ++asked > 3; }).error().code, ErrorCode::kCancelled);
  EXPECT_GT(first.position(), 100u);
  ASSERT_TRUE(first.decode(kB));
  EXPECT_TRUE(toy.is_right(first));
}

TEST(StateSession, the_estimate_and_the_limit_count_the_states) {
  StateEngine toy({.context = 512, .chunk = 8, .kv_memory_limit = 100'000, .state_checkpoints = 1});
  EXPECT_EQ(toy->info().state_bytes, kStateBytes);
  const model::Model model{.program = toy.program};
  const auto plan = [&](uint64_t limit, uint32_t checkpoints, uint64_t machine = 0) {
    const EngineOptions options{.kv_memory_limit = limit, .state_checkpoints = checkpoints};
    return plan_cache(options, 64, model, machine);
  };
  // Two pages of 64 positions x 4 values of f16; each state 2 x (4 + 6) floats.
  EXPECT_TRUE(plan(1024 + 3 * 80, 2));
  const Error error = plan(1024 + 3 * 80 - 1, 2).error();
  EXPECT_EQ(error.code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(
      error.message,
      "a context of 64 needs 1.0 KiB of f16 KV cache and 240 B of recurrent state with 2 checkpoints per session, "
      "and the limit is 1.2 KiB (lower the context or state_checkpoints, or raise the limit)");
  EXPECT_TRUE(plan(1024 + 3 * 80 - 1, 1));
  EXPECT_EQ(plan(0, 0, 1000).error().code, ErrorCode::kOutOfMemory) << "more than the machine has";
  EXPECT_TRUE(plan(0, 1025).error().message.starts_with("state_checkpoints must be at most 1024"));
}

// Any series of appends, generated tokens, cut short or failed ones, marks, forks, rewinds and closings, under any
// budget, ends with the logits of a plain recomputation, and with no slot or page lost.
RC_GTEST_PROP(StateModel, any_history_equals_a_plain_recomputation, ()) {
  KvCache::Limits limits = kFour;
  limits.chunk = *rc::gen::element(1u, 5u, 32u, 100u);
  limits.rollback = *rc::gen::element(0u, 3u, 64u, 500u);
  limits.checkpoints = *rc::gen::element(0u, 1u, 2u, 4u);
  const uint64_t n_states = *rc::gen::element(2u, 3u, 6u, 1000u);
  limits.bytes = n_states * kStateBytes + 1000 * kPageBytes;
  const auto windows = *rc::gen::element(std::vector<uint32_t>{}, std::vector<uint32_t>{0},
                                         std::vector<uint32_t>{0, 40}, std::vector<uint32_t>{64, 100, 0});
  StateRig rig(limits, windows);
  rig.control->max_states = uint32_t(n_states);
  std::list<Sequence> sequences;
  sequences.emplace_back(rig.cache);
  // Right logits, or no memory and the sequence as it was.
  const auto append = [&](Sequence& sequence, std::span<const int32_t> tokens, Role role) {
    const uint32_t before = sequence.size();
    const Result<std::vector<float>> logits = rig.append(sequence, tokens, role);
    if (!logits) {
      RC_ASSERT(sequence.size() == before);
      RC_ASSERT(rig.control->fail_after != UINT64_MAX || logits.error().code == ErrorCode::kOutOfMemory);
      return;
    }
    RC_ASSERT(*logits == rig.expected(sequence));
  };
  const int n_actions = *rc::gen::inRange(1, 30);
  for (int i = 0; i < n_actions; ++i) {
    const auto at = std::next(sequences.begin(), *rc::gen::inRange<int>(0, int(sequences.size())));
    switch (*rc::gen::inRange(0, 9)) {
      case 0:
      case 1:
        append(*at, some_tokens(*rc::gen::inRange<size_t>(1, 200), *rc::gen::inRange(0, 3)), Role::kPrompt);
        break;
      case 2: append(*at, some_tokens(1, *rc::gen::inRange(0, 9)), Role::kGenerated); break;
      case 3: at->truncate(*rc::gen::inRange<uint32_t>(0, at->size() + 1)); break;
      case 4: at->truncate(at->size() - std::min(at->size(), *rc::gen::inRange<uint32_t>(0, 9))); break;
      case 5: sequences.push_back(at->fork()); break;
      case 6: at->mark(); break;
      case 7: {  // stopped after a batch: what was computed stays
        at->push(some_tokens(150, 1), Role::kPrompt);
        std::vector<float> logits(kVocabulary);
        const uint32_t before = at->size() - 150;
        const Work work{&*at, at->size() - 1, logits};
        (void)rig.stepper.step({&work, 1});
        at->truncate(std::max(before, at->computed()));
        break;
      }
      case 8: {
        if (sequences.size() > 1) sequences.erase(at);
        rig.control->fail_after = rig.control->steps + *rc::gen::inRange<uint64_t>(0, 2);
        append(sequences.front(), some_tokens(20), Role::kPrompt);
        rig.control->fail_after = UINT64_MAX;
        break;
      }
    }
  }
  // All together, so that forks that still share a slot step in one batch.
  std::vector<std::vector<float>> logits(sequences.size(), std::vector<float>(kVocabulary));
  std::vector<Work> works;
  for (Sequence& sequence : sequences) {
    sequence.push(some_tokens(1, int32_t(works.size())), Role::kGenerated);
    works.push_back({&sequence, sequence.size() - 1, logits[works.size()]});
  }
  if (rig.stepper.reserve(works)) {
    while (rig.stepper.step(works).value()) {
    }
    size_t i = 0;
    for (const Sequence& sequence : sequences) RC_ASSERT(logits[i++] == rig.expected(sequence));
  }
  sequences.clear();
  RC_ASSERT(rig.used_pages() == 0u);
  RC_ASSERT(rig.cache.states.used() == 0u);
}

}  // namespace
}  // namespace honeycrisp::engine
