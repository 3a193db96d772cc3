// Tokens that are computed ahead, on a toy that has steps in flight: whatever happens, everything is as it is without.
#include "engine/testing/rig.h"
#include "engine/testing/toy_engine.h"
#include <honeycrisp/generate.h>

#include <algorithm>
#include <gtest/gtest.h>
#include <optional>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <thread>

namespace honeycrisp::engine {
namespace {

using namespace toy;
using backend::Role;

const SamplingOptions kGreedy = {.temperature = 0};
const EngineOptions kOptions = {.context = 96, .chunk = 8};
const std::vector<Token> kPrompt = {kBos, kA};

/// All that a caller may see of a generation and of what comes after it.
struct Seen {
  std::optional<FinishReason> reason;  // absent: an error
  std::string text, stop_string;
  std::vector<Token> tokens, held;
  uint32_t decoded = 0, position = 0, computed = 0;
  TopLogits top;
  std::vector<float> logits_after;
  bool operator==(const Seen& other) const {
    return reason == other.reason && text == other.text && stop_string == other.stop_string && tokens == other.tokens &&
           held == other.held && decoded == other.decoded && position == other.position && computed == other.computed &&
           top.n == other.top.n && top.tokens == other.top.tokens && top.logits == other.top.logits &&
           logits_after == other.logits_after;
  }
};

struct Turn {
  std::vector<Token> script;  // empty: the toy's own
  size_t prompt = 2;
  std::optional<uint32_t> max_tokens;
  std::vector<std::string> stop;
  uint32_t cancel_at = UINT32_MAX;   // pieces of text
  uint32_t disturb_at = UINT32_MAX;  // likewise: then another session computes, and this one is forked
  uint64_t fail_after = UINT64_MAX;  // steps
};

Seen play(const Turn& turn, uint32_t most_in_flight, Control* told = nullptr) {
  ToyEngine toy(kOptions);
  toy.control->script = turn.script;
  toy.control->most_in_flight = most_in_flight;
  toy.control->fail_after = turn.fail_after;
  Session session = toy->new_session().value(), other = toy->new_session().value();
  std::optional<Session> fork;
  std::vector<Token> prompt(turn.prompt, kA);
  uint32_t pieces = 0;
  const auto on_text = [&](std::string_view) {
    if (pieces == turn.disturb_at) {
      EXPECT_TRUE(other.append(kPrompt) && other.decode(kB, 1, 3));
      fork = session.fork().value();
      EXPECT_TRUE(fork->decode(kC) && fork->decode(kB));
    }
    return pieces++ != turn.cancel_at;
  };
  const auto made =
      generate(*toy, session, prompt, kGreedy, {.max_tokens = turn.max_tokens, .stop = turn.stop, .on_text = on_text});
  Seen seen;
  if (made) {
    seen.reason = made->finish_reason;
    seen.text = made->text;
    seen.stop_string = made->stop_string;
    seen.tokens = made->tokens;
    seen.decoded = made->decoded_tokens;
  }
  seen.held.assign(session.tokens().begin(), session.tokens().end());
  seen.position = session.position();
  seen.computed = session.computed();
  seen.top = session.top_logits();
  toy.control->fail_after = UINT64_MAX;
  // A second turn on the same beginning, in this session and in a copy of it: pages hold what they should.
  if (told != nullptr) *told = *toy.control;
  prompt.assign(session.tokens().begin(), session.tokens().end());
  prompt.resize(std::min<size_t>(prompt.size(), kOptions.context - 4));
  prompt.push_back(kC);
  Session copy = session.fork().value();
  EXPECT_TRUE(set_prompt(session, prompt) && copy.rewind(uint32_t(prompt.size() - 1)) && copy.decode(kC));
  EXPECT_TRUE(std::ranges::equal(session.logits(), copy.logits()));
  seen.logits_after.assign(session.logits().begin(), session.logits().end());
  return seen;
}

RC_GTEST_PROP(Flight, changes_nothing_that_a_caller_sees, ()) {
  Turn turn;
  turn.prompt = *rc::gen::inRange<size_t>(1, 90);
  turn.script = *rc::gen::container<std::vector<Token>>(rc::gen::element<Token>(kA, kB, kSt, kOp, kSpaceA, kEos));
  if (*rc::gen::inRange(0, 2) == 0) std::erase(turn.script, kEos);
  if (*rc::gen::inRange(0, 2) == 0) turn.max_tokens = *rc::gen::inRange(0, 30);
  if (*rc::gen::inRange(0, 2) == 0) turn.stop = {"STOP"};
  if (*rc::gen::inRange(0, 3) == 0) turn.cancel_at = *rc::gen::inRange(0, 20);
  if (*rc::gen::inRange(0, 3) == 0) turn.disturb_at = *rc::gen::inRange(0, 20);
  const Seen expected = play(turn, 0);
  for (const uint32_t most_in_flight : {1, 2, 3, 4, 9}) RC_ASSERT(play(turn, most_in_flight) == expected);
}

TEST(Flight, takes_off_and_computes_no_more_than_the_limit_asks_for) {
  Control control;
  const Seen made = play({.script = {kB}, .max_tokens = 20}, 4, &control);
  EXPECT_EQ(made.tokens.size(), 20u);
  EXPECT_EQ(control.most_issued, 1 + kAhead);
  EXPECT_EQ(control.issued, 19u);
  EXPECT_EQ(control.rows, 2u + 19u) << "none in vain";
  play({.script = {kB}, .max_tokens = 20}, 2, &control);
  EXPECT_EQ(control.most_issued, 2u);
  play({.script = {kB, kB, kB, kB, kB, kEos}}, 4, &control);
  EXPECT_EQ(control.rows, 2u + 4u + kAhead) << "so many in vain";
}

TEST(Flight, is_for_greedy_samplers_without_recurrent_layers) {
  const auto issued = [](uint32_t recurrent, const SamplingOptions& sampling, bool ignore_eos) {
    ToyEngine toy(kOptions, kToyTokens, {}, true, recurrent);
    toy.control->most_in_flight = 4;
    toy.control->script = {kB};
    Session session = toy->new_session().value();
    EXPECT_TRUE(generate(*toy, session, kPrompt, sampling, {.max_tokens = 9, .ignore_eos = ignore_eos}));
    return toy.control->issued;
  };
  EXPECT_GT(issued(0, kGreedy, false), 0u);
  EXPECT_GT(issued(0, {.top_k = 1}, false), 0u);
  EXPECT_EQ(issued(1, kGreedy, false), 0u);
  EXPECT_EQ(issued(0, {.top_k = 2}, false), 0u);
  EXPECT_EQ(issued(0, {.temperature = 0, .repeat_penalty = 1.1f}, false), 0u);
  EXPECT_EQ(issued(0, kGreedy, true), 0u) << "bans need all logits";
}

TEST(Flight, a_failed_step_is_told_when_its_token_is_asked_for) {
  const Seen expected = play({.script = {kB}, .fail_after = 9}, 0);
  EXPECT_FALSE(expected.reason);
  EXPECT_EQ(expected.position, 2u + 8u);
  for (const uint32_t most : {2u, 4u}) EXPECT_EQ(play({.script = {kB}, .fail_after = 9}, most), expected);
}

TEST(Flight, another_token_than_the_likely_one_may_be_given_at_any_time) {
  ToyEngine toy(kOptions);
  toy.control->most_in_flight = 4;
  Session session = toy->new_session().value();
  ASSERT_TRUE(session.append(kPrompt, {}, 1));
  const program::Program program = make_program({0, 40}, kToyTokens);
  for (uint32_t i = 0; i < 90; ++i) {
    const Token likely = session.top_logits().tokens[0];
    ASSERT_TRUE(session.decode(i % 5 == 4 ? (likely + 1) % kToyTokens : likely, 1 + i / 30, 3));
    const std::vector<float> logits = expected_logits(program, session.tokens());
    ASSERT_EQ(session.top_logits().tokens[0], std::ranges::max_element(logits) - logits.begin()) << i;
    ASSERT_EQ(session.top_logits().n, 1 + i / 30);
  }
  ASSERT_TRUE(session.decode(kA));
  EXPECT_TRUE(std::ranges::equal(session.logits(), expected_logits(program, session.tokens())));
  EXPECT_EQ(toy.control->most_issued, 4u);
}

TEST(Flight, sessions_that_take_turns_do_not_fly) {
  ToyEngine toy(kOptions);
  toy.control->most_in_flight = 4;
  Session first = toy->new_session().value(), second = toy->new_session().value();
  ASSERT_TRUE(first.append(kPrompt, {}, 1) && second.append(kPrompt, {}, 1));
  for (int i = 0; i < 20; ++i)
    for (Session* session : {&first, &second}) ASSERT_TRUE(session->decode(session->top_logits().tokens[0], 1, 3));
  EXPECT_EQ(toy.control->issued, 0u);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(first.decode(first.top_logits().tokens[0], 1, 3));
  EXPECT_EQ(toy.control->issued, 4u);
  {
    const Session closing = std::move(first);
  }
  ASSERT_TRUE(second.decode(kA));
}

TEST(Flight, takes_no_memory_that_others_lack) {
  // Two sessions of one page each fit, or one of two.
  const KvCache::Limits limits{.bytes = 2 * kPageBytes, .context = 128, .chunk = 8, .sessions = 1};
  Rig rig({0}, limits);
  rig.control->most_in_flight = 4;
  Sequence first(rig.cache), second(rig.cache);
  TopLogits top;
  const auto decode = [&](Sequence& sequence, int32_t token) {
    sequence.push({&token, 1}, Role::kGenerated);
    const Work work{.sequence = &sequence, .n_top = 1, .top = &top, .ahead = 3};
    Result<void> done = rig.stepper.reserve({&work, 1});
    if (done) done = rig.stepper.step({&work, 1}).map([](bool) {});
    if (!done) sequence.truncate(sequence.size() - 1);
    return done.has_value();
  };
  rig.append(first, some_tokens(61)).value();
  ASSERT_TRUE(decode(first, 1) && decode(first, top.tokens[0]));
  EXPECT_EQ(rig.used_pages(), 2u) << "position 64 is in flight";
  EXPECT_TRUE(rig.append_matches(second, some_tokens(5)));
  EXPECT_EQ(rig.used_pages(), 2u);
  ASSERT_TRUE(decode(first, top.tokens[0])) << "position 63";
  EXPECT_FALSE(decode(first, top.tokens[0])) << "what is full without flights is full";
  second.truncate(0);
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(decode(first, top.tokens[0])) << "the page in flight is its own: " << i;
  const std::vector<float> logits = rig.expected(first);
  EXPECT_EQ(top.tokens[0], std::ranges::max_element(logits) - logits.begin());
  rig.stepper.land(first);
}

TEST(Flight, threads_do_not_disturb_each_other) {
  const Seen alone = play({.max_tokens = 40}, 0);
  ToyEngine toy(kOptions);
  toy.control->most_in_flight = 4;
  std::vector<std::thread> threads;
  std::vector<std::vector<Token>> made(3);
  threads.reserve(made.size());
  for (std::vector<Token>& tokens : made)
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) {
        Session session = toy->new_session().value();
        tokens = generate(*toy, session, std::vector<Token>(2, kA), kGreedy, {.max_tokens = 40}).value().tokens;
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<Token>& tokens : made) EXPECT_EQ(tokens, alone.tokens);
}

}  // namespace
}  // namespace honeycrisp::engine
