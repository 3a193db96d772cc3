// Attend: append keys and values, attend by chunks of 256 positions at absolute multiples, merged left to right.
// Pass 1 norms and rotates; pass 2 computes chunks; pass 3 finishes. With many rows a pass-2 item is a row and KV head
// with all its chunks; with few rows (decoding) every chunk is an item of its own and pass 3 merges them. The chunks,
// their order and so the bits are the same.
#include "backend/cpu/op_kernel.h"
#include "base/check.h"
#include "base/checked.h"

#include <algorithm>
#include <cstring>

namespace honeycrisp::backend::cpu {
namespace {

using program::Attend;
using program::Norm;

static_assert(kChunkPositions == program::kAttentionChunk && kPositionsPerPage == program::kPagePositions);

enum Pass : uint32_t { kAppend, kChunks, kMerge, kPasses };

class AttendKernel final : public OpKernel {
 public:
  AttendKernel(const program::Program& program, const Attend& op)
      : program_(program),
        op_(op),
        layer_(program.cache(op)),
        n_queries_(op.n_heads / layer_.n_kv_heads),
        softmax_(softmax_floats(layer_.value_dim)) {}

  Needs needs() const override {
    const size_t append = std::max(size_t{layer_.n_kv_heads} * layer_.key_dim, size_t{layer_.value_dim});
    const size_t attend = n_queries_ * (kChunkPositions + 2 * softmax_);
    return {.queries_per_row = size_t{op_.n_heads} * layer_.key_dim,
            .thread_floats = round_up(std::max(append, attend), size_t{kLanes}),
            .softmax_floats = n_queries_ * softmax_};
  }
  uint32_t n_passes() const override { return kPasses; }

  size_t n_items(uint32_t pass, const StepState& s) const override {
    const size_t pairs = size_t{s.n_rows} * layer_.n_kv_heads;
    const bool split = splits_chunks(pairs, s.n_threads);
    if (pass == kAppend) return s.n_rows;
    if (pass == kChunks) return split ? pairs * s.n_chunks : pairs;
    return split ? pairs : 0;
  }

  void run(uint32_t pass, size_t begin, size_t end, const StepState& s, ThreadScratch& t) const override {
    const bool split = splits_chunks(size_t{s.n_rows} * layer_.n_kv_heads, s.n_threads);
    for (size_t item = begin; item < end; ++item) {
      switch (pass) {
        case kAppend: append(item, s, t); break;
        case kChunks: split ? attend_one_chunk(item, s, t) : attend_all_chunks(item, s, t); break;
        case kMerge: merge_chunks(item, s); break;
      }
    }
  }

 private:
  struct Range {
    uint32_t first, last;  // positions [first, last)
  };
  Range visible(uint32_t position) const {
    return {op_.window != 0 && position >= op_.window ? position - op_.window + 1 : 0, position + 1};
  }

  // ---- pass 1

  void norm_and_rotate(const std::optional<Norm>& norm, float* x, uint32_t n_heads, uint32_t position,
                       const StepState& s) const {
    if (norm) {
      const float* weight = norm->weight ? program_.vectors[*norm->weight].values.data() : nullptr;
      const uint32_t all = n_heads * layer_.key_dim, run = op_.norm_whole_projection ? all : layer_.key_dim;
      for (uint32_t i = 0; i < all; i += run) s.isa->rms_norm(x + i, run, weight, norm->eps, x + i);
    }
    if (op_.rope)
      for (uint32_t h = 0; h < n_heads; ++h) s.ropes->rotate(*op_.rope, position, x + size_t{h} * layer_.key_dim);
  }

  void append(size_t row, const StepState& s, ThreadScratch& t) const {
    const Row& r = s.batch->rows[row];
    const size_t key_dim = layer_.key_dim, value_dim = layer_.value_dim;
    float* q = queries(row, s);
    const float* in = s.row(op_.q, row);
    for (uint32_t h = 0; h < op_.n_heads; ++h)
      std::memcpy(q + h * key_dim, in + h * key_dim * (op_.output_gate ? 2 : 1), key_dim * sizeof(float));
    norm_and_rotate(op_.q_norm, q, op_.n_heads, r.position, s);
    if (!op_.k) return;

    const PageId page = s.batch->sequences[r.sequence].tables[layer_.pool][r.position / kPositionsPerPage];
    const uint32_t in_page = r.position % kPositionsPerPage;
    const float* v = s.row(op_.v ? *op_.v : *op_.k, row);
    for (uint32_t h = 0; h < layer_.n_kv_heads; ++h) {
      const float* value = v + h * value_dim;
      if (op_.v_norm) {
        const float* weight = op_.v_norm->weight ? program_.vectors[*op_.v_norm->weight].values.data() : nullptr;
        s.isa->rms_norm(value, layer_.value_dim, weight, op_.v_norm->eps, t.floats);
        value = t.floats;
      }
      s.cache->put_value(layer_, s.cache->values(layer_, page, h), in_page, value);
    }
    float* k = t.floats;
    std::memcpy(k, s.row(*op_.k, row), layer_.n_kv_heads * key_dim * sizeof(float));
    norm_and_rotate(op_.k_norm, k, layer_.n_kv_heads, r.position, s);
    for (uint32_t h = 0; h < layer_.n_kv_heads; ++h)
      s.cache->put_key(layer_, s.cache->keys(layer_, page, h), in_page, k + h * key_dim);
  }

  float* queries(size_t row, const StepState& s) const { return s.queries + row * op_.n_heads * layer_.key_dim; }

