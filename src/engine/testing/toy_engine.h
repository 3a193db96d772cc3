// An engine over the toy backend with a vocabulary of a few tokens, for tests of what lies above sessions.
#pragma once

#include "engine/internals.h"
#include "engine/testing/toy_backend.h"

#include <string>

namespace honeycrisp::engine::toy {

/// Ids of the toy's vocabulary (SentencePiece; the end markers are control tokens).
enum ToyToken : Token {
  kUnk,
  kBos,
  kEos,
  kA,
  kB,
  kC,
  kSpaceA,
  kSt,
  kOp,
  kByteE2,
  kByte82,
  kByteAC,
  kImEnd,
  kToyTokens
};

class ToyEngine {
 public:
  /// `rows` of the model's tables may differ from kToyTokens.
  explicit ToyEngine(EngineOptions options = {.context = 64, .chunk = 8}, uint32_t rows = kToyTokens,
                     const std::string& chat_template = {}, bool add_bos = true, uint32_t recurrent = 0);

  Engine& operator*() const { return *engine_; }
  Engine* operator->() const { return engine_.get(); }
  const std::shared_ptr<Engine>& shared() const { return engine_; }
  std::shared_ptr<Control> control = std::make_shared<Control>();

 private:
  Backend backend_{control};
  std::shared_ptr<Engine> engine_;
};

}  // namespace honeycrisp::engine::toy
