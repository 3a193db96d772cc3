#include "support/tiny_program.h"

#include "base/check.h"

namespace honeycrisp::test_support {

using namespace program;
using quant::Format;

TinyProgram::TinyProgram(uint32_t columns, bool all_f32) : width(columns), plain(all_f32) {
  buffer(width);
  add(Embed{matrix(Format::kF32, kVocabulary, width), all(0), 1.0f}, "embed");
  program.vocabulary = kVocabulary;
  program.n_layers = 1;
}

Matrix TinyProgram::matrix(Format format, uint32_t rows, uint32_t cols, uint32_t slices) {
  if (plain) format = Format::kF32;
  if (only_packed && cols % 32 == 0) {
    const bool packed =
        format == Format::kQ4_0 || format == Format::kQ8_0 || format == Format::kQ4_K || format == Format::kQ6_K;
    if (!packed) format = format == Format::kBF16 || format == Format::kQ5_1 ? Format::kQ8_0 : Format::kQ4_0;
  }
  bytes.push_back(random_weights(random, format, uint64_t{slices} * rows * cols, fill));
  program.weights.push_back({.name = "w" + std::to_string(program.weights.size()),
                             .format = format,
                             .cols = cols,
                             .rows = rows,
                             .slices = slices,
                             .data = bytes.back().data(),
                             .bytes = bytes.back().size()});
  return {WeightId(program.weights.size() - 1), 0, rows};
}

VectorId TinyProgram::vector(uint64_t n, float low, float high) {
  program.vectors.push_back({"v", random.floats(n, low, high)});
  return VectorId(program.vectors.size() - 1);
}

BufferId TinyProgram::buffer(uint32_t columns) {
  program.buffers.push_back({"b", columns});
  return BufferId(program.buffers.size() - 1);
}

RopeId TinyProgram::rope(bool interleaved, uint32_t pairs, uint32_t distance) {
  Rope r{.interleaved = interleaved, .pair_distance = distance};
  // By multiplication, which is the same everywhere, as std::pow need not be.
  for (double frequency = 1; r.inverse_frequency.size() < pairs; frequency *= 0.65)
    r.inverse_frequency.push_back(frequency);
  program.ropes.push_back(r);
  return RopeId(program.ropes.size() - 1);
}

void TinyProgram::store(Matrix m, Slice in, Slice out, Store ending) {
  ending.outs = {out};
  add(Project{in, norm(in.width), {m}, {std::nullopt}, ending}, "store");
}

void TinyProgram::residual(Matrix m, Slice in, Residual ending) {
  ending.x = all(0);
  add(Project{in, std::nullopt, {m}, {vector(m.rows, -1, 1)}, ending}, "residual");
}

void TinyProgram::attention(const std::function<void(TinyProgram&, Attend&)>& change, uint32_t window) {
  program.caches.push_back({.n_kv_heads = kKvHeads, .key_dim = head_dim, .value_dim = head_dim, .window = window});
  Attend a{.n_heads = kHeads, .q = {}, .scale = 0.02f};
  a.cache = CacheId(program.caches.size() - 1);
  a.window = window;
  a.k = all(buffer(kKvHeads * head_dim));
  a.v = all(buffer(kKvHeads * head_dim));
  a.out = all(buffer(kHeads * head_dim));
  change(*this, a);
  a.q = all(buffer(kHeads * head_dim * (a.output_gate ? 2 : 1)));
  const bool blocks = width % 32 == 0;
  store(matrix(blocks ? Format::kQ4_0 : Format::kF16, a.q.width, width), all(0), a.q);
  if (a.k) store(matrix(blocks ? Format::kQ8_0 : Format::kF16, a.k->width, width), all(0), *a.k);
  if (a.v) store(matrix(blocks ? Format::kQ5_1 : Format::kBF16, a.v->width, width), all(0), *a.v);
  add(a, "attend");
  residual(matrix(a.out.width % 32 == 0 ? Format::kQ4_1 : Format::kF16, width, a.out.width), a.out,
           {.branch_scale = 0.5f});
}

void TinyProgram::finish() {
  add(Logits{all(0), norm(width), matrix(width % 32 == 0 ? Format::kQ8_0 : Format::kF16, kVocabulary, width), 1.5f,
             30.0f},
      "logits");
  assign_pools(program);
  const auto checked = check(program);
  HC_CHECK(checked.has_value(), "{}", checked.error().message);
}

}  // namespace honeycrisp::test_support
