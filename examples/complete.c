/* Continues a text with the likeliest tokens, through the C API, and writes it as it comes:
 *
 *   complete MODEL.gguf "The capital of France is" [TOKENS]
 *
 * It is built with the tests. In a CMake project of your own: add_subdirectory(honeycrisp), then
 * target_link_libraries(complete PRIVATE honeycrisp::honeycrisp) and the linker of C++ (LINKER_LANGUAGE CXX).
 */
#include <honeycrisp/honeycrisp.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static hc_status no_memory(hc_error* error) {
  error->status = HC_OUT_OF_MEMORY;
  snprintf(error->message, sizeof error->message, "no memory for the text");
  return error->status;
}

/* The tokens of a text in memory that the caller frees. A call without a buffer says how many there are. */
static hc_status tokenize(const hc_engine* engine, const char* text, hc_token** tokens, size_t* count,
                          hc_error* error) {
  const hc_status status = hc_tokenize(engine, text, strlen(text), NULL, 0, count, error);
  if (status != HC_OK) return status;
  *tokens = malloc((*count + 1) * sizeof **tokens);
  if (*tokens == NULL) return no_memory(error);
  return hc_tokenize(engine, text, strlen(text), *tokens, *count, count, error);
}

/* Writes what `token` adds to the text. Some vocabularies drop a space where a text begins, so it is taken together
 * with the token before it. The bytes may end in the middle of a character, which the next token completes. */
static hc_status write_token(const hc_engine* engine, hc_token before, hc_token token, hc_error* error) {
  const hc_token both[2] = {before, token};
  size_t known = 0, length = 0;
  hc_status status = hc_detokenize(engine, both, 1, NULL, 0, &known, error);
  if (status == HC_OK) status = hc_detokenize(engine, both, 2, NULL, 0, &length, error);
  if (status != HC_OK) return status;
  char* text = malloc(length + 1);
  if (text == NULL) return no_memory(error);
  status = hc_detokenize(engine, both, 2, text, length, &length, error);
  if (status == HC_OK && (fwrite(text + known, 1, length - known, stdout) != length - known || fflush(stdout) != 0)) {
    error->status = status = HC_IO;
    snprintf(error->message, sizeof error->message, "cannot write to standard output: %s", strerror(errno));
  }
  free(text);
  return status;
}

static hc_status complete(hc_engine* engine, hc_session* session, hc_sampler* sampler, const char* prompt, long most,
                          hc_error* error) {
  hc_token* tokens = NULL;
  size_t count = 0;
  hc_status status = tokenize(engine, prompt, &tokens, &count, error);
  if (status == HC_OK) status = hc_append_for(session, tokens, count, sampler, error);
  hc_token before = status == HC_OK && count > 0 ? tokens[count - 1] : 0;
  free(tokens);

  for (long i = 0; status == HC_OK && i < most; ++i) {
    if (i > 0) { /* the token before is computed only now that one more is wanted */
      if (hc_position(session) == hc_engine_context(engine)) break;
      status = hc_decode_for(session, before, sampler, error);
      if (status != HC_OK) break;
    }
    hc_token token;
    status = hc_sample(sampler, session, &token, error);
    if (status != HC_OK || hc_is_end_of_generation(engine, token)) break;
    status = write_token(engine, before, token, error);
    before = token;
  }
  return status;
}

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    fprintf(stderr, "usage: %s MODEL.gguf PROMPT [TOKENS]\n", argv[0]);
    return 2;
  }
  char* end = NULL;
  const long most = argc > 3 ? strtol(argv[3], &end, 10) : 32;
  if (argc > 3 && (end == argv[3] || *end != '\0' || most < 1)) {
    fprintf(stderr, "%s: TOKENS is a number from 1 on, not \"%s\"\n", argv[0], argv[3]);
    return 2;
  }

  hc_error error;
  hc_engine* engine = NULL;
  hc_session* session = NULL;
  hc_sampler* sampler = NULL;
  hc_sampling sampling = hc_sampling_default();
  sampling.temperature = 0;

  hc_status status = hc_engine_load(argv[1], NULL, &engine, &error);
  if (status == HC_OK) status = hc_session_new(engine, &session, &error);
  if (status == HC_OK) status = hc_sampler_new(engine, &sampling, &sampler, &error);
  if (status == HC_OK) status = complete(engine, session, sampler, argv[2], most, &error);
  if (status == HC_OK)
    putchar('\n');
  else
    fprintf(stderr, "%s\n", error.message);

  hc_sampler_free(sampler);
  hc_session_free(session);
  hc_engine_free(engine);
  return status == HC_OK ? 0 : 1;
}
