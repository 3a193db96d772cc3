/* The C API from C: loads the model named on the command line, and checks that steps, forks, rewinds and errors behave.
 * Ends with the line of the first check that fails. */
#include <honeycrisp/honeycrisp.h>

#include <stdio.h>
#include <string.h>

#define CHECK(condition)                                                         \
  do {                                                                           \
    if (!(condition)) {                                                          \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, error.message); \
      return 1;                                                                  \
    }                                                                            \
  } while (0)

static void count_progress(void* user, uint64_t done, uint64_t total) {
  if (done <= total) ++*(int*)user;
}

int main(int argc, char** argv) {
  hc_error error;
  memset(&error, 0, sizeof error);
  CHECK(argc == 2);
  CHECK(strlen(hc_version()) >= 5);

  hc_engine* engine = NULL;
  CHECK(hc_engine_load("/nonexistent.gguf", NULL, &engine, &error) == HC_NOT_FOUND);
  CHECK(error.status == HC_NOT_FOUND && strstr(error.message, "nonexistent") != NULL);
  CHECK(hc_engine_load("/nonexistent.gguf", NULL, &engine, NULL) == HC_NOT_FOUND);
  CHECK(hc_engine_load("", NULL, &engine, &error) == HC_INVALID_INPUT);
  CHECK(strstr(error.message, "path is empty") != NULL);
  hc_engine_options options = hc_engine_options_default();
  options.context = 64;
  options.kv_type = "f99";
  CHECK(hc_engine_load(argv[1], &options, &engine, &error) == HC_INVALID_INPUT);
  options.kv_type = "f32";
  options.state_checkpoints = 100000;
  CHECK(hc_engine_load(argv[1], &options, &engine, &error) == HC_INVALID_INPUT);
  CHECK(strstr(error.message, "state_checkpoints") != NULL);
  options.state_checkpoints = 2;
  options.backend = "reference";
  options.fast_activations = true;
  CHECK(hc_engine_load(argv[1], &options, &engine, &error) == HC_UNSUPPORTED);
  CHECK(strstr(error.message, "fast activations") != NULL);
  options.backend = NULL;
  options.fast_activations = false;
  options.rollback = 16;
  options.mmap = false;
  int progress_calls = 0;
  options.progress = count_progress;
  options.progress_user = &progress_calls;
  CHECK(hc_engine_load(argv[1], &options, &engine, &error) == HC_OK);
  CHECK(progress_calls > 0);
  CHECK(hc_engine_context(engine) == 64);
  const uint32_t vocabulary = hc_engine_vocabulary(engine);
  CHECK(vocabulary > 10);

  hc_session *first = NULL, *second = NULL;
  CHECK(hc_session_new(engine, &first, &error) == HC_OK);
  CHECK(hc_logits(first) == NULL);
  const hc_token prompt[] = {1, 2, 3, 4};
  const hc_token outside = (hc_token)vocabulary;
  CHECK(hc_append(first, &outside, 1, &error) == HC_INVALID_INPUT);
  CHECK(hc_append(first, prompt, 4, &error) == HC_OK);
  CHECK(hc_position(first) == 4);
  CHECK(hc_fork(first, &second, &error) == HC_OK);

  hc_sampling sampling = hc_sampling_default();
  hc_sampler* sampler = NULL;
  sampling.top_p = -1;
  CHECK(hc_sampler_new(engine, &sampling, &sampler, &error) == HC_INVALID_INPUT);
  CHECK(strstr(error.message, "top_p") != NULL);
  sampling = hc_sampling_default();
  sampling.temperature = 0;
  CHECK(hc_sampler_new(engine, &sampling, &sampler, &error) == HC_OK);
  hc_token token = -1;
  CHECK(hc_sample(sampler, first, &token, &error) == HC_OK);
  CHECK(token >= 0 && token < outside);
  CHECK(hc_sampler_accept(sampler, token, &error) == HC_OK);
  hc_logit_bias bias = {outside, 1};
  sampling.logit_bias = &bias;
  sampling.logit_bias_count = 1;
  hc_sampler* biased = NULL;
  CHECK(hc_sampler_new(engine, &sampling, &biased, &error) == HC_INVALID_INPUT);
  bias.token = token == 0 ? 1 : 0;
  bias.bias = 1e30f;
  CHECK(hc_sampler_new(engine, &sampling, &biased, &error) == HC_OK);
  hc_token wanted = -1;
  CHECK(hc_sample(biased, first, &wanted, &error) == HC_OK && wanted == bias.token);
  hc_sampler_free(biased);

  CHECK(hc_decode(first, token, &error) == HC_OK);
  CHECK(hc_decode(second, token, &error) == HC_OK);
  CHECK(memcmp(hc_logits(first), hc_logits(second), vocabulary * sizeof(float)) == 0);

  hc_token of_all = -1, of_few = -1; /* a greedy sampler needs one logit */
  CHECK(hc_sample(sampler, first, &of_all, &error) == HC_OK);
  CHECK(hc_rewind(second, 4, &error) == HC_OK);
  CHECK(hc_decode_for(second, token, sampler, &error) == HC_OK);
  CHECK(hc_logits(second) == NULL);
  CHECK(hc_sample(sampler, second, &of_few, &error) == HC_OK && of_few == of_all);
  hc_sampler* of_whole = NULL;
  sampling.logit_bias = NULL;
  sampling.temperature = 1;
  sampling.top_k = 0;
  CHECK(hc_sampler_new(engine, &sampling, &of_whole, &error) == HC_OK);
  CHECK(hc_sample(of_whole, second, &of_few, &error) == HC_INVALID_INPUT);
  CHECK(strstr(error.message, "need all") != NULL);
  CHECK(hc_append_for(second, prompt, 4, of_whole, &error) == HC_OK);
  CHECK(hc_logits(second) != NULL && hc_sample(of_whole, second, &of_few, &error) == HC_OK);
  hc_sampler_free(of_whole);

  CHECK(hc_rewind(second, 10, &error) == HC_INVALID_INPUT);
  CHECK(hc_rewind(second, 4, &error) == HC_OK);
  CHECK(hc_logits(second) == NULL);
  CHECK(hc_sample(sampler, second, &token, &error) == HC_INVALID_INPUT);
  hc_token many[61] = {0};
  CHECK(hc_append(second, many, 61, &error) == HC_CONTEXT_FULL);
  CHECK(hc_append(second, many, 60, &error) == HC_OK);

  hc_sampler_free(sampler);
  hc_engine_free(engine);
  CHECK(hc_rewind(first, 0, &error) == HC_OK); /* the sessions keep the engine alive */
  hc_session_free(first);
  hc_session_free(second);
  hc_session_free(NULL);
  return 0;
}
