/* The C API: the same engine and sessions as honeycrisp/engine.h, for C and for other languages' bindings. C99.
 *
 * Handles are opaque; each is freed by its own _free function, which accepts NULL. A session keeps its engine alive.
 * Functions that can fail return an hc_status and fill in `error` (which may be NULL). There is no global state.
 * Thread rule: an engine may be shared by threads; a session or sampler belongs to one thread at a time.
 * Buffers: a function that yields a number of items writes at most `capacity` of them and always reports how many
 * there are, so that a call with capacity 0 (and no buffer) asks for the size. Text is UTF-8 with a length; no
 * terminator is needed. Other pointers must not be NULL unless it is said.
 */
#ifndef HONEYCRISP_HONEYCRISP_H
#define HONEYCRISP_HONEYCRISP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define HC_API
#else
#define HC_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hc_engine hc_engine;
typedef struct hc_session hc_session;
typedef struct hc_sampler hc_sampler;
typedef int32_t hc_token;

typedef enum hc_status {
  HC_OK = 0,
  HC_INVALID_INPUT,
  HC_UNSUPPORTED,
  HC_NOT_FOUND,
  HC_IO,
  HC_OUT_OF_MEMORY,
  HC_CONTEXT_FULL,
  HC_CANCELLED,
  HC_INTERNAL
} hc_status;

/* Owned by the caller. Written only when a function fails. */
typedef struct hc_error {
  hc_status status;
  char message[1024]; /* one line, UTF-8, cut to fit, terminated */
} hc_error;

/* Start from hc_engine_options_default(): zero is not the default of every field. */
typedef struct hc_engine_options {
  const char* backend;   /* NULL: "auto" */
  const char* kv_type;   /* NULL: "f16"; "f32", "q8_0" */
  bool fast_activations; /* 8 instead of 14 bits in products of quantized weights: quicker prompts, answers a little
                          * off; of the cpu backend alone */
  uint32_t context;      /* positions per session; 0: min(the model's own, 8192) */
  uint32_t threads;      /* 0: the physical cores that this process may use */
  uint32_t chunk;        /* most prompt positions computed at once */
  uint32_t max_sessions;
  uint64_t kv_memory_limit;   /* bytes; 0: what `context` needs for max_sessions */
  uint32_t rollback;          /* positions that hc_rewind goes back without recomputing, in sliding-window models */
  uint32_t state_checkpoints; /* recurrent models: earlier states that a session keeps, for rewinds */
  bool mmap;                  /* map the file rather than read it into memory */
  /* Called on the loading thread with the bytes of weights taken in so far and in all; NULL: never. */
  void (*progress)(void* progress_user, uint64_t done, uint64_t total);
  void* progress_user;
} hc_engine_options;

typedef struct hc_logit_bias {
  hc_token token;
  float bias; /* added to the logit; -INFINITY bans the token */
} hc_logit_bias;

/* Fields as honeycrisp::SamplingOptions. Start from hc_sampling_default(). */
typedef struct hc_sampling {
  float temperature;
  int32_t top_k;
  float top_p;
  float min_p;
  float repeat_penalty;
  int32_t repeat_last_n;
  uint64_t seed;
  const hc_logit_bias* logit_bias; /* [logit_bias_count]; NULL: none */
  size_t logit_bias_count;
} hc_sampling;

/* "0.1.0" */
HC_API const char* hc_version(void);

HC_API hc_engine_options hc_engine_options_default(void);
/* `options` may be NULL. */
HC_API hc_status hc_engine_load(const char* path, const hc_engine_options* options, hc_engine** out, hc_error* error);
HC_API void hc_engine_free(hc_engine* engine);
HC_API uint32_t hc_engine_vocabulary(const hc_engine* engine); /* logits of a token */
HC_API uint32_t hc_engine_context(const hc_engine* engine);    /* positions of a session */
HC_API bool hc_is_end_of_generation(const hc_engine* engine, hc_token token);

/* Tokens of a raw prompt, with BOS where the model asks for one. Special tokens in the text are recognised. */
HC_API hc_status hc_tokenize(const hc_engine* engine, const char* text, size_t length, hc_token* tokens,
                             size_t capacity, size_t* count, hc_error* error);
/* Text of the tokens without control tokens: bytes, which may end in the middle of a character. */
HC_API hc_status hc_detokenize(const hc_engine* engine, const hc_token* tokens, size_t count, char* text,
                               size_t capacity, size_t* length, hc_error* error);

HC_API hc_status hc_session_new(hc_engine* engine, hc_session** out, hc_error* error);
HC_API void hc_session_free(hc_session* session);
/* Computes prompt tokens after the session's end; all or none. */
HC_API hc_status hc_append(hc_session* session, const hc_token* tokens, size_t count, hc_error* error);
/* Computes one generated token. */
HC_API hc_status hc_decode(hc_session* session, hc_token token, hc_error* error);
/* The same for a caller who only wants to hc_sample with this sampler: if the largest few logits are all that it needs,
 * no others leave a GPU, and hc_logits is NULL afterwards. */
HC_API hc_status hc_append_for(hc_session* session, const hc_token* tokens, size_t count, const hc_sampler* sampler,
                               hc_error* error);
HC_API hc_status hc_decode_for(hc_session* session, hc_token token, const hc_sampler* sampler, hc_error* error);
/* [hc_engine_vocabulary] of the last computed token, valid until the session changes; NULL before the first, or if not
 * all were computed. */
HC_API const float* hc_logits(const hc_session* session);
HC_API uint32_t hc_position(const hc_session* session);
HC_API hc_status hc_fork(const hc_session* session, hc_session** out, hc_error* error);
/* Forgets everything from `position` on. */
HC_API hc_status hc_rewind(hc_session* session, uint32_t position, hc_error* error);

HC_API hc_sampling hc_sampling_default(void);
/* `sampling` may be NULL. */
HC_API hc_status hc_sampler_new(const hc_engine* engine, const hc_sampling* sampling, hc_sampler** out,
                                hc_error* error);
HC_API void hc_sampler_free(hc_sampler* sampler);
/* Chooses from the session's logits and records the choice for the repeat penalty. */
HC_API hc_status hc_sample(hc_sampler* sampler, const hc_session* session, hc_token* out, hc_error* error);
/* Records a token of the prompt for the repeat penalty. */
HC_API hc_status hc_sampler_accept(hc_sampler* sampler, hc_token token, hc_error* error);

#ifdef __cplusplus
}
#endif

#endif
