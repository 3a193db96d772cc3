// What an Engine and its Sessions are made of. Owns the lock: everything below `mutex` is touched only while it is
// held; everything above is immutable after assemble().
#pragma once

#include "engine/internals.h"
#include "engine/kv_cache.h"
#include "engine/pace.h"
#include "engine/sequence.h"
#include "engine/stepper.h"

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace honeycrisp {

struct Session::Impl {
  explicit Impl(std::shared_ptr<Engine::Impl> owner, engine::Sequence&& with);
  ~Impl();

  std::shared_ptr<Engine::Impl> engine;
  std::optional<engine::Sequence> sequence;  // always there; optional so that it can be closed under the lock
  std::vector<float> logits;                 // [vocabulary] of the last token, or empty
  TopLogits top;                             // of the last token, or none
  std::vector<float> next_logits;            // where a step writes: it may fail
  TopLogits next_top;

  void forget_logits() {
    logits.clear();
    top = {};
  }
};

struct Engine::Impl {
  /// One session's share of a computation.
  struct Intake {
    Session::Impl* session = nullptr;
    std::span<const Token> tokens;
    backend::Role role = backend::Role::kPrompt;
    uint32_t n_top = 0;           // of the last token: so many of the largest logits, into the session; 0: all
    uint32_t ahead = 0;           // as in Session::decode()
    std::span<float> all_logits;  // [tokens][vocabulary], or empty: only the last token's, into the session
  };

  explicit Impl(engine::EngineParts from) : parts(std::move(from)) {}
  /// Checks, computes and hands out logits. On an error every session is as it was.
  Result<void> take_in(std::span<const Intake> intakes, const std::function<bool()>& should_stop);

  engine::EngineParts parts;
  ModelInfo info;
  std::optional<Internals> internals;

  std::mutex mutex;
  std::unique_ptr<backend::Executor> executor;  // reads parts.model.program
  std::optional<engine::KvCache> cache;
  std::optional<engine::Stepper> stepper;
  engine::Pace pace;  // of batches that may be stopped

 private:
  Result<void> check(const Intake& intake) const;
  Result<void> compute(std::span<const engine::Work> works, const std::function<bool()>& should_stop);
};

}  // namespace honeycrisp
