// Session, and how tokens of one or several sessions are computed. See engine_impl.h.
#include "base/check.h"
#include "base/result.h"
#include "base/stopwatch.h"
#include "engine/engine_impl.h"

#include <algorithm>
#include <new>

namespace honeycrisp {

using engine::Sequence;
using engine::Work;

Session::Impl::Impl(std::shared_ptr<Engine::Impl> owner, Sequence&& with)
    : engine(std::move(owner)), sequence(std::move(with)) {}

Session::Impl::~Impl() {
  const std::lock_guard lock(engine->mutex);
  engine->stepper->land(*sequence);
  sequence.reset();
}

Result<void> Engine::Impl::check(const Intake& intake) const {
  if (intake.n_top > kMostTopLogits)
    return invalid("the {} largest logits cannot be asked for, at most {}", intake.n_top, kMostTopLogits);
  for (const Token token : intake.tokens) {
    if (token < 0 || uint32_t(token) >= info.vocabulary)
      return invalid("token id {} is outside the vocabulary of {}", token, info.vocabulary);
  }
  const uint32_t position = intake.session->sequence->size();
  if (intake.tokens.size() > info.context - position) {
    return fail(ErrorCode::kContextFull, "{} tokens after the {} of the session do not fit into a context of {}",
                intake.tokens.size(), position, info.context);
  }
  return {};
}

Result<void> Engine::Impl::take_in(std::span<const Intake> intakes, const std::function<bool()>& should_stop) {
  for (const Intake& intake : intakes) HC_TRY(check(intake));

  std::vector<uint32_t> before;  // positions of each session, as far as they were touched
  std::vector<Work> works;
  Result<void> computed;
  try {
    for (const Intake& intake : intakes) {
      Sequence& sequence = *intake.session->sequence;
      before.push_back(sequence.size());
      sequence.push(intake.tokens, intake.role);
      if (intake.n_top != 0) {
        works.push_back({.sequence = &sequence,
                         .n_top = intake.n_top,
                         .top = &intake.session->next_top,
                         .ahead = std::min(intake.ahead, info.context - sequence.size())});
        continue;
      }
      std::span<float> logits = intake.all_logits;
      if (logits.empty()) {
        intake.session->next_logits.resize(info.vocabulary);
        logits = intake.session->next_logits;
      } else {
        intake.session->logits.reserve(info.vocabulary);  // so that keeping the last ones cannot fail
      }
      const uint32_t n_logits = uint32_t(logits.size() / info.vocabulary);
      works.push_back({.sequence = &sequence, .logits_from = sequence.size() - n_logits, .logits = logits});
    }
    computed = compute(works, should_stop);
  } catch (const std::bad_alloc&) {  // the sessions go back to where they were
    computed = fail(ErrorCode::kOutOfMemory, "out of memory while tokens were computed");
  }
  const bool cancelled = !computed && computed.error().code == ErrorCode::kCancelled;
  for (size_t i = 0; i < before.size(); ++i) {
    Session::Impl& session = *intakes[i].session;
    if (computed && works[i].n_top != 0) {
      session.logits.clear();
      session.top = session.next_top;
      continue;
    }
    if (computed) {
      session.top = {};
      const std::span<float> last = works[i].logits.last(info.vocabulary);
      if (last.data() == session.next_logits.data()) {
        std::swap(session.logits, session.next_logits);
      } else {
        session.logits.assign(last.begin(), last.end());
      }
      continue;
    }
    const std::lock_guard lock(mutex);
    Sequence& sequence = *session.sequence;
    sequence.truncate(cancelled ? std::max(before[i], sequence.computed()) : before[i]);
    if (sequence.size() != before[i]) session.forget_logits();
  }
  return computed;
}

namespace {

/// The executor asks for as long as this lives.
struct Asking {
  Asking(backend::Executor& e, const std::function<bool()>& should_stop) : executor(e) {
    executor.ask_to_stop(should_stop);
  }
  ~Asking() { executor.ask_to_stop({}); }
  backend::Executor& executor;
};

}  // namespace

Result<void> Engine::Impl::compute(std::span<const Work> works, const std::function<bool()>& should_stop) {
  {
    const std::lock_guard lock(mutex);
    HC_TRY(stepper->reserve(works));
  }
  const auto is_missing = [](const Work& work) { return work.sequence->computed() < work.sequence->size(); };
  while (std::any_of(works.begin(), works.end(), is_missing)) {
    if (should_stop && should_stop()) return fail(ErrorCode::kCancelled, "stopped while the prompt was being computed");
    const std::lock_guard lock(mutex);
    if (!should_stop) {
      HC_TRY(stepper->step(works));
      continue;
    }
    const Asking asking(*executor, should_stop);
    const Stopwatch taken;
    HC_TRY(stepper->step(works, pace.rows(stepper->chunk())));
    pace.measured(stepper->last_rows(), taken.seconds());
  }
  return {};
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Result<void> Session::append(std::span<const Token> tokens, const std::function<bool()>& should_stop, uint32_t n_top) {
  if (tokens.empty()) return {};
  const Engine::Impl::Intake intake{.session = impl_.get(), .tokens = tokens, .n_top = n_top};
  return impl_->engine->take_in({&intake, 1}, should_stop);
}

Result<void> Session::append_all_logits(std::span<const Token> tokens, std::span<float> out) {
  const size_t vocabulary = impl_->engine->info.vocabulary;
  if (out.size() % vocabulary != 0 || out.size() / vocabulary != tokens.size())
    return invalid("logits of {} tokens need {} x {} floats, not {}", tokens.size(), tokens.size(), vocabulary,
                   out.size());
  if (tokens.empty()) return {};
  const Engine::Impl::Intake intake{.session = impl_.get(), .tokens = tokens, .all_logits = out};
  return impl_->engine->take_in({&intake, 1}, {});
}

Result<void> Session::decode(Token token, uint32_t n_top, uint32_t ahead) {
  const Engine::Impl::Intake intake{
      .session = impl_.get(), .tokens = {&token, 1}, .role = backend::Role::kGenerated, .n_top = n_top, .ahead = ahead};
  return impl_->engine->take_in({&intake, 1}, {});
}

std::span<const float> Session::logits() const { return impl_->logits; }
const TopLogits& Session::top_logits() const { return impl_->top; }
std::span<const Token> Session::tokens() const { return impl_->sequence->tokens(); }
uint32_t Session::position() const { return impl_->sequence->size(); }
uint32_t Session::computed() const { return impl_->sequence->computed(); }

Result<Session> Session::fork() const try {
  std::unique_ptr<Impl> copy;
  {
    const std::lock_guard lock(impl_->engine->mutex);
    impl_->engine->stepper->land(*impl_->sequence);
    copy = std::make_unique<Impl>(impl_->engine, impl_->sequence->fork());
  }
  copy->logits = impl_->logits;
  copy->top = impl_->top;
  return Session(std::move(copy));
} catch (const std::bad_alloc&) {
  return fail(ErrorCode::kOutOfMemory, "out of memory for a copy of a session of {} tokens", position());
}

Result<void> Session::rewind(uint32_t position) {
  if (position > impl_->sequence->size())
    return invalid("cannot rewind to position {}: the session ends at {}", position, impl_->sequence->size());
  if (position == impl_->sequence->size()) return {};
  const std::lock_guard lock(impl_->engine->mutex);
  impl_->engine->stepper->land(*impl_->sequence);
  impl_->sequence->truncate(position);
  impl_->forget_logits();
  return {};
}

Result<Session> Engine::new_session() try {
  const std::lock_guard lock(impl_->mutex);
  return Session(std::make_unique<Session::Impl>(impl_, Sequence(*impl_->cache)));
} catch (const std::bad_alloc&) {
  return fail(ErrorCode::kOutOfMemory, "out of memory for a session");
}

Result<void> Engine::step(std::span<const Feed> feeds) try {
  std::vector<Impl::Intake> intakes;
  std::vector<const Session*> seen;
  for (size_t i = 0; i < feeds.size(); ++i) {
    const Session* session = feeds[i].session;
    if (session == nullptr || session->impl_ == nullptr) return invalid("feed {} has no session", i);
    if (session->impl_->engine != impl_) return invalid("the session of feed {} belongs to another engine", i);
    seen.push_back(session);
    if (feeds[i].tokens.empty()) continue;
    intakes.push_back({.session = session->impl_.get(),
                       .tokens = feeds[i].tokens,
                       .role = feeds[i].generated ? backend::Role::kGenerated : backend::Role::kPrompt,
                       .n_top = feeds[i].n_top});
  }
  std::sort(seen.begin(), seen.end());
  if (std::adjacent_find(seen.begin(), seen.end()) != seen.end())
    return invalid("a session is given twice in one step");
  return intakes.empty() ? Result<void>() : impl_->take_in(intakes, {});
} catch (const std::bad_alloc&) {  // of the lists here: take_in() reports its own
  return fail(ErrorCode::kOutOfMemory, "out of memory for a step of {} sessions", feeds.size());
}

}  // namespace honeycrisp
