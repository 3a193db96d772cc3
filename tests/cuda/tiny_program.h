// A program of one or two ops with random weights: embedding, what the case adds, logits of buffer 0.
#pragma once

#include "backend/cpu/testing.h"
#include "program/check.h"

#include <cmath>
#include <deque>
#include <functional>
#include <gtest/gtest.h>

namespace honeycrisp::testing {

struct TinyProgram {
  static constexpr uint32_t kVocabulary = 40, kHeads = 6, kKvHeads = 2, kHeadDim = 32;

  program::Program program;
  std::deque<std::vector<std::byte>> bytes;
  backend::cpu::testing::Random random{42};
  uint32_t width;

  explicit TinyProgram(uint32_t columns = 96) : width(columns) {
    buffer(width);
    add(program::Embed{matrix(quant::Format::kF32, kVocabulary, width), all(0), 1.0f}, "embed");
    program.vocabulary = kVocabulary;
    program.n_layers = 1;
  }
  program::Matrix matrix(quant::Format format, uint32_t rows, uint32_t cols) {
    bytes.push_back(backend::cpu::testing::random_weights(random, format, uint64_t{rows} * cols));
    program.weights.push_back({.name = "w" + std::to_string(program.weights.size()),
                               .format = format,
                               .cols = cols,
                               .rows = rows,
                               .data = bytes.back().data(),
                               .bytes = bytes.back().size()});
    return {uint32_t(program.weights.size() - 1), 0, rows};
  }
  program::VectorId vector(uint32_t n, float low = 0.5f, float high = 1.5f) {
    program.vectors.push_back({"v", random.floats(n, low, high)});
    return program::VectorId(program.vectors.size() - 1);
  }
  program::BufferId buffer(uint32_t columns) {
    program.buffers.push_back({"b", columns});
    return program::BufferId(program.buffers.size() - 1);
  }
  program::Slice all(program::BufferId b) const { return {b, 0, program.buffers[b].width}; }
  program::Norm norm(uint32_t n) { return {vector(n), 1e-5f}; }
  void add(program::Op op, const char* label) { program.steps.push_back({std::move(op), label, {}}); }
  void store(program::Matrix m, program::Slice in, program::Slice out, program::Store ending = {}) {
    ending.outs = {out};
    add(program::Project{in, norm(in.width), {m}, {std::nullopt}, ending}, "store");
  }
  void residual(program::Matrix m, program::Slice in, program::Residual ending) {
    ending.x = all(0);
    add(program::Project{in, std::nullopt, {m}, {vector(m.rows, -1, 1)}, ending}, "residual");
  }
  void finish() {
    add(program::Logits{all(0), norm(width), matrix(quant::Format::kQ8_0, kVocabulary, width), 1.5f, 30.0f}, "logits");
    program::assign_pools(program);
    const auto checked = program::check(program);
    ASSERT_TRUE(checked.has_value()) << checked.error().message;
  }
  program::RopeId rope(bool interleaved, uint32_t pairs, uint32_t distance) {
    program::Rope r{.interleaved = interleaved, .pair_distance = distance};
    for (uint32_t i = 0; i < pairs; ++i) r.inverse_frequency.push_back(std::pow(1e-3, double(i) / pairs));
    program.ropes.push_back(r);
    return program::RopeId(program.ropes.size() - 1);
  }
  /// q, k, v of the input, an Attend with the case's changes, and its output added to the input.
  void attention(const std::function<void(TinyProgram&, program::Attend&)>& change, uint32_t window = 0) {
    using quant::Format;
    program.caches.push_back({.n_kv_heads = kKvHeads, .key_dim = kHeadDim, .value_dim = kHeadDim, .window = window});
    program::Attend a{.n_heads = kHeads, .q = {}, .scale = 0.3f};
    a.cache = program::CacheId(program.caches.size() - 1);
    a.window = window;
    a.k = all(buffer(kKvHeads * kHeadDim));
    a.v = all(buffer(kKvHeads * kHeadDim));
    a.out = all(buffer(kHeads * kHeadDim));
    change(*this, a);
    a.q = all(buffer(kHeads * kHeadDim * (a.output_gate ? 2 : 1)));
    store(matrix(Format::kQ4_0, a.q.width, width), all(0), a.q);
    if (a.k) store(matrix(Format::kQ8_0, a.k->width, width), all(0), *a.k);
    if (a.v) store(matrix(Format::kQ5_1, a.v->width, width), all(0), *a.v);
    add(a, "attend");
    residual(matrix(Format::kQ4_1, width, a.out.width), a.out, {.branch_scale = 0.5f});
  }
};

}  // namespace honeycrisp::testing
