// honeycrisp/honeycrisp.h over the C++ API: handles, error copies, and nothing thrown into C.
#include "base/result.h"
#include <honeycrisp/engine.h>
#include <honeycrisp/honeycrisp.h>
#include <honeycrisp/sampling.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

struct hc_engine {
  std::shared_ptr<honeycrisp::Engine> engine;
};
struct hc_session {
  honeycrisp::Session session;
};
struct hc_sampler {
  honeycrisp::Sampler sampler;
};

namespace {

using honeycrisp::Error;
using honeycrisp::ErrorCode;
using honeycrisp::Result;

hc_status status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidInput: return HC_INVALID_INPUT;
    case ErrorCode::kUnsupported: return HC_UNSUPPORTED;
    case ErrorCode::kNotFound: return HC_NOT_FOUND;
    case ErrorCode::kIo: return HC_IO;
    case ErrorCode::kOutOfMemory: return HC_OUT_OF_MEMORY;
    case ErrorCode::kContextFull: return HC_CONTEXT_FULL;
    case ErrorCode::kCancelled: return HC_CANCELLED;
    case ErrorCode::kInternal: return HC_INTERNAL;
  }
  return HC_INTERNAL;
}

hc_status report(ErrorCode code, std::string_view message, hc_error* error) {
  const hc_status status = status_of(code);
  if (error == nullptr) return status;
  error->status = status;
  size_t length = std::min(message.size(), sizeof(error->message) - 1);
  // Cut on a character: back over continuation bytes.
  while (length < message.size() && length > 0 && (static_cast<unsigned char>(message[length]) & 0xC0) == 0x80)
    --length;
  std::memcpy(error->message, message.data(), length);
  error->message[length] = '\0';
  return status;
}

/// Runs `body`, a function that returns Result<void>, and turns whatever comes out of it into a status.
template <class Body>
hc_status guarded(hc_error* error, const Body& body) noexcept {
  try {
    const Result<void> result = body();
    return result ? HC_OK : report(result.error().code, result.error().message, error);
  } catch (const std::bad_alloc&) {
    return report(ErrorCode::kOutOfMemory, "out of memory", error);
  } catch (const std::exception& e) {
    return report(ErrorCode::kInternal, e.what(), error);
  }
}

/// Hands out as many items as fit and tells how many there are.
template <class Item>
void deliver(const Item* items, size_t n, Item* out, size_t capacity, size_t* count) {
  if (out != nullptr) std::copy_n(items, std::min(n, capacity), out);
  *count = n;
}

}  // namespace

const char* hc_version(void) { return HONEYCRISP_VERSION; }

hc_engine_options hc_engine_options_default(void) {
  const honeycrisp::EngineOptions options;
  hc_engine_options result = {};
  result.fast_activations = options.fast_activations;
  result.context = options.context;
  result.threads = options.threads;
  result.chunk = options.chunk;
  result.max_sessions = options.max_sessions;
  result.kv_memory_limit = options.kv_memory_limit;
  result.rollback = options.rollback;
  result.state_checkpoints = options.state_checkpoints;
  result.mmap = options.mmap;
  return result;
}

hc_status hc_engine_load(const char* path, const hc_engine_options* options, hc_engine** out, hc_error* error) {
  return guarded(error, [&]() -> Result<void> {
    if (path == nullptr || out == nullptr) return honeycrisp::invalid("path and out must not be NULL");
    honeycrisp::EngineOptions chosen;
    if (options != nullptr) {
      if (options->backend != nullptr) chosen.backend = options->backend;
      if (options->kv_type != nullptr) {
        HC_ASSIGN(chosen.kv_type, honeycrisp::parse_kv_type(options->kv_type));
      }
      chosen.fast_activations = options->fast_activations;
      chosen.context = options->context;
      chosen.threads = options->threads;
      chosen.chunk = options->chunk;
      chosen.max_sessions = options->max_sessions;
      chosen.kv_memory_limit = options->kv_memory_limit;
      chosen.rollback = options->rollback;
      chosen.state_checkpoints = options->state_checkpoints;
      chosen.mmap = options->mmap;
      if (options->progress != nullptr)
        chosen.progress = [call = options->progress, user = options->progress_user](uint64_t done, uint64_t total) {
          call(user, done, total);
        };
    }
    HC_ASSIGN(auto engine, honeycrisp::Engine::load(path, chosen));
    *out = new hc_engine{std::move(engine)};
    return {};
  });
}

void hc_engine_free(hc_engine* engine) { delete engine; }
uint32_t hc_engine_vocabulary(const hc_engine* engine) { return engine->engine->info().vocabulary; }
uint32_t hc_engine_context(const hc_engine* engine) { return engine->engine->info().context; }
bool hc_is_end_of_generation(const hc_engine* engine, hc_token token) {
  return engine->engine->is_end_of_generation(token);
}

