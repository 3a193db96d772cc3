// The engine over every family, backend and KV type: whatever way a token is reached (chunks, steps, forks, rewinds,
// next to others), its logits are the same bits.
#include "support/golden_families.h"
#include <honeycrisp/engine.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <tuple>

namespace honeycrisp {
namespace {

using test_support::golden_path;
using test_support::GoldenFamily;
using test_support::kGoldenFamilies;

constexpr size_t kTokens = 100;  // more than a page of the cache, and than the windows of these models

std::vector<Token> make_tokens(size_t n, uint32_t vocabulary, uint64_t seed = 1) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < n; ++i) {
    seed = seed * 6364136223846793005 + 1442695040888963407;
    tokens.push_back(Token((seed >> 33) % vocabulary));
  }
  return tokens;
}

class EngineFamilies : public ::testing::TestWithParam<std::tuple<const char*, const char*, const char*>> {
 protected:
  /// Null, with a failure recorded, if the model cannot be loaded.
  std::shared_ptr<Engine> load(uint32_t chunk = 512, uint32_t rollback = 256, uint32_t checkpoints = 4) {
    const auto& [family, backend, kv_type] = GetParam();
    const std::string path = golden_path(family, ".gguf");
    auto engine = Engine::load(path, {.backend = backend,
                                      .context = 256,
                                      .kv_type = parse_kv_type(kv_type).value(),
                                      .threads = 1,
                                      .chunk = chunk,
                                      .max_sessions = 4,
                                      .rollback = rollback,
                                      .state_checkpoints = checkpoints});
    if (!engine) {
      ADD_FAILURE() << engine.error().message;
      return nullptr;
    }
    vocabulary_ = (*engine)->info().vocabulary;
    return *engine;
  }

  /// Logits of every position, computed by one append: [tokens][vocabulary].
  std::vector<float> all_rows(Engine& engine, const std::vector<Token>& tokens) {
    Session session = engine.new_session().value();
    std::vector<float> rows(tokens.size() * vocabulary_);
    const Result<void> result = session.append_all_logits(tokens, rows);
    EXPECT_TRUE(result) << result.error().message;
    return rows;
  }
  ::testing::AssertionResult is_row(const Session& session, const std::vector<float>& rows) {
    const size_t row = session.position() - 1;
    const auto logits = session.logits();
    if (logits.size() != vocabulary_) return ::testing::AssertionFailure() << logits.size() << " logits";
    if (std::memcmp(logits.data(), rows.data() + row * vocabulary_, vocabulary_ * sizeof(float)) == 0)
      return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "the logits of position " << row << " differ";
  }

  size_t vocabulary_ = 0;
};

#define LOAD(name, ...)                \
  const auto name = load(__VA_ARGS__); \
  ASSERT_TRUE(name)

TEST_P(EngineFamilies, chunks_of_any_size_give_the_same_bits) {
  LOAD(engine);
  const auto tokens = make_tokens(kTokens, uint32_t(vocabulary_));
  const std::vector<float> whole = all_rows(*engine, tokens);
  EXPECT_TRUE(std::all_of(whole.begin(), whole.end(), [](float x) { return std::isfinite(x); }));
  for (const uint32_t chunk : {1u, 2u, 3u, 7u}) EXPECT_EQ(all_rows(*load(chunk), tokens), whole) << chunk;
}

TEST_P(EngineFamilies, prefill_equals_token_by_token) {
  LOAD(engine);
  const auto tokens = make_tokens(kTokens, uint32_t(vocabulary_));
  const std::vector<float> rows = all_rows(*engine, tokens);
  Session session = engine->new_session().value();
  for (const Token token : tokens) {
    ASSERT_TRUE(session.decode(token));
    ASSERT_TRUE(is_row(session, rows));
  }
}

TEST_P(EngineFamilies, a_fork_in_the_middle_of_a_page_equals_recomputing) {
  LOAD(engine);
  const auto one = make_tokens(kTokens, uint32_t(vocabulary_), 1);
  auto other = make_tokens(kTokens, uint32_t(vocabulary_), 2);
  constexpr size_t kShared = 70;
  std::copy_n(one.begin(), kShared, other.begin());
  const std::vector<float> one_rows = all_rows(*engine, one), other_rows = all_rows(*engine, other);

  Session first = engine->new_session().value();
  ASSERT_TRUE(first.append(std::span(one).first(kShared)));
  Session second = first.fork().value();
  EXPECT_TRUE(is_row(second, one_rows));
  // In turns, so that a page written by the wrong side would show.
  for (size_t i = kShared; i < kTokens; ++i) {
    ASSERT_TRUE(first.decode(one[i]));
    ASSERT_TRUE(second.decode(other[i]));
    ASSERT_TRUE(is_row(first, one_rows));
    ASSERT_TRUE(is_row(second, other_rows));
  }
}

