// What the applications of this project may see of a loaded engine, and how one is put together from parts.
// Not part of the public API.
#pragma once

#include "backend/backend.h"
#include "gguf/file.h"
#include "model/model.h"
#include "text/tokenizer.h"
#include <honeycrisp/engine.h>

namespace honeycrisp {

/// References into the engine, which must outlive them. Immutable but for the executor, which is the engine's own: only
/// to measure with, while no session computes.
struct Engine::Internals {
  const gguf::File& file;
  const model::Model& model;
  const text::Tokenizer& tokenizer;
  const backend::Plan& plan;
  backend::Executor& executor;
  backend::CacheType cache_type;
  uint32_t chunk;  // most rows of a step
};

namespace engine {

/// Tokens that generate() lets a device compute before it is known whether they are wanted: as many are in vain after a
/// stop. One hides a host that needs less than a step's time between tokens, two are for one that pauses now and then.
inline constexpr uint32_t kAhead = 2;

/// Where a file keeps its chat template.
inline constexpr std::string_view kChatTemplateKey = "tokenizer.chat_template";

/// Puts BOS in front where the model asks for one and `tokens` do not begin with it: a second one would cost quality.
void prepend_bos(const text::SpecialTokens& special, std::vector<Token>& tokens);

/// Everything that load() reads before memory is taken.
struct EngineParts {
  std::string path;
  gguf::File file;
  model::Model model;
  text::Tokenizer tokenizer;
  const backend::Backend* backend = nullptr;
};

/// Checks the options against the model and the machine, compiles the program and makes the cache.
Result<std::shared_ptr<Engine>> assemble(EngineParts parts, const EngineOptions& options);

}  // namespace engine
}  // namespace honeycrisp
