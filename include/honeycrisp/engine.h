// The public C++ API: an Engine is a loaded model, a Session is one timeline of tokens in it.
// No tensor, backend or file type leaks through here. Thread rule: an Engine may be shared by threads; calls that touch
// the cache (append, decode, step, fork, rewind, closing a session) are serialized inside it, one batch at a time.
// A Session belongs to one caller at a time. Callbacks run on the calling thread, outside the lock.
//
//   auto engine = honeycrisp::Engine::load("model.gguf");
//   auto session = (*engine)->new_session();
//   session->append((*engine)->tokenize_prompt("The capital of France is").value());
//   auto sampler = honeycrisp::Sampler::create({}, (*engine)->info().vocabulary);
//   honeycrisp::Token next = sampler->sample(session->logits()).value();
#pragma once

#include "honeycrisp/result.h"
#include "honeycrisp/sampling.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace honeycrisp {

enum class KvType { kF16, kF32, kQ8_0 };
/// "f16", "f32", "q8_0".
Result<KvType> parse_kv_type(std::string_view name);

struct EngineOptions {
  std::string backend = "auto";  // a name from backend_names()
  uint32_t context = 0;          // positions per session; 0: min(the model's own, 8192)
  KvType kv_type = KvType::kF16;
  /// Products of quantized weights round activations to 8 bits instead of 14: prompts in little more than half the
  /// time, answers a little off those of the model. Only the cpu backend has it; others refuse, and "auto" passes them
  /// over.
  bool fast_activations = false;
  uint32_t threads = 0;  // 0: physical cores inside affinity and cgroup quota
  uint32_t chunk = 512;  // most prompt positions computed at once; never changes a bit of the result
  bool mmap = true;
  uint64_t kv_memory_limit = 0;  // bytes of KV pages and recurrent states over all sessions; 0: what `context`
                                 // needs for max_sessions
  uint32_t max_sessions = 16;    // sessions with a full context at the same time; more may share that memory
  uint32_t rollback = 256;       // positions that rewind() goes back without recomputing, in sliding-window models
  /// Models with recurrent layers: earlier states that a session may keep besides its current one, the further apart
  /// the older. rewind() resumes from the newest at or before its position, or else from the beginning, and the next
  /// append computes the rest again, with the same bits. They give way when memory is short. One takes
  /// ModelInfo::state_bytes.
  uint32_t state_checkpoints = 4;
  /// Where compiled kernels are kept for later runs, on systems that compile them (Metal); empty: nowhere. The folder
  /// is made when something is kept.
  std::string kernel_folder;
  std::function<void(uint64_t done, uint64_t total)> progress;  // bytes of weights taken in
};

struct ModelInfo {
  std::string path, name, architecture, quantization;  // quantization: e.g. "Q4_1 (96 %), Q8_0"
  std::string backend;                                 // what runs it: name, device, instruction set, threads
  uint64_t parameters = 0;
  uint64_t file_bytes = 0;
  uint64_t weight_bytes_per_token = 0;  // read by one decoded token
  uint64_t kv_bytes_per_token = 0;      // of cache, per position
  uint64_t state_bytes = 0;             // of recurrent layers, per session; 0: the model has none
  uint32_t layers = 0, width = 0;
  uint32_t vocabulary = 0;       // ids 0 ≤ id < vocabulary can be computed and chosen: rows of the tables, or fewer
  uint32_t trained_context = 0;  // the model's own
  uint32_t context = 0;          // of a session here
  bool has_vocabulary = false;
  bool has_chat_template = false;
};

/// Names accepted by EngineOptions::backend besides "auto".
std::vector<std::string> backend_names();

class Engine;
struct EngineFactory;

/// One timeline of tokens with its KV pages and recurrent state. Movable; closing it frees them.
class Session {
 public:
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  /// Computes prompt tokens after the current end, in chunks. Afterwards logits() belongs to the last one.
  /// Errors: kContextFull (with both numbers, before anything is computed), kInvalidInput for an id outside the
  /// vocabulary, kOutOfMemory; the session is then as it was. `should_stop` is asked before each chunk, or
  /// about four times a second if chunks take longer (but not more often than every 64 positions); true ends with
  /// kCancelled and keeps what was computed. `n_top`: 0, or up to kMostTopLogits: of the last token only so many of the
  /// largest logits are wanted (see Sampler::n_needed()), which spares their way from a GPU. top_logits() has them
  /// then, and logits() is empty.
  Result<void> append(std::span<const Token> tokens, const std::function<bool()>& should_stop = {}, uint32_t n_top = 0);
  /// The same, and the logits of every given token: out is [tokens][vocabulary].
  Result<void> append_all_logits(std::span<const Token> tokens, std::span<float> out);
  /// Computes one generated token. The same bits as append() on this backend unless info says otherwise. `ahead`, if
  /// n_top is not 0: so many calls like this one will follow, each with the token of the largest logit, unless the
  /// caller changes its mind. Some GPUs then go on with those tokens meanwhile, as long as no other session computes;
  /// what was computed in vain is no part of the session, and no result depends on it.
  Result<void> decode(Token token, uint32_t n_top = 0, uint32_t ahead = 0);

  std::span<const float> logits() const;  // [vocabulary] of the last computed token; empty before the first
  const TopLogits& top_logits() const;    // of the last computed token, if they were asked for instead; else n = 0
  std::span<const Token> tokens() const;  // the timeline so far
  uint32_t position() const;              // tokens().size()
  uint32_t computed() const;              // of them, those that the next append need not compute again: see rewind()

  /// A second timeline with the same past; pages and state are shared until one side writes.
  Result<Session> fork() const;
  /// Forgets everything from `position` on. logits() and top_logits() are empty until the next token unless nothing
  /// changed. Behind what a sliding window still holds, and from the last kept recurrent state on, the next append
  /// computes the past again, with the same bits. Error: kInvalidInput for a position past the end.
  Result<void> rewind(uint32_t position);

 private:
  friend class Engine;
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;  // null only after a move
};

/// One session's next tokens in a batched step.
struct Feed {
  Session* session = nullptr;
  std::span<const Token> tokens;
  bool generated = false;  // decode rows rather than prompt rows
  uint32_t n_top = 0;      // as in Session::append()
};

class Engine {
 public:
  /// Loads a model from a GGUF file (any shard of a split model). The error names the file and what is wrong.
  static Result<std::shared_ptr<Engine>> load(const std::string& path, EngineOptions options = {});
  ~Engine();

  const ModelInfo& info() const;

  /// Token ids of a text, without BOS or EOS.
  Result<std::vector<Token>> tokenize(std::string_view text, bool parse_special = false) const;
  /// A raw prompt: tokenize(), with BOS before it where the model asks for one and the text does not begin with it.
  Result<std::vector<Token>> tokenize_prompt(std::string_view text, bool parse_special = true) const;
  std::string detokenize(std::span<const Token> tokens, bool with_special = false) const;
  bool is_end_of_generation(Token token) const;
  std::vector<Token> end_of_generation() const;

  Result<Session> new_session();
  /// Computes several sessions' tokens together, in batches of at most `chunk` rows (all or none). Each session then
  /// has the logits of its last token. Errors: as append(); a session that is absent, of another engine or given twice.
  Result<void> step(std::span<const Feed> feeds);

  /// For the applications of this project, which need the tokenizer, the template and the program:
  /// src/engine/internals.h.
  struct Internals;
  const Internals& internals() const;

 private:
  friend class Session;
  friend struct EngineFactory;
  struct Impl;
  explicit Engine(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // sessions keep it alive
};

}  // namespace honeycrisp
