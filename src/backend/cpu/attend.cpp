// Attend: append keys and values, attend by chunks of 256 positions at absolute multiples, merged left to right.
// Pass 1 norms and rotates all rows. With many rows a pass-2 item is a block of rows and a KV head with all its chunks,
// each converted to f32 once where the block has more rows than attend together; with few rows (decoding) every chunk
// is an item of its own and pass 3 merges them. A single row needs no pass 1: whoever
// attends to its last chunk appends its key and value. The arithmetic, its order and so the bits are always the same.
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

constexpr uint32_t kManyQueries = 32;    // heads of several rows that attend together: enough for every register
constexpr uint32_t kBlockQueries = 128;  // heads of a block's rows: converting a chunk costs as much as 4 of them
constexpr uint32_t kBlockRows = 64;

enum Pass : uint32_t { kAppend, kChunks, kMerge, kPasses };

class AttendKernel final : public OpKernel {
 public:
  AttendKernel(const program::Program& program, const Attend& op)
      : program_(program),
        op_(op),
        layer_(program.cache(op)),
        n_queries_(op.n_heads / layer_.n_kv_heads),
        softmax_(softmax_floats(layer_.value_dim)),
        value_floats_(round_up(size_t{layer_.value_dim}, size_t{kLanes})),
        most_rows_(std::clamp(kManyQueries / n_queries_, 1u, kAttendRows)),
        block_rows_(std::clamp(kBlockQueries / n_queries_, most_rows_, kBlockRows) / most_rows_ * most_rows_),
        at_(lay_out()) {}

  Needs needs() const override {
    const size_t append = std::max(size_t{layer_.n_kv_heads} * layer_.key_dim, size_t{layer_.value_dim});
    return {.queries_per_row = size_t{op_.n_heads} * layer_.key_dim,
            .thread_floats = round_up(std::max(append, at_.end), size_t{kLanes}),
            .softmax_floats = n_queries_ * softmax_};
  }
  uint32_t n_passes() const override { return kPasses; }

  size_t n_items(uint32_t pass, const StepState& s) const override {
    const size_t pairs = n_pairs(s);
    const bool split = splits_chunks(pairs, s);
    if (pass == kAppend) return appends_while_attending(s) ? 0 : s.n_rows;
    if (pass == kChunks) return split ? pairs * s.n_chunks : ceil_div(s.n_rows, rows_per_item(s)) * layer_.n_kv_heads;
    return split ? pairs : 0;
  }

