// Runs a model file through one backend without the engine: the shortest way from a file and ids to logits.
#pragma once

#include "backend/backend.h"
#include "model/model.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace honeycrisp::testing {

/// A KV cache in f32, so that nothing but the arithmetic is compared.
inline backend::CompileOptions f32_cache(uint32_t threads = 0) {
  backend::CompileOptions options;
  options.cache_type = backend::CacheType::kF32;
  options.threads = threads;
  return options;
}

class Runner {
 public:
  /// Fails the running test and stays unusable if the model cannot be loaded.
  Runner(const std::string& path, const std::string& backend, backend::CompileOptions options,
         const model::LoadOptions& load = {});

  bool ok() const { return executor_ != nullptr; }
  size_t vocabulary() const { return model_.program.vocabulary; }
  const program::Program& program() const { return model_.program; }

  /// Computes tokens from position 0 on in chunks, and hands out the logits of every position, in order.
  void for_each_position(const std::vector<int32_t>& tokens, size_t chunk,
                         const std::function<void(size_t position, std::span<const float> logits)>& visit,
                         backend::Role role = backend::Role::kPrompt);
  /// The same, all together: [tokens][vocabulary].
  std::vector<float> all_logits(const std::vector<int32_t>& tokens, size_t chunk);
  /// Computes tokens after what was computed before; logits of the last one: [vocabulary].
  std::vector<float> append(const std::vector<int32_t>& tokens, size_t chunk,
                            backend::Role role = backend::Role::kPrompt);
  /// The first `n` tokens that follow `tokens`, the prompt in chunks.
  std::vector<int32_t> greedy(const std::vector<int32_t>& tokens, size_t n, size_t chunk);
  void reset() { position_ = 0; }

 private:
  std::vector<float> compute(std::span<const int32_t> tokens, bool all, backend::Role role);
  void reserve(size_t positions);

  std::optional<gguf::File> file_;
  model::Model model_;
  std::unique_ptr<backend::Executor> executor_;
  std::vector<backend::PageId> pages_;  // the same numbers in every pool
  uint32_t position_ = 0;
};

/// ‖a − b‖ / ‖b‖ in f64.
double relative_error(const std::vector<float>& a, const std::vector<float>& b);

std::vector<float> read_floats(const std::string& path);
std::vector<int32_t> read_ids(const std::string& path);

}  // namespace honeycrisp::testing
