// The generation loop over a toy model that says what a script tells it to: endings, text at token boundaries, stop
// strings, limits, prefix reuse; and sessions over the toy.
#include "engine/pace.h"
#include "engine/stop_strings.h"
#include "engine/testing/toy_engine.h"
#include <honeycrisp/generate.h>

#include <algorithm>
#include <atomic>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <thread>

namespace honeycrisp::engine {
namespace {

using namespace toy;

const SamplingOptions kGreedy = {.temperature = 0};
const std::vector<Token> kPrompt = {kBos, kA};

/// After the prompt above, the model says `tokens`.
void say(const ToyEngine& toy, std::vector<int32_t> tokens) {
  tokens.insert(tokens.begin(), kUnk);  // what follows BOS is not asked for
  toy.control->script = std::move(tokens);
}

Generation run(const ToyEngine& toy, const GenerateOptions& options = {}) {
  Session session = toy->new_session().value();
  return generate(*toy, session, kPrompt, kGreedy, options).value();
}

std::string stream(const std::vector<std::string>& stops, const std::vector<std::string>& pieces,
                   std::string* rest = nullptr) {
  StopStrings matcher = StopStrings::create(stops).value();
  std::string text;
  for (const std::string& piece : pieces) text += matcher.push(piece);
  if (rest != nullptr) *rest = matcher.finish();
  return text + "|" + matcher.matched();
}

TEST(StopStrings, are_found_across_pieces_and_never_shown) {
  EXPECT_EQ(stream({"STOP"}, {"ab", "S", "TO", "Pcd"}), "ab|STOP");
  EXPECT_EQ(stream({"STOP"}, {"ab", "STSTO", "P"}), "abST|STOP");
  EXPECT_EQ(stream({"aab"}, {"a", "a", "a", "b"}), "a|aab");
  EXPECT_EQ(stream({"\n\n", "\n"}, {"x\n\n"}), "x|\n");
  EXPECT_EQ(stream({"OP", "STOP"}, {"xSTOP"}), "x|STOP");
  EXPECT_EQ(stream({}, {"abc"}), "abc|");
}

TEST(StopStrings, what_turns_out_to_be_no_stop_is_given_back) {
  std::string rest;
  EXPECT_EQ(stream({"STOP"}, {"abSTO"}, &rest), "ab|");
  EXPECT_EQ(rest, "STO");
  EXPECT_EQ(stream({"STOP"}, {"abSTO", "x"}, &rest), "abSTOx|");
  EXPECT_EQ(rest, "");
}

TEST(StopStrings, odd_strings_are_refused) {
  for (const std::vector<std::string>& bad :
       {std::vector<std::string>{""}, {"\xff"}, {std::string(5000, 'a')}, std::vector<std::string>(100, "a")})
    EXPECT_EQ(StopStrings::create(bad).error().code, ErrorCode::kInvalidInput);
}

RC_GTEST_PROP(StopStringsModel, a_stream_equals_a_search_in_the_whole, ()) {
  const auto letters = rc::gen::container<std::string>(rc::gen::element('a', 'b'));
  const auto stop = *rc::gen::suchThat(letters, [](const std::string& s) { return !s.empty() && s.size() < 6; });
  const auto pieces = *rc::gen::container<std::vector<std::string>>(letters);
  std::string whole, rest;
  for (const std::string& piece : pieces) whole += piece;
  const size_t at = whole.find(stop);
  const std::string shown = stream({stop}, pieces, &rest);
  if (at == std::string::npos) {
    RC_ASSERT(shown.substr(0, shown.size() - 1) + rest == whole);
  } else {
    RC_ASSERT(shown == whole.substr(0, at) + "|" + stop);
  }
}

TEST(Generate, the_end_token_stops_and_is_never_shown) {
  for (const Token end : {kEos, kImEnd}) {
    ToyEngine toy;
    say(toy, {kB, kSpaceA, end, kC});
    const Generation result = run(toy, {.show_special = true});
    EXPECT_EQ(result.text, "b a");
    EXPECT_EQ(result.tokens, (std::vector<Token>{kB, kSpaceA}));
    EXPECT_EQ(result.finish_reason, FinishReason::kStop);
    EXPECT_EQ(result.stop_string, "");
  }
}

TEST(Generate, ignoring_the_end_bans_every_end_token) {
  ToyEngine toy;
  say(toy, {kEos, kImEnd});
  const Generation result = run(toy, {.max_tokens = 20, .ignore_eos = true});
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  EXPECT_EQ(result.tokens.size(), 20u);
  for (const Token token : result.tokens) EXPECT_FALSE(toy->is_end_of_generation(token));
}

TEST(Generate, limits_end_it_with_their_own_reason) {
  ToyEngine toy;
  say(toy, {kB});
  const Generation three = run(toy, {.max_tokens = 3});
  EXPECT_EQ(three.finish_reason, FinishReason::kLength);
  EXPECT_EQ(three.tokens.size(), 3u);
  EXPECT_EQ(three.decoded_tokens, 2u);
  const Generation none = run(toy, {.max_tokens = 0});
  EXPECT_EQ(none.finish_reason, FinishReason::kLength);
  EXPECT_TRUE(none.tokens.empty());
  // Positions 2..63 are decoded; the last logits give one token more.
  const Generation full = run(toy, {.ignore_eos = true});
  EXPECT_EQ(full.finish_reason, FinishReason::kContextFull);
  EXPECT_EQ(full.tokens.size(), 63u);
}

TEST(Generate, a_prompt_that_fills_the_context_is_refused_with_both_numbers) {
  ToyEngine toy;
  Session session = toy->new_session().value();
  for (const size_t n : {64u, 65u, 1000u}) {
    const Error error = generate(*toy, session, std::vector<Token>(n, kA), kGreedy).error();
    EXPECT_EQ(error.code, ErrorCode::kContextFull);
    EXPECT_NE(error.message.find(std::to_string(n)), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("context of 64"), std::string::npos) << error.message;
  }
  EXPECT_EQ(toy.control->steps, 0u);
  EXPECT_TRUE(generate(*toy, session, std::vector<Token>(63, kA), kGreedy));
  EXPECT_EQ(generate(*toy, session, {}, kGreedy).error().code, ErrorCode::kInvalidInput);
}

TEST(Generate, characters_split_over_tokens_are_shown_whole) {
  ToyEngine toy;
  say(toy, {kB, kByteE2, kByte82, kByteAC, kByteE2, kEos});
  std::vector<std::string> pieces;
  const Generation result = run(toy, {.on_text = [&](std::string_view piece) {
                                  pieces.emplace_back(piece);
                                  return true;
                                }});
  EXPECT_EQ(pieces, (std::vector<std::string>{"b", "\u20ac", "\ufffd"}));
  EXPECT_EQ(result.text, "b\u20ac\ufffd");
}

TEST(Generate, a_stop_string_ends_the_text_before_it) {
  ToyEngine toy;
  say(toy, {kB, kSt, kOp, kC});
  const Generation result = run(toy, {.stop = {"TO"}});
  EXPECT_EQ(result.text, "bS");
  EXPECT_EQ(result.stop_string, "TO");
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  say(toy, {kB, kSt, kEos});
  EXPECT_EQ(run(toy, {.stop = {"STOP"}}).text, "bST") << "what was held back belongs to the text";
}

TEST(Generate, the_caller_can_cancel_anywhere) {
  ToyEngine toy;
  say(toy, {kB});
  const Generation by_text = run(toy, {.on_text = [](std::string_view) { return false; }});
  EXPECT_EQ(by_text.finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(by_text.text, "b");
  const Generation by_question = run(toy, {.should_stop = [] { return true; }});
  EXPECT_EQ(by_question.finish_reason, FinishReason::kCancelled);
  EXPECT_TRUE(by_question.tokens.empty());
}

TEST(Generate, a_cancelled_prompt_counts_only_what_was_computed) {
  ToyEngine toy;  // chunks of 8
  Session session = toy->new_session().value();
  int asked = 0;
  const std::vector<Token> prompt(30, kA);
  const auto third_time = [&] { return ++asked == 3; };
  const Generation first = generate(*toy, session, prompt, kGreedy, {.should_stop = third_time}).value();
  EXPECT_EQ(first.finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(first.prompt_tokens, 30u);
  EXPECT_EQ(first.prefilled_tokens, 16u);
  const Generation second = generate(*toy, session, prompt, kGreedy, {.max_tokens = 1}).value();
  EXPECT_EQ(second.reused_tokens, 16u);
  EXPECT_EQ(second.prefilled_tokens, 14u);
}

TEST(Generate, a_long_prompt_tells_how_far_it_is) {
  ToyEngine toy;  // chunks of 8
  Session session = toy->new_session().value();
  std::vector<std::pair<uint32_t, uint32_t>> told;
  const auto tell = [&](uint32_t computed, uint32_t total) { told.emplace_back(computed, total); };
  const std::vector<Token> prompt(30, kA);
  const Generation all = generate(*toy, session, prompt, kGreedy, {.max_tokens = 1, .on_prompt = tell}).value();
  EXPECT_EQ(told, (std::vector<std::pair<uint32_t, uint32_t>>{{0, 30}, {8, 30}, {16, 30}, {24, 30}}));
  Session other = toy->new_session().value();
  EXPECT_EQ(generate(*toy, other, prompt, kGreedy, {.max_tokens = 1}).value().tokens, all.tokens);
}

TEST(Generate, what_a_recurrent_model_computes_again_is_not_reused) {
  ToyEngine toy({.context = 256, .chunk = 64}, kToyTokens, {}, true, 1);
  Session session = toy->new_session().value();
  std::vector<Token> prompt(100, kA);
  EXPECT_EQ(set_prompt(session, prompt).value(), 0u);
  prompt.back() = kB;
  const Generation answer = generate(*toy, session, prompt, kGreedy, {.max_tokens = 1}).value();
  EXPECT_EQ(answer.reused_tokens, 64u) << "the state's checkpoint";
  EXPECT_EQ(answer.prefilled_tokens, 36u);
}

TEST(Generate, a_second_turn_computes_only_what_is_new) {
  ToyEngine toy;
  say(toy, {kB, kC, kEos});
  Session session = toy->new_session().value();
  const Generation first = generate(*toy, session, kPrompt, kGreedy).value();
  EXPECT_EQ(first.reused_tokens, 0u);
  std::vector<Token> prompt = kPrompt;
  prompt.insert(prompt.end(), {kB, kC, kImEnd, kA});
  const auto rows = toy.control->rows;
  EXPECT_EQ(set_prompt(session, prompt).value(), 4u);
  EXPECT_EQ(toy.control->rows, rows + 2);
  EXPECT_EQ(set_prompt(session, prompt).value(), 6u) << "nothing is left to do";
  EXPECT_EQ(toy.control->rows, rows + 2);
  prompt.resize(3);
  EXPECT_EQ(set_prompt(session, prompt).value(), 2u) << "logits need one token";
  EXPECT_EQ(session.tokens().size(), 3u);
  EXPECT_FALSE(session.logits().empty());
}

TEST(Generate, a_session_may_be_continued_from_its_own_tokens) {
  ToyEngine toy;
  say(toy, {kB, kEos});
  Session session = toy->new_session().value();
  const std::vector<Token> held = {kBos, kA, kC};
  ASSERT_TRUE(session.append(held));
  ASSERT_TRUE(session.rewind(2));  // without logits, the last token has to be computed again
  EXPECT_EQ(set_prompt(session, session.tokens()).value(), 1u);
  EXPECT_TRUE(std::ranges::equal(session.tokens(), kPrompt));
  EXPECT_EQ(generate(*toy, session, session.tokens(), kGreedy).value().text, "b");
}

TEST(Generate, errors_of_options_and_steps_come_back) {
  ToyEngine toy;
  Session session = toy->new_session().value();
  EXPECT_TRUE(generate(*toy, session, kPrompt, {.temperature = -1}).error().message.starts_with("temperature"));
  EXPECT_TRUE(generate(*toy, session, kPrompt, kGreedy, {.stop = {""}}).error().message.starts_with("a stop string"));
  EXPECT_EQ(toy.control->steps, 0u);
  toy.control->fail_after = 1;
  EXPECT_EQ(generate(*toy, session, kPrompt, kGreedy, {.ignore_eos = true}).error().code, ErrorCode::kInternal);
  EXPECT_EQ(session.position(), 2u);
}

TEST(Vocabulary, the_smaller_of_tables_and_tokenizer_bounds_ids_and_logits) {
  const ToyEngine more_rows({.context = 64, .chunk = 8}, kToyTokens + 5);
  EXPECT_EQ(more_rows->info().vocabulary, uint32_t(kToyTokens));
  more_rows.control->script = {kToyTokens + 2};
  Session session = more_rows->new_session().value();
  ASSERT_TRUE(session.append(kPrompt));
  EXPECT_EQ(session.logits().size(), size_t(kToyTokens));
  EXPECT_EQ(session.decode(kToyTokens).error().code, ErrorCode::kInvalidInput);

  const ToyEngine fewer_rows({.context = 64, .chunk = 8}, kImEnd);
  EXPECT_EQ(fewer_rows->info().vocabulary, uint32_t(kImEnd));
  Session other = fewer_rows->new_session().value();
  EXPECT_EQ(other.decode(kImEnd).error().code, ErrorCode::kInvalidInput);
  EXPECT_EQ(generate(*fewer_rows, other, kPrompt, kGreedy, {.max_tokens = 5, .ignore_eos = true}).value().tokens.size(),
            5u);
}

TEST(Generate, asks_for_no_more_logits_than_the_sampler_needs) {
  struct Case {
    SamplingOptions sampling;
    uint32_t n_top;
  };
  const Case cases[] = {{kGreedy, 1},
                        {{.top_k = 3}, 3},
                        {{.top_k = 64}, 64},
                        {{.top_k = 65}, 0},
                        {{.top_k = 0}, 0},
                        {{.repeat_penalty = 1.1f}, 0},
                        {{.logit_bias = {{kA, 1.0f}}}, 0}};
  for (const auto& [sampling, n_top] : cases) {
    ToyEngine toy;
    say(toy, {kB, kC, kA, kEos});
    Session session = toy->new_session().value();
    const Generation made = generate(*toy, session, kPrompt, sampling).value();
    EXPECT_EQ(made.tokens, (std::vector<Token>{kB, kC, kA}));
    EXPECT_EQ(toy.control->tops, std::vector<uint32_t>(4, n_top));
    EXPECT_EQ(session.logits().empty(), n_top != 0);
    EXPECT_EQ(session.top_logits().n, std::min(n_top, uint32_t(kToyTokens)));
    // What the session holds serves who needs no more.
    const std::vector<Token> held(session.tokens().begin(), session.tokens().end());
    const auto rows = toy.control->rows;
    EXPECT_EQ(generate(*toy, session, held, kGreedy, {.max_tokens = 1}).value().finish_reason, FinishReason::kStop);
    EXPECT_EQ(toy.control->rows, rows);
    EXPECT_EQ(set_prompt(session, held).value(), held.size() - (n_top == 0 ? 0 : 1));
    EXPECT_EQ(session.logits().size(), size_t(kToyTokens));
  }
}

TEST(Session, of_a_table_longer_than_the_vocabulary_no_row_beyond_is_among_the_largest) {
  const ToyEngine toy({.context = 64, .chunk = 8}, kToyTokens + 5);
  toy.control->script = {kToyTokens + 2};
  Session session = toy->new_session().value(), all = toy->new_session().value();
  ASSERT_TRUE(session.append(kPrompt, {}, kMostTopLogits) && all.append(kPrompt));
  const TopLogits& top = session.top_logits();
  ASSERT_EQ(top.n, uint32_t(kToyTokens));
  for (uint32_t i = 0; i < top.n; ++i) EXPECT_EQ(top.logits[i], all.logits()[size_t(top.tokens[i])]);
  EXPECT_EQ(top.tokens[0], std::ranges::max_element(all.logits()) - all.logits().begin());
}

TEST(Session, the_largest_logits_go_where_logits_go) {
  ToyEngine toy;
  Session first = toy->new_session().value(), second = toy->new_session().value(), third = toy->new_session().value();
  const std::vector<Token> few = {kA, kC}, many(20, kB), one = {kSt};
  ASSERT_TRUE(toy->step(std::vector<Feed>{{&first, few, false, 2}, {&second, many}, {&third, one, true, 5}}));
  EXPECT_EQ(first.top_logits().n, 2u);
  EXPECT_EQ(third.top_logits().n, 5u);
  EXPECT_EQ(second.top_logits().n, 0u);
  EXPECT_TRUE(first.logits().empty() && third.logits().empty());
  EXPECT_FALSE(second.logits().empty());
  const auto largest = [&](std::span<const Token> tokens) {
    Session session = toy->new_session().value();
    EXPECT_TRUE(session.append(tokens));
    return Token(std::ranges::max_element(session.logits()) - session.logits().begin());
  };
  EXPECT_EQ(first.top_logits().tokens[0], largest(few));
  EXPECT_EQ(third.top_logits().tokens[0], largest(one));

  Session fork = first.fork().value();
  EXPECT_EQ(fork.top_logits().tokens, first.top_logits().tokens);
  toy.control->fail_after = toy.control->steps;
  EXPECT_FALSE(first.decode(kA, 3));
  EXPECT_EQ(first.top_logits().n, 2u) << "a step that failed leaves what was";
  toy.control->fail_after = UINT64_MAX;
  ASSERT_TRUE(first.decode(kA));
  EXPECT_EQ(first.top_logits().n, 0u);
  EXPECT_EQ(fork.top_logits().n, 2u);
  ASSERT_TRUE(fork.rewind(1));
  EXPECT_EQ(fork.top_logits().n, 0u);
  EXPECT_EQ(first.decode(kA, kMostTopLogits + 1).error().message,
            "the 65 largest logits cannot be asked for, at most 64");
}

TEST(Session, a_failed_batch_leaves_every_session_as_it_was) {
  ToyEngine toy;
  Session first = toy->new_session().value(), second = toy->new_session().value();
  ASSERT_TRUE(first.append(kPrompt));
  const std::vector<float> logits(first.logits().begin(), first.logits().end());
  toy.control->fail_after = toy.control->steps + 1;
  const std::vector<Token> few = {kA}, many(20, kB);
  EXPECT_FALSE(toy->step(std::vector<Feed>{{&first, few}, {&second, many}}));
  EXPECT_EQ(first.position(), 2u);
  EXPECT_EQ(second.position(), 0u);
  EXPECT_TRUE(std::ranges::equal(first.logits(), logits));
  EXPECT_TRUE(second.logits().empty());
  toy.control->fail_after = UINT64_MAX;
  EXPECT_TRUE(toy->step(std::vector<Feed>{{&first, few}, {&second, many}}));
}

TEST(Session, appending_its_own_tokens_is_safe) {
  ToyEngine toy;
  Session session = toy->new_session().value();
  ASSERT_TRUE(session.append(kPrompt));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(session.append(session.tokens()));
  EXPECT_EQ(session.position(), 32u);
  EXPECT_EQ(session.tokens()[31], Token(kA));
}

TEST(Session, is_asked_whether_to_stop_before_each_chunk_and_not_after_the_last) {
  ToyEngine toy;  // chunks of 8
  Session session = toy->new_session().value();
  int asked = 0;
  EXPECT_TRUE(session.append(std::vector<Token>(16, kA), [&] { return ++asked > 2; }));
  EXPECT_EQ(asked, 2);
  EXPECT_FALSE(session.logits().empty());
}

TEST(Pace, batches_fit_a_quarter_of_a_second_or_are_64_rows) {
  Pace pace;
  EXPECT_EQ(pace.rows(512), 64u);
  EXPECT_EQ(pace.rows(8), 8u);
  pace.measured(64, 0.064);
  EXPECT_EQ(pace.rows(512), 192u) << "whole pages of the 250 that fit";
  pace.measured(10, 10);
  EXPECT_EQ(pace.rows(512), 192u) << "a rest says nothing";
  pace.measured(192, 0);
  EXPECT_EQ(pace.rows(512), 512u);
  pace.measured(512, 100);
  EXPECT_EQ(pace.rows(512), 64u);
}

TEST(Session, threads_with_sessions_of_their_own_do_not_disturb_each_other) {
  ToyEngine toy({.context = 256, .chunk = 8});
  const program::Program program = make_program({0, 40}, kToyTokens);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::vector<Token> tokens(size_t(30 + 20 * t), Token(kA + t));
      for (int round = 0; round < 5; ++round) {
        Session session = toy->new_session().value();
        wrong += !session.append(tokens);
        Session fork = session.fork().value();
        wrong += !session.decode(kA) || !fork.decode(kB) || !session.rewind(10) || !session.append(tokens);
        wrong += !std::ranges::equal(fork.logits(), expected_logits(program, fork.tokens()));
        wrong += !std::ranges::equal(session.logits(), expected_logits(program, session.tokens()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(KvTypes, are_known_by_the_names_of_the_backends) {
  EXPECT_EQ(parse_kv_type("f16").value(), KvType::kF16);
  EXPECT_EQ(parse_kv_type("f32").value(), KvType::kF32);
  EXPECT_EQ(parse_kv_type("q8_0").value(), KvType::kQ8_0);
  EXPECT_EQ(parse_kv_type("F16").error().message, "KV cache type 'F16' is unknown (there are: f16, f32, q8_0)");
}

TEST(Tokenize, a_raw_prompt_gets_exactly_one_bos) {
  const ToyEngine toy;
  EXPECT_EQ(toy->tokenize_prompt("a").value(), (std::vector<Token>{kBos, kSpaceA}));
  EXPECT_EQ(toy->tokenize_prompt("<s>a").value(), (std::vector<Token>{kBos, kSpaceA}));
  EXPECT_EQ(toy->tokenize("a").value(), (std::vector<Token>{kSpaceA}));
}

}  // namespace
}  // namespace honeycrisp::engine