  void run(uint32_t pass, size_t begin, size_t end, const StepState& s, ThreadScratch& t) const override {
    const bool split = splits_chunks(n_pairs(s), s);
    for (size_t item = begin; item < end; ++item) {
      // Threads take ranges of items in turns: after this range comes, most likely, the one after the others'.
      const size_t next = item + 1 < end ? item + 1 : item + 1 + (s.n_threads - 1) * (end - begin);
      switch (pass) {
        case kAppend: prepare_row(item, s, t); break;
        case kChunks: split ? attend_one_chunk(item, next, s, t) : attend_rows(item, s, t); break;
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

  // Rows that attend together, sharing what they read of the cache, or a block of several times as many; fewer where
  // threads would go without, or wait for the last one.
  uint32_t rows_per_item(const StepState& s) const {
    const size_t per_thread = n_pairs(s) / s.n_threads;
    const size_t blocks = std::min<size_t>(per_thread / 16, block_rows_) / most_rows_ * most_rows_;
    return uint32_t(std::max(blocks, std::clamp<size_t>(per_thread / 4, 1, most_rows_)));
  }
  size_t n_pairs(const StepState& s) const { return size_t{s.n_rows} * layer_.n_kv_heads; }
  // Not with a norm over all heads together, which would be repeated for each of them; nor where the output overwrites
  // what other heads have still to read.
  bool appends_while_attending(const StepState& s) const {
    const auto spoils = [&](const std::optional<program::Slice>& in) { return in && overlap(*in, op_.out); };
    return s.n_rows == 1 && !op_.norm_whole_projection && !spoils(op_.q) && !spoils(op_.k) && !spoils(op_.v);
  }

  // ---- keys, values and queries

  const float* weight(const Norm& norm) const {
    return norm.weight ? program_.vectors[*norm.weight].values.data() : nullptr;
  }
  void norm_whole(const std::optional<Norm>& norm, float* x, uint32_t n_heads, const StepState& s) const {
    if (norm && op_.norm_whole_projection) s.isa->rms_norm(x, n_heads * layer_.key_dim, weight(*norm), norm->eps, x);
  }
  // The norm of one head, if it has its own, and its rotation.
  void finish_head(const std::optional<Norm>& norm, float* x, uint32_t position, const StepState& s) const {
    if (norm && !op_.norm_whole_projection) s.isa->rms_norm(x, layer_.key_dim, weight(*norm), norm->eps, x);
    if (op_.rope) s.ropes->rotate(*s.isa, *op_.rope, position, x);
  }
  void copy_query(size_t row, uint32_t head, const StepState& s, float* to) const {
    const size_t stride = size_t{layer_.key_dim} * (op_.output_gate ? 2 : 1);
    std::memcpy(to, s.row(op_.q, row) + head * stride, layer_.key_dim * sizeof(float));
  }
  void append_key(size_t row, uint32_t kv_head, const float* key, const StepState& s) const {
    const Row& r = s.batch->rows[row];
    s.cache->put_key(*s.isa, layer_, s.cache->keys(layer_, page_of(r, s), kv_head), r.position % kPositionsPerPage,
                     key);
  }
  void append_value(size_t row, uint32_t kv_head, const StepState& s, float* scratch) const {
    const Row& r = s.batch->rows[row];
    const float* value = s.row(op_.v ? *op_.v : *op_.k, row) + size_t{kv_head} * layer_.value_dim;
    if (op_.v_norm) {
      s.isa->rms_norm(value, layer_.value_dim, weight(*op_.v_norm), op_.v_norm->eps, scratch);
      value = scratch;
    }
    s.cache->put_value(*s.isa, layer_, s.cache->values(layer_, page_of(r, s), kv_head), r.position % kPositionsPerPage,
                       value);
  }
  PageId page_of(const Row& r, const StepState& s) const {
    return s.batch->sequences[r.sequence].tables[layer_.pool][r.position / kPositionsPerPage];
  }
  float* shared_queries(size_t row, const StepState& s) const { return s.queries + row * op_.n_heads * layer_.key_dim; }

  // Pass 1: all heads of a row.
  void prepare_row(size_t row, const StepState& s, ThreadScratch& t) const {
    const uint32_t position = s.batch->rows[row].position;
    const size_t key_dim = layer_.key_dim;
    float* q = shared_queries(row, s);
    for (uint32_t h = 0; h < op_.n_heads; ++h) copy_query(row, h, s, q + h * key_dim);
    norm_whole(op_.q_norm, q, op_.n_heads, s);
    for (uint32_t h = 0; h < op_.n_heads; ++h) finish_head(op_.q_norm, q + h * key_dim, position, s);
    if (!op_.k) return;
    for (uint32_t h = 0; h < layer_.n_kv_heads; ++h) append_value(row, h, s, t.floats);
    float* k = t.floats;
    std::memcpy(k, s.row(*op_.k, row), layer_.n_kv_heads * key_dim * sizeof(float));
    norm_whole(op_.k_norm, k, layer_.n_kv_heads, s);
    for (uint32_t h = 0; h < layer_.n_kv_heads; ++h) {
      finish_head(op_.k_norm, k + h * key_dim, position, s);
      append_key(row, h, k + h * key_dim, s);
    }
  }

  // Instead of pass 1: the queries of one KV head to `queries`, and, for the one who attends to the row's own position,
  // its key and value to the cache.
  void prepare_head(size_t row, uint32_t kv_head, bool appends, const StepState& s, float* queries,
                    float* scratch) const {
    const uint32_t position = s.batch->rows[row].position;
    for (uint32_t i = 0; i < n_queries_; ++i) {
      float* q = queries + size_t{i} * layer_.key_dim;
      copy_query(row, kv_head * n_queries_ + i, s, q);
      finish_head(op_.q_norm, q, position, s);
    }
    if (!appends || !op_.k) return;
    append_value(row, kv_head, s, scratch);
    std::memcpy(scratch, s.row(*op_.k, row) + size_t{kv_head} * layer_.key_dim, layer_.key_dim * sizeof(float));
    finish_head(op_.k_norm, scratch, position, s);
    append_key(row, kv_head, scratch, s);
  }

  // ---- pass 2

  // Where a thread's floats have what.
  struct Parts {
    size_t state;    // [block rows][n_queries][softmax]
    size_t queries;  // [block rows][n_queries][key_dim], most_rows at a time as attend_chunk takes them
    size_t part;     // [most_rows][n_queries][softmax] of a chunk to merge
    size_t scores;   // [most_rows][n_queries][256]
    size_t plain;    // [most_rows][n_queries][key_dim] queries to pack
    size_t keys;     // [256 / 16][key_dim][16] of a chunk, see attend_widen
    size_t values;   // [256][value_dim rounded up to 16]
    size_t head;     // a key or a value
    size_t end;
  };
  Parts lay_out() const {
    const size_t most = size_t{most_rows_} * n_queries_, block = size_t{block_rows_} * n_queries_;
    size_t end = 0;
    const auto add = [&](size_t floats) {
      const size_t at = end;
      end += round_up(floats, size_t{kLanes});
      return at;
    };
    Parts p{.state = add(block * softmax_),
            .queries = add(block * layer_.key_dim),
            .part = add(most * softmax_),
            .scores = add(most * kChunkPositions),
            .plain = add(most * layer_.key_dim),
            .keys = add(size_t{kChunkPositions} * layer_.key_dim),
            .values = add(size_t{kChunkPositions} * value_floats_),
            .head = add(std::max(layer_.key_dim, layer_.value_dim)),
            .end = 0};
    p.end = end;
    return p;
  }

  // Packs the queries of up to most_rows rows and a KV head, from pass 1 or made here; `chunk_is_last`: of those that
  // the row sees.
  void pack_queries(size_t first_row, uint32_t n_rows, uint32_t kv_head, bool chunk_is_last, const StepState& s,
                    ThreadScratch& t, float* packed) const {
    const size_t floats = size_t{n_queries_} * layer_.key_dim;
    float* plain = t.floats + at_.plain;
    if (appends_while_attending(s))
      prepare_head(first_row, kv_head, chunk_is_last, s, plain, t.floats + at_.head);
    else
      for (uint32_t i = 0; i < n_rows; ++i)
        std::copy_n(shared_queries(first_row + i, s) + kv_head * floats, floats, plain + i * floats);
    s.isa->attend_pack(plain, n_rows * n_queries_, layer_.key_dim, packed);
  }

  // What of a chunk a row sees, from its start.
  Range visible_in(uint32_t chunk, uint32_t position) const {
    const uint32_t start = chunk * kChunkPositions, end = start + kChunkPositions;
    const Range range = visible(position);
    return {std::clamp(range.first, start, end) - start, std::min(range.last, end) - start};
  }

  // Where the cache has what rows of one sequence, from `first_row` to `last_row`, see of a chunk.
  ChunkPages chunk_pages(size_t first_row, size_t last_row, uint32_t kv_head, uint32_t chunk,
                         const StepState& s) const {
    ChunkPages pages{.element = s.cache->element(),
                     .keys = {},
                     .values = {},
                     .key_tile_bytes = s.cache->key_tile_bytes(layer_.pool),
                     .value_position_bytes = s.cache->value_position_bytes(layer_.pool)};
    const Row& first = s.batch->rows[first_row];
    const auto table = s.batch->sequences[first.sequence].tables[layer_.pool];
    const uint32_t from = visible_in(chunk, first.position).first,
                   to = visible_in(chunk, s.batch->rows[last_row].position).last;
    for (uint32_t i = from / kPositionsPerPage; i * kPositionsPerPage < to; ++i) {
      const PageId page = table[chunk * (kChunkPositions / kPositionsPerPage) + i];
      pages.keys[i] = s.cache->keys(layer_, page, kv_head);
      pages.values[i] = s.cache->values(layer_, page, kv_head);
    }
    return pages;
  }

  // The same as f32, in the thread's own memory.
  ChunkPages widen(const ChunkPages& pages, size_t first_row, size_t last_row, uint32_t chunk, const StepState& s,
                   ThreadScratch& t) const {
    float *keys = t.floats + at_.keys, *values = t.floats + at_.values;
    s.isa->attend_widen(pages, visible_in(chunk, s.batch->rows[first_row].position).first,
                        visible_in(chunk, s.batch->rows[last_row].position).last, layer_.key_dim, layer_.value_dim,
                        keys, values);
    ChunkPages wide{.element = KvElement::kF32,
                    .keys = {},
                    .values = {},
                    .key_tile_bytes = size_t{layer_.key_dim} * kLanes * sizeof(float),
                    .value_position_bytes = value_floats_ * sizeof(float)};
    for (uint32_t i = 0; i < std::size(wide.keys); ++i) {
      wide.keys[i] = reinterpret_cast<const uint8_t*>(keys + size_t{i} * kPositionsPerPage * layer_.key_dim);
      wide.values[i] = reinterpret_cast<const uint8_t*>(values + size_t{i} * kPositionsPerPage * value_floats_);
    }
    return wide;
  }

  // Chunk `chunk` for up to most_rows rows of one sequence at consecutive positions and a KV head; row i to outs[i]
  // [n_queries][softmax], if it sees any of it. `next`: see AttendChunkArgs.
  void attend_chunk(size_t first_row, uint32_t n_rows, uint32_t chunk, const float* packed, const ChunkPages& pages,
                    float* const* outs, const uint8_t* next, const StepState& s, ThreadScratch& t) const {
    AttendChunkArgs a{.queries = packed,
                      .rows = {},
                      .n_rows = n_rows,
                      .n_heads = n_queries_,
                      .key_dim = layer_.key_dim,
                      .value_dim = layer_.value_dim,
                      .pages = pages,
                      .next = next,
                      .softcap = op_.softcap,
                      .scores = t.floats + at_.scores};
    for (uint32_t i = 0; i < n_rows; ++i) {
      const uint32_t position = s.batch->rows[first_row].position + i;
      const Range range = visible_in(chunk, position);
      a.rows[i] = {.first = range.first, .last = range.last, .scale = float(op_.score_scale(position)), .out = outs[i]};
    }
    s.isa->attend_chunk(a);
  }

  // The keys at the start of a chunk of the past of `row`; null where it sees none of it.
  const uint8_t* chunk_keys(size_t row, uint32_t kv_head, uint32_t chunk, const StepState& s) const {
    const Row& r = s.batch->rows[row];
    const Range range = visible(r.position);
    const uint32_t first = std::max(range.first, chunk * kChunkPositions);
    if (first >= std::min(range.last, (chunk + 1) * kChunkPositions)) return nullptr;
    const auto pages = s.batch->sequences[r.sequence].tables[layer_.pool];
    return s.cache->keys(layer_, pages[first / kPositionsPerPage], kv_head);
  }

  void attend_rows(size_t item, const StepState& s, ThreadScratch& t) const {
    const uint32_t first = uint32_t(item / layer_.n_kv_heads) * rows_per_item(s);
    const uint32_t end = std::min(first + rows_per_item(s), s.n_rows);
    for (uint32_t row = first, n; row < end; row += n) {
      const Row* r = &s.batch->rows[row];
      const auto follows = [&](const Row& next) {  // and ends in the same chunk, so that all see all chunks' ends
        return next.sequence == r->sequence && next.position == r->position + n &&
               next.position / kChunkPositions == r->position / kChunkPositions;
      };
      for (n = 1; row + n < end && follows(r[n]);) ++n;
      attend_block(row, n, uint32_t(item % layer_.n_kv_heads), s, t);
    }
  }

  // All chunks for up to block_rows rows of one sequence at consecutive positions, most_rows at a time.
  void attend_block(uint32_t row, uint32_t n_rows, uint32_t kv_head, const StepState& s, ThreadScratch& t) const {
    const uint32_t position = s.batch->rows[row].position;
    const auto first_chunk = [&](uint32_t i) { return visible(position + i).first / kChunkPositions; };
    const size_t floats = n_queries_ * softmax_, query_floats = size_t{n_queries_} * layer_.key_dim;  // of a row
    float *state = t.floats + at_.state, *part = t.floats + at_.part, *queries = t.floats + at_.queries;
    for (uint32_t i = 0; i < n_rows; i += most_rows_)
      pack_queries(row + i, std::min(most_rows_, n_rows - i), kv_head, true, s, t, queries + i * query_floats);
    const bool widens = n_rows > most_rows_ && s.cache->element() != KvElement::kF32;
    for (uint32_t chunk = first_chunk(0); chunk * kChunkPositions <= position; ++chunk) {
      ChunkPages pages = chunk_pages(row, row + n_rows - 1, kv_head, chunk, s);
      if (widens) pages = widen(pages, row, row + n_rows - 1, chunk, s, t);
      const uint8_t* next = widens ? nullptr : chunk_keys(row, kv_head, chunk + 1, s);
      for (uint32_t first = 0; first < n_rows; first += most_rows_) {
        const uint32_t n = std::min(most_rows_, n_rows - first);
        float* outs[kAttendRows];
        for (uint32_t i = 0; i < n; ++i)
          outs[i] = chunk == first_chunk(first + i) ? state + (first + i) * floats : part + i * floats;
        attend_chunk(row + first, n, chunk, queries + first * query_floats, pages, outs, next, s, t);
        for (uint32_t i = 0; i < n; ++i)
          for (uint32_t h = 0; chunk > first_chunk(first + i) && h < n_queries_; ++h)
            s.isa->attend_merge(state + (first + i) * floats + h * softmax_, part + i * floats + h * softmax_,
                                layer_.value_dim);
      }
    }
    for (uint32_t i = 0; i < n_rows; ++i)
      for (uint32_t h = 0; h < n_queries_; ++h)
        finish(row + i, kv_head * n_queries_ + h, state + i * floats + h * softmax_, s);
  }

  float* part_of(size_t pair, uint32_t chunk, const StepState& s) const {
    return s.softmax + (pair * s.n_chunks + chunk) * n_queries_ * softmax_;
  }

  // `next_item`: what this thread probably does next.
  void attend_one_chunk(size_t item, size_t next_item, const StepState& s, ThreadScratch& t) const {
    const size_t pair = item / s.n_chunks, row = pair / layer_.n_kv_heads;
    const auto chunk = uint32_t(item % s.n_chunks);
    const Range range = visible(s.batch->rows[row].position);
    if (chunk < range.first / kChunkPositions || chunk * kChunkPositions >= range.last) return;
    const auto kv_head = uint32_t(pair % layer_.n_kv_heads);
    float* queries = t.floats + at_.queries;
    pack_queries(row, 1, kv_head, (chunk + 1) * kChunkPositions >= range.last, s, t, queries);
    float* out = part_of(pair, chunk, s);
    const size_t next_pair = next_item / s.n_chunks;
    const uint8_t* next = nullptr;
    if (next_pair < n_pairs(s))
      next = chunk_keys(next_pair / layer_.n_kv_heads, uint32_t(next_pair % layer_.n_kv_heads),
                        uint32_t(next_item % s.n_chunks), s);
    attend_chunk(row, 1, chunk, queries, chunk_pages(row, row, kv_head, chunk, s), &out, next, s, t);
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
  uint32_t n_queries_;   // query heads per KV head
  size_t softmax_;       // floats of one head's partial softmax
  size_t value_floats_;  // value_dim rounded up to 16
  uint32_t most_rows_;   // that attend together
  uint32_t block_rows_;  // for which a chunk is converted once; a multiple of most_rows_
  Parts at_;
};

}  // namespace

Result<std::unique_ptr<OpKernel>> make_kernel(const program::Program& program, const Attend& op, const Target&) {
  if (op.output_gate && program.cache(op).key_dim != program.cache(op).value_dim)
    return unsupported("an output gate with heads of {} for keys and {} for values", program.cache(op).key_dim,
                       program.cache(op).value_dim);
  return std::make_unique<AttendKernel>(program, op);
}

}  // namespace honeycrisp::backend::cpu