hc_status hc_tokenize(const hc_engine* engine, const char* text, size_t length, hc_token* tokens, size_t capacity,
                      size_t* count, hc_error* error) {
  return guarded(error, [&]() -> Result<void> {
    HC_ASSIGN(const std::vector<hc_token> ids, engine->engine->tokenize_prompt({text, length}));
    deliver(ids.data(), ids.size(), tokens, capacity, count);
    return {};
  });
}

hc_status hc_detokenize(const hc_engine* engine, const hc_token* tokens, size_t count, char* text, size_t capacity,
                        size_t* length, hc_error* error) {
  return guarded(error, [&]() -> Result<void> {
    const std::string decoded = engine->engine->detokenize({tokens, count});
    deliver(decoded.data(), decoded.size(), text, capacity, length);
    return {};
  });
}

hc_status hc_session_new(hc_engine* engine, hc_session** out, hc_error* error) {
  return guarded(error, [&]() -> Result<void> {
    HC_ASSIGN(honeycrisp::Session session, engine->engine->new_session());
    *out = new hc_session{std::move(session)};
    return {};
  });
}

void hc_session_free(hc_session* session) { delete session; }

hc_status hc_append(hc_session* session, const hc_token* tokens, size_t count, hc_error* error) {
  return guarded(error, [&] { return session->session.append({tokens, count}); });
}

hc_status hc_decode(hc_session* session, hc_token token, hc_error* error) {
  return guarded(error, [&] { return session->session.decode(token); });
}

hc_status hc_append_for(hc_session* session, const hc_token* tokens, size_t count, const hc_sampler* sampler,
                        hc_error* error) {
  return guarded(error, [&] { return session->session.append({tokens, count}, {}, sampler->sampler.n_needed()); });
}

hc_status hc_decode_for(hc_session* session, hc_token token, const hc_sampler* sampler, hc_error* error) {
  return guarded(error, [&] { return session->session.decode(token, sampler->sampler.n_needed()); });
}

const float* hc_logits(const hc_session* session) {
  const auto logits = session->session.logits();
  return logits.empty() ? nullptr : logits.data();
}

uint32_t hc_position(const hc_session* session) { return session->session.position(); }

hc_status hc_fork(const hc_session* session, hc_session** out, hc_error* error) {
  return guarded(error, [&]() -> Result<void> {
    HC_ASSIGN(honeycrisp::Session copy, session->session.fork());
    *out = new hc_session{std::move(copy)};
    return {};
  });
}

hc_status hc_rewind(hc_session* session, uint32_t position, hc_error* error) {
  return guarded(error, [&] { return session->session.rewind(position); });
}

hc_sampling hc_sampling_default(void) {
  const honeycrisp::SamplingOptions options;
  hc_sampling result = {};
  result.temperature = options.temperature;
  result.top_k = options.top_k;
  result.top_p = options.top_p;
  result.min_p = options.min_p;
  result.repeat_penalty = options.repeat_penalty;
  result.repeat_last_n = options.repeat_last_n;
  result.seed = options.seed;
  return result;
}

hc_status hc_sampler_new(const hc_engine* engine, const hc_sampling* sampling, hc_sampler** out, hc_error* error) {
  return guarded(error, [&]() -> Result<void> {
    honeycrisp::SamplingOptions options;
    if (sampling != nullptr) {
      options.temperature = sampling->temperature;
      options.top_k = sampling->top_k;
      options.top_p = sampling->top_p;
      options.min_p = sampling->min_p;
      options.repeat_penalty = sampling->repeat_penalty;
      options.repeat_last_n = sampling->repeat_last_n;
      options.seed = sampling->seed;
      for (size_t i = 0; sampling->logit_bias != nullptr && i < sampling->logit_bias_count; ++i)
        options.logit_bias.emplace_back(sampling->logit_bias[i].token, sampling->logit_bias[i].bias);
    }
    HC_ASSIGN(auto sampler, honeycrisp::Sampler::create(options, engine->engine->info().vocabulary));
    *out = new hc_sampler{std::move(sampler)};
    return {};
  });
}

void hc_sampler_free(hc_sampler* sampler) { delete sampler; }

hc_status hc_sample(hc_sampler* sampler, const hc_session* session, hc_token* out, hc_error* error) {
  return guarded(error, [&]() -> Result<void> {
    const honeycrisp::Session& from = session->session;
    if (from.logits().empty() && from.top_logits().n == 0)
      return honeycrisp::invalid("the session has no logits yet: append tokens first");
    HC_ASSIGN(*out, from.logits().empty() ? sampler->sampler.sample(from.top_logits())
                                          : sampler->sampler.sample(from.logits()));
    sampler->sampler.accept(*out);
    return {};
  });
}

hc_status hc_sampler_accept(hc_sampler* sampler, hc_token token, hc_error* error) {
  return guarded(error, [&]() -> Result<void> {
    sampler->sampler.accept(token);
    return {};
  });
}
