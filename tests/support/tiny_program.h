// A program of one or two ops with random weights: embedding, what a case adds, logits of buffer 0.
#pragma once

#include "program/check.h"
#include "support/random_weights.h"

#include <deque>
#include <functional>
#include <optional>
#include <string>

namespace honeycrisp::test_support {

struct TinyProgram {
  static constexpr uint32_t kVocabulary = 40, kHeads = 6, kKvHeads = 2, kHeadDim = 32;

  program::Program program;
  std::deque<std::vector<std::byte>> bytes;
  Random random{42};
  uint32_t width;
  bool plain;                    // every weight f32
  bool only_packed = false;      // formats but Q4_0, Q8_0, Q4_K, Q6_K become Q4_0 or Q8_0, where rows are whole blocks
  uint32_t head_dim = kHeadDim;  // of attention()
  std::optional<uint8_t> fill;   // all bytes of the codes of weights that come

  explicit TinyProgram(uint32_t columns = 96, bool all_f32 = false);

  program::Matrix matrix(quant::Format format, uint32_t rows, uint32_t cols, uint32_t slices = 1);
  program::VectorId vector(uint64_t n, float low = 0.5f, float high = 1.5f);
  program::BufferId buffer(uint32_t columns);
  program::Slice all(program::BufferId b) const { return {b, 0, program.buffers[b].width}; }
  program::Norm norm(uint32_t n) { return {vector(n), 1e-5f}; }
  program::RopeId rope(bool interleaved, uint32_t pairs, uint32_t distance);

  void add(program::Op op, const char* label) { program.steps.push_back({std::move(op), label, {}}); }
  void store(program::Matrix m, program::Slice in, program::Slice out, program::Store ending = {});
  void residual(program::Matrix m, program::Slice in, program::Residual ending);
  /// q, k, v of the input, an Attend with the case's changes, and its output added to the input.
  void attention(const std::function<void(TinyProgram&, program::Attend&)>& change, uint32_t window = 0);
  /// Adds the logits. The program must pass its check.
  void finish();
};

}  // namespace honeycrisp::test_support