TEST_P(EngineFamilies, a_rewind_equals_never_having_gone) {
  for (const auto& [rollback, checkpoints] : {std::pair(4u, 0u), std::pair(256u, 4u)}) {
    LOAD(engine, 512, rollback, checkpoints);
    const auto tokens = make_tokens(kTokens, uint32_t(vocabulary_));
    const std::vector<float> rows = all_rows(*engine, tokens);
    Session session = engine->new_session().value();
    ASSERT_TRUE(session.append(tokens));
    for (const uint32_t position : {99u, 97u, 65u, 64u, 63u, 0u}) {
      ASSERT_TRUE(session.rewind(position));
      EXPECT_TRUE(session.logits().empty());
      ASSERT_TRUE(session.append(std::span(tokens).subspan(position, 1)));
      EXPECT_TRUE(is_row(session, rows));
      ASSERT_TRUE(session.append(std::span(tokens).subspan(position + 1)));
      EXPECT_TRUE(session.position() == kTokens && is_row(session, rows)) << position;
    }
  }
}

TEST_P(EngineFamilies, a_stopped_prompt_goes_on_with_the_same_bits) {
  LOAD(engine, 16);
  const auto tokens = make_tokens(kTokens, uint32_t(vocabulary_));
  const std::vector<float> rows = all_rows(*engine, tokens);
  Session session = engine->new_session().value();
  for (int chunks = 0; session.position() < kTokens; ++chunks) {
    int asked = 0;
    const auto stop = [&] { return asked++ == chunks; };
    const Result<void> result = session.append(std::span(tokens).subspan(session.position()), stop);
    ASSERT_TRUE(result || result.error().code == ErrorCode::kCancelled) << result.error().message;
    if (result) break;
    ASSERT_TRUE(session.rewind(session.position() - std::min(session.position(), 3u)));
  }
  EXPECT_TRUE(is_row(session, rows));
}

TEST_P(EngineFamilies, several_sessions_in_one_batch_equal_each_alone) {
  LOAD(engine, 32);
  constexpr size_t kLengths[] = {1, 40, 70};
  std::vector<std::vector<Token>> tokens;
  std::vector<std::vector<float>> rows;
  std::vector<Session> sessions;
  for (size_t i = 0; i < std::size(kLengths); ++i) {
    tokens.push_back(make_tokens(kLengths[i] + 3, uint32_t(vocabulary_), 10 + i));
    rows.push_back(all_rows(*engine, tokens[i]));
    sessions.push_back(engine->new_session().value());
  }
  const auto step = [&](size_t from, auto n_of) {
    std::vector<Feed> all;
    for (size_t i = 0; i < sessions.size(); ++i)
      all.push_back(
          {&sessions[i], std::span(tokens[i]).subspan(from == 0 ? 0 : sessions[i].position(), n_of(i)), from != 0});
    ASSERT_TRUE(engine->step(all));
    for (size_t i = 0; i < sessions.size(); ++i) EXPECT_TRUE(is_row(sessions[i], rows[i])) << i;
  };
  step(0, [&](size_t i) { return kLengths[i]; });
  for (int i = 0; i < 3; ++i) step(1, [](size_t) { return size_t(1); });
}

/// "gemma4_e_cpu_f16"
std::string case_name(const ::testing::TestParamInfo<EngineFamilies::ParamType>& param) {
  const auto& [family, backend, kv_type] = param.param;
  return test_support::test_name(std::string(family) + "_" + backend + "_" + kv_type);
}