  // ---- pass 2

  // Chunk `chunk` of a row and KV head, to out [n_queries][softmax].
  void attend_chunk(size_t row, uint32_t kv_head, uint32_t chunk, const StepState& s, float* scores, float* out) const {
    const Row& r = s.batch->rows[row];
    const Range range = visible(r.position);
    const uint32_t start = chunk * kChunkPositions;
    AttendChunkArgs a{.queries = queries(row, s) + size_t{kv_head} * n_queries_ * layer_.key_dim,
                      .n_queries = n_queries_,
                      .key_dim = layer_.key_dim,
                      .value_dim = layer_.value_dim,
                      .element = s.cache->element(),
                      .key_pages = {},
                      .value_pages = {},
                      .key_tile_bytes = s.cache->key_tile_bytes(layer_.pool),
                      .value_position_bytes = s.cache->value_position_bytes(layer_.pool),
                      .first = std::max(range.first, start) - start,
                      .last = std::min(range.last, start + kChunkPositions) - start,
                      .scale = op_.scale,
                      .softcap = op_.softcap,
                      .scores = scores,
                      .out = out};
    const auto pages = s.batch->sequences[r.sequence].tables[layer_.pool];
    for (uint32_t i = a.first / kPositionsPerPage; i * kPositionsPerPage < a.last; ++i) {
      const PageId page = pages[start / kPositionsPerPage + i];
      a.key_pages[i] = s.cache->keys(layer_, page, kv_head);
      a.value_pages[i] = s.cache->values(layer_, page, kv_head);
    }
    s.isa->attend_chunk(a);
  }

  void attend_all_chunks(size_t item, const StepState& s, ThreadScratch& t) const {
    const size_t row = item / layer_.n_kv_heads;
    const auto kv_head = uint32_t(item % layer_.n_kv_heads);
    const Range range = visible(s.batch->rows[row].position);
    float* state = t.floats;
    float* part = state + n_queries_ * softmax_;
    float* scores = part + n_queries_ * softmax_;
    const uint32_t first_chunk = range.first / kChunkPositions;
    for (uint32_t chunk = first_chunk; chunk * kChunkPositions < range.last; ++chunk) {
      attend_chunk(row, kv_head, chunk, s, scores, chunk == first_chunk ? state : part);
      if (chunk == first_chunk) continue;
      for (uint32_t i = 0; i < n_queries_; ++i)
        s.isa->attend_merge(state + i * softmax_, part + i * softmax_, layer_.value_dim);
    }
    for (uint32_t i = 0; i < n_queries_; ++i) finish(row, kv_head * n_queries_ + i, state + i * softmax_, s);
  }

  float* part_of(size_t pair, uint32_t chunk, const StepState& s) const {
    return s.softmax + (pair * s.n_chunks + chunk) * n_queries_ * softmax_;
  }

  void attend_one_chunk(size_t item, const StepState& s, ThreadScratch& t) const {
    const size_t pair = item / s.n_chunks, row = pair / layer_.n_kv_heads;
    const auto chunk = uint32_t(item % s.n_chunks);
    const Range range = visible(s.batch->rows[row].position);
    if (chunk < range.first / kChunkPositions || chunk * kChunkPositions >= range.last) return;
    attend_chunk(row, uint32_t(pair % layer_.n_kv_heads), chunk, s, t.floats, part_of(pair, chunk, s));
  }

  // ---- pass 3

  void merge_chunks(size_t pair, const StepState& s) const {
    const size_t row = pair / layer_.n_kv_heads;
    const auto kv_head = uint32_t(pair % layer_.n_kv_heads);
    const Range range = visible(s.batch->rows[row].position);
    const uint32_t first_chunk = range.first / kChunkPositions;
    float* state = part_of(pair, first_chunk, s);
    for (uint32_t i = 0; i < n_queries_; ++i) {
      for (uint32_t chunk = first_chunk + 1; chunk * kChunkPositions < range.last; ++chunk)
        s.isa->attend_merge(state + i * softmax_, part_of(pair, chunk, s) + i * softmax_, layer_.value_dim);
      finish(row, kv_head * n_queries_ + i, state + i * softmax_, s);
    }
  }

  void finish(size_t row, uint32_t head, float* state, const StepState& s) const {
    const float* sink = op_.sinks ? program_.vectors[*op_.sinks].values.data() + head : nullptr;
    float* out = s.row(op_.out, row) + size_t{head} * layer_.value_dim;
    s.isa->attend_finish(state, sink, layer_.value_dim, out);
    if (!op_.output_gate) return;
    const float* gate = s.row(op_.q, row) + (2 * size_t{head} + 1) * layer_.key_dim;
    s.isa->sigmoid_gate(gate, out, layer_.value_dim);
  }

  const program::Program& program_;
  const Attend& op_;
  const program::CacheLayer& layer_;
  uint32_t n_queries_;  // query heads per KV head
  size_t softmax_;      // floats of one head's partial softmax
};

}  // namespace

Result<std::unique_ptr<OpKernel>> make_kernel(const program::Program& program, const Attend& op, const Isa&) {
  if (op.output_gate && program.cache(op).key_dim != program.cache(op).value_dim)
    return unsupported("an output gate with heads of {} for keys and {} for values", program.cache(op).key_dim,
                       program.cache(op).value_dim);
  return std::make_unique<AttendKernel>(program, op);
}

}  // namespace honeycrisp::backend::cpu
