// Tokens that are chosen from the largest logits, which a backend found, are those chosen from all of them: by steps of
// each backend, by the sampler with any options, and by whole generations.
#include "support/top_logits.h"

#include "backend/registry.h"
#include "support/golden_families.h"
#include <honeycrisp/generate.h>

#include <algorithm>

namespace honeycrisp {
namespace {

using test_support::golden_path;

std::vector<const char*> backends() {
  std::vector<const char*> names = {"reference", "cpu"};
  if (backend::find_backend("metal-soft")) names.push_back("metal-soft");
  return names;
}

class TopLogitsOf : public ::testing::TestWithParam<const char*> {};

TEST_P(TopLogitsOf, rows_are_those_of_all_their_logits) {
  const backend::Backend& on = **backend::find_backend(GetParam());
  const bool slow = on.name() == "metal-soft";  // which runs every lane of every round
  testing::expect_top_logits_of_models(on, 37, slow ? std::vector<size_t>{5} : std::vector<size_t>{1, 5, 8, 11});
  testing::expect_top_logits_of_models(on, 4099, {3});
}

TEST_P(TopLogitsOf, a_step_tells_what_there_is_no_room_for) {
  const testing::LogitsModel model({std::vector<float>(8)}, {1});
  const auto executor = (*backend::find_backend(GetParam()))->compile(model.program, {.max_rows = 2}).value();
  const auto error = [&](int n_top, size_t logits, size_t tops) {
    std::vector<float> floats(logits);
    std::vector<TopLogits> top(tops);
    return testing::step_of_wants(*executor, model.program, std::vector{0}, std::vector{backend::Role::kPrompt},
                                  std::vector{n_top}, floats, top)
        .error()
        .message;
  };
  EXPECT_EQ(error(0, 7, 0), "room for 7 logits, 1 rows of 8 are wanted");
  EXPECT_EQ(error(3, 8, 1), "room for 8 logits, 0 rows of 8 are wanted");
  EXPECT_EQ(error(3, 0, 0), "room for the largest logits of 0 rows, those of 1 are wanted");
  EXPECT_EQ(error(-1, 0, 1), "room for the largest logits of 1 rows, those of 0 are wanted");
  EXPECT_EQ(error(65, 0, 1), "the 65 largest logits of a row are wanted; at most 64 can be");
}

/// Prompt and tokens with a sampler that is given all logits of each token.
std::vector<Token> by_all_logits(Engine& engine, const std::vector<Token>& prompt, const SamplingOptions& sampling,
                                 size_t n) {
  Session session = engine.new_session().value();
  Sampler sampler = Sampler::create(sampling, engine.info().vocabulary).value();
  for (const Token token : prompt) sampler.accept(token);
  EXPECT_TRUE(session.append(prompt));
  std::vector<Token> tokens;
  while (tokens.size() < n) {
    tokens.push_back(sampler.sample(session.logits()).value());
    sampler.accept(tokens.back());
    EXPECT_TRUE(session.decode(tokens.back()));
  }
  return tokens;
}

TEST_P(TopLogitsOf, a_generation_is_that_of_a_sampler_with_all_logits) {
  const bool slow = std::string_view(GetParam()) == "metal-soft";
  for (const char* family : {"llama", "gemma3", "qwen3next"}) {
    if (slow && std::string_view(family) != "llama") continue;
    const auto engine =
        Engine::load(golden_path(family, ".gguf"), {.backend = GetParam(), .context = 128, .threads = 1});
    ASSERT_TRUE(engine) << engine.error().message;
    std::vector<Token> prompt;
    for (uint32_t i = 0; i < 9; ++i) prompt.push_back(Token(i * 31 % (*engine)->info().vocabulary));
    for (const SamplingOptions& sampling :
         {SamplingOptions{.temperature = 0}, SamplingOptions{.temperature = 0, .repeat_penalty = 1.3f},
          SamplingOptions{.temperature = 2, .seed = 1}, SamplingOptions{.temperature = 3, .top_k = 64, .seed = 2},
          SamplingOptions{.temperature = 3, .top_k = 65, .seed = 3}, SamplingOptions{.top_k = 0, .seed = 4},
          SamplingOptions{.temperature = 3, .top_k = 7, .top_p = 1, .min_p = 0, .seed = 5},
          SamplingOptions{.temperature = 3, .top_k = 7, .seed = 6, .logit_bias = {{3, 1.0f}}}}) {
      std::vector<Token> expected = by_all_logits(**engine, prompt, sampling, 24);
      expected.erase(std::find_if(expected.begin(), expected.end(),
                                  [&](Token token) { return (*engine)->is_end_of_generation(token); }),
                     expected.end());
      Session session = (*engine)->new_session().value();
      const auto made = generate(**engine, session, prompt, sampling, {.max_tokens = 24});
      ASSERT_TRUE(made) << made.error().message;
      EXPECT_EQ(made->tokens, expected) << family << ", temperature " << sampling.temperature << ", top_k "
                                        << sampling.top_k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TopLogitsOf, ::testing::ValuesIn(backends()), [](const auto& param_info) {
  std::string name = param_info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace honeycrisp