std::vector<EngineFamilies::ParamType> cases() {
  std::vector<EngineFamilies::ParamType> all;
  const auto add = [&](const GoldenFamily& family, const char* backend) {
    all.emplace_back(family.name, backend, "f16");
    all.emplace_back(family.name, backend, "f32");
    if (!family.narrow_heads) all.emplace_back(family.name, backend, "q8_0");
  };
  for (const GoldenFamily& family : kGoldenFamilies) {
    if (family.slow)
      all.emplace_back(family.name, "reference", "f16");
    else
      add(family, "reference");
    add(family, "cpu");
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, EngineFamilies, ::testing::ValuesIn(cases()), case_name);

TEST(EngineLimits, a_kv_type_that_does_not_fit_the_heads_is_refused) {
  for (const GoldenFamily& family : kGoldenFamilies)
    for (const char* backend : {"reference", "cpu"}) {
      if (!family.narrow_heads) continue;
      const std::string path = golden_path(family.name, ".gguf");
      const auto engine = Engine::load(path, {.backend = backend, .kv_type = KvType::kQ8_0});
      ASSERT_FALSE(engine);
      EXPECT_EQ(engine.error().code, ErrorCode::kUnsupported);
      EXPECT_NE(engine.error().message.find("32"), std::string::npos) << engine.error().message;
    }
}

TEST(EngineLimits, the_context_is_checked_before_anything_is_computed) {
  const std::string path = golden_path("llama", ".gguf");
  auto engine = Engine::load(path, {.backend = "cpu", .context = 100}).value();
  Session session = engine->new_session().value();
  const auto tokens = make_tokens(101, engine->info().vocabulary);
  const Error error = session.append(tokens).error();
  EXPECT_EQ(error.code, ErrorCode::kContextFull);
  EXPECT_EQ(error.message, "101 tokens after the 0 of the session do not fit into a context of 100");
  EXPECT_EQ(session.position(), 0u);
  EXPECT_TRUE(session.append(std::span(tokens).first(100)));
  EXPECT_EQ(session.decode(1).error().code, ErrorCode::kContextFull);
  EXPECT_EQ(session.position(), 100u);
  EXPECT_EQ(session.logits().size(), engine->info().vocabulary);
}

TEST(EngineLimits, sizes_that_make_no_sense_are_errors_with_numbers) {
  const std::string path = golden_path("llama", ".gguf");
  EXPECT_TRUE(Engine::load(path, {.context = 1}));
  const Error huge = Engine::load(path, {.context = UINT32_MAX}).error();
  EXPECT_EQ(huge.code, ErrorCode::kOutOfMemory);
  EXPECT_NE(huge.message.find("a context of 4294967295 needs"), std::string::npos) << huge.message;
  const Error tight = Engine::load(path, {.context = 4096, .kv_memory_limit = 1000}).error();
  EXPECT_NE(tight.message.find("the limit is 1000 B"), std::string::npos) << tight.message;
  EXPECT_TRUE(Engine::load(path, {.chunk = 0}).error().message.starts_with("chunk must be"));
  EXPECT_TRUE(Engine::load(path, {.max_sessions = 0}).error().message.starts_with("max_sessions must be"));
  EXPECT_TRUE(Engine::load(path, {.backend = "nonsense"}).error().message.starts_with("backend 'nonsense'"));
  EXPECT_EQ(Engine::load("/nonexistent.gguf").error().code, ErrorCode::kNotFound);
}

TEST(EngineLimits, ids_outside_the_vocabulary_and_odd_feeds_are_refused) {
  const std::string path = golden_path("llama", ".gguf");
  auto engine = Engine::load(path, {.backend = "cpu"}).value();
  auto stranger_engine = Engine::load(path, {.backend = "cpu"}).value();
  Session session = engine->new_session().value(), stranger = stranger_engine->new_session().value();
  for (const Token bad : {-1, INT32_MIN, INT32_MAX, Token(engine->info().vocabulary)})
    EXPECT_EQ(session.append(std::vector<Token>{1, bad}).error().code, ErrorCode::kInvalidInput) << bad;
  EXPECT_EQ(session.position(), 0u);
  const std::vector<Token> one = {1};
  const auto refused = [&](std::vector<Feed> feeds) { return !engine->step(feeds).has_value(); };
  EXPECT_TRUE(refused({{nullptr, one}}));
  EXPECT_TRUE(refused({{&stranger, one}}));
  EXPECT_TRUE(refused({{&session, one}, {&session, one}}));
  EXPECT_EQ(session.rewind(1).error().code, ErrorCode::kInvalidInput);
  std::vector<float> small(3);
  EXPECT_EQ(session.append_all_logits(one, small).error().code, ErrorCode::kInvalidInput);
  EXPECT_TRUE(session.append(session.tokens()));  // of nothing
  EXPECT_TRUE(session.logits().empty());
}

TEST(EngineLimits, stopping_between_chunks_keeps_what_was_computed) {
  const std::string path = golden_path("llama", ".gguf");
  auto engine = Engine::load(path, {.backend = "cpu", .chunk = 8}).value();
  const auto tokens = make_tokens(40, engine->info().vocabulary);
  Session session = engine->new_session().value(), plain = engine->new_session().value();
  int asked = 0;
  EXPECT_EQ(session.append(tokens, [&] { return ++asked > 2; }).error().code, ErrorCode::kCancelled);
  EXPECT_EQ(session.position(), 16u);
  EXPECT_TRUE(session.logits().empty());
  ASSERT_TRUE(session.append(std::span(tokens).subspan(16)));
  ASSERT_TRUE(plain.append(tokens));
  EXPECT_TRUE(std::ranges::equal(session.logits(), plain.logits()));
}

TEST(EngineLimits, sessions_outlive_their_engine) {
  const std::string path = golden_path("llama", ".gguf");
  auto engine = Engine::load(path, {.backend = "cpu"}).value();
  Session session = engine->new_session().value();
  engine.reset();
  EXPECT_TRUE(session.append(std::vector<Token>{1, 2, 3}));
}

}  // namespace
}  // namespace honeycrisp
