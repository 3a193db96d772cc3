// The launches of an Attend: one where every row is the only one of its sequence; a launch that prepares before it
// where rows of a sequence see each other; one that combines after it where the chunks of long contexts are spread
// over threadgroups. Owns the choice between them and the split of the work; the arithmetic is in kernels/attend.metal,
// and gives the same bits whichever is chosen.
#include "backend/metal/kernels/attend_args.h"
#include "backend/metal/op_encoder.h"
#include "base/checked.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

namespace honeycrisp::backend::metal {
namespace {

using program::Attend;
using program::Norm;

constexpr uint32_t kMostHeadDim = 1024;
constexpr uint32_t kVectorElements = 4;  // of a load: heads are multiples of it
// Half of what a threadgroup may have at most would let two of them run on a core; this lets a KV head of 128 have
// four queries, so that its cache is loaded once for a group of four heads.
constexpr uint32_t kMostMemory = 24 * 1024;
// A launch of its own to merge costs as much as walking about two chunks.
constexpr uint32_t kMostChunksInTurn = 2;
// With so many pairs of rows and KV heads a GPU is busy without splitting.
constexpr uint32_t kEnoughThreadgroups = 256;
// Bytes of partial results that are worth it; more would grow with the context without bound.
constexpr uint64_t kMostPartials = uint64_t{64} << 20;
constexpr uint32_t kCombineThreads = 64;

/// How the queries of a KV head are dealt to threadgroups, and what one takes of threadgroup memory, in bytes.
struct Shape {
  uint32_t group = 0;  // heads that attend together
  uint32_t rows = 0;   // rows that do, where there are several of a sequence
  uint32_t queries_bytes = 0, scores_bytes = 0, sums_bytes = 0;
};

uint32_t parts_of(const program::CacheLayer& cache) { return HC_ATTEND_THREADS / (cache.value_dim / kVectorElements); }
uint32_t bytes_per_query(const program::CacheLayer& cache) {
  return 4 * (cache.key_dim + program::kAttentionChunk + parts_of(cache) * cache.value_dim);
}

Shape shape_of(const Attend& op, const program::CacheLayer& cache, bool several_rows) {
  const uint32_t most = std::clamp(
      std::min(kMostMemory / bytes_per_query(cache), HC_ATTEND_OUTPUTS / (cache.value_dim / kVectorElements)), 1u,
      uint32_t{HC_ATTEND_QUERIES});
  const uint32_t heads = op.n_heads / cache.n_kv_heads, groups = ceil_div(heads, most);
  Shape s;
  s.group = ceil_div(heads, groups);
  s.rows = several_rows ? most / s.group : 1;
  const uint32_t queries = s.group * s.rows;
  s.queries_bytes = queries * cache.key_dim * 4;
  s.scores_bytes = queries * program::kAttentionChunk * 4;
  s.sums_bytes = 4 * std::max(queries * parts_of(cache) * cache.value_dim, cache.key_dim + cache.value_dim);
  return s;
}

std::string_view kernel_suffix(CacheType type) {
  switch (type) {
    case CacheType::kF32: return "f32";
    case CacheType::kF16: return "f16";
    case CacheType::kQ8_0: return "q8_0";
  }
  return "";
}

AttendNorm kind_of(const std::optional<Norm>& norm, bool whole) {
  return !norm ? kNoNorm : whole ? kWholeNorm : kHeadNorm;
}
bool has_weight(const std::optional<Norm>& norm) { return norm && norm->weight; }
float eps_of(const std::optional<Norm>& norm) { return norm ? norm->eps : 0; }

class Encoding {
 public:
  Encoding(OpContext& c, const Attend& op)
      : c_(c),
        op_(op),
        layer_(c.program.cache(op)),
        cache_(c.places.cache(op.cache)),
        several_(std::any_of(c.rows.runs.begin(), c.rows.runs.end(), [](const auto& run) { return run.n_rows > 1; })),
        shape_(shape_of(op, layer_, several_)) {
    const uint32_t n_chunks = ceil_div(c.rows.n_positions, program::kAttentionChunk);
    n_slots_ = op.window == 0
                   ? n_chunks
                   : std::min(n_chunks, ceil_div(op.window - 1, program::kAttentionChunk) + 1);  // that a row can see
    splits_ = n_slots_ > kMostChunksInTurn && uint64_t{c.rows.n} * layer_.n_kv_heads < kEnoughThreadgroups &&
              partial_bytes() <= kMostPartials;
    if (splits_) shape_.rows = 1;
  }

  Result<void> run() {
    const uint64_t heads = uint64_t{c_.rows.n} * op_.n_heads;
    View prepared, partials;
    if (several_) {
      HC_ASSIGN(prepared, c_.places.scratch(heads * layer_.key_dim * 4));
    }
    if (splits_) {
      HC_ASSIGN(partials, c_.places.scratch(partial_bytes()));
    }
    if (several_) HC_TRY(prepare(prepared));
    HC_TRY(attend(prepared, partials));
    if (splits_) HC_TRY(combine(partials));
    if (prepared) c_.places.release(prepared);
    if (partials) c_.places.release(partials);
    return {};
  }

 private:
  uint64_t partial_bytes() const {
    return uint64_t{c_.rows.n} * op_.n_heads * n_slots_ * (uint64_t{layer_.value_dim} + 4) * 4;
  }
  std::array<Constant, 21> constants(bool appends) const {
    return {constant(0, layer_.key_dim),
            constant(1, layer_.value_dim),
            constant(2, layer_.n_kv_heads),
            constant(3, op_.n_heads / layer_.n_kv_heads),
            constant(4, shape_.group),
            constant(5, shape_.rows),
            constant(6, uint32_t{kind_of(op_.q_norm, op_.norm_whole_projection)}),
            constant(7, uint32_t{kind_of(op_.k_norm, op_.norm_whole_projection)}),
            constant(8, uint32_t{kind_of(op_.v_norm, false)}),
            constant(9, has_weight(op_.q_norm)),
            constant(10, has_weight(op_.k_norm)),
            constant(11, has_weight(op_.v_norm)),
            constant(12, uint32_t{!op_.rope                                 ? kNoRope
                                  : c_.program.ropes[*op_.rope].interleaved ? kInterleavedRope
                                                                            : kSplitRope}),
            constant(13, op_.output_gate),
            constant(14, op_.softcap != 0),
            constant(15, op_.sinks.has_value()),
            constant(16, op_.temperature.has_value()),
            constant(17, appends),
            constant(18, op_.v.has_value()),
            constant(19, several_),
            constant(20, splits_)};
  }

  AttendArgs args() const {
    const auto width = [&](const std::optional<program::Slice>& s) {
      return s ? c_.program.buffers[s->buffer].width : 0;
    };
    AttendArgs a{};
    a.cache = {cache_.page_bytes, cache_.head_bytes, cache_.value_offset};
    a.n_rows = c_.rows.n;
    a.q_stride = width(op_.q);
    a.k_stride = width(op_.k);
    a.v_stride = width(op_.v);
    a.out_stride = width(op_.out);
    a.n_pools = uint32_t(c_.program.pools.size());
    a.pool = layer_.pool;
    if (op_.rope) {
      const program::Rope& rope = c_.program.ropes[*op_.rope];
      a.n_pairs = uint32_t(rope.inverse_frequency.size());
      a.pair_distance = rope.pair_distance;
    }
    a.window = op_.window;
    a.n_slots = n_slots_;
    a.scale = op_.scale;
    a.softcap = op_.softcap;
    if (op_.temperature) {
      a.beta = float(op_.temperature->beta);
      a.period = op_.temperature->period;
    }
    a.q_eps = eps_of(op_.q_norm);
    a.k_eps = eps_of(op_.k_norm);
    a.v_eps = eps_of(op_.v_norm);
    return a;
  }

  // A slice of all rows, from its first column on.
  View columns(const program::Slice& slice) const {
    View view = c_.places.buffer(slice.buffer);
    view.offset += uint64_t{slice.column} * 4;
    view.bytes = ((c_.rows.n - uint64_t{1}) * c_.program.buffers[slice.buffer].width + slice.width) * 4;
    return view;
  }

  // What attend and attend_prepare have in common.
  void bind_rows(bool appends) {
    StepEncoder& e = c_.encoder;
    e.read(0, columns(op_.q));
    if (appends) e.read(1, columns(*op_.k));
    if (appends && op_.v) e.read(2, columns(*op_.v));
    if (appends)
      e.write(6, cache_.pages);
    else
      e.read(6, cache_.pages);
    e.constant(7, c_.rows.positions);
    e.constant(8, c_.rows.table_start);
    e.constant(9, c_.rows.tables);
    if (op_.rope) e.constant(10, c_.places.rope(*op_.rope));
    if (has_weight(op_.q_norm)) e.constant(11, c_.places.vector(*op_.q_norm->weight));
    if (has_weight(op_.k_norm)) e.constant(12, c_.places.vector(*op_.k_norm->weight));
    if (has_weight(op_.v_norm)) e.constant(13, c_.places.vector(*op_.v_norm->weight));
    e.args(15, args());
  }

  Result<void> prepare(const View& prepared) {
    const bool appends = op_.k.has_value();
    HC_ASSIGN(const Pipeline* pipeline,
              c_.pipelines.get("attend_prepare", fmt::format("attend_prepare_{}", kernel_suffix(cache_.type)),
                               HC_PREPARE_SIMDGROUPS * kSimdWidth, constants(appends)));
    c_.encoder.pipeline(*pipeline);
    bind_rows(appends);
    c_.encoder.write(3, prepared);
    c_.encoder.threadgroup_memory(0, HC_PREPARE_SIMDGROUPS * 4 * std::max(layer_.key_dim, layer_.value_dim));
    const uint32_t heads = op_.n_heads + (appends ? 2 * layer_.n_kv_heads : 0);
    c_.encoder.dispatch({ceil_div(heads, uint32_t{HC_PREPARE_SIMDGROUPS}), c_.rows.n, 1},
                        {HC_PREPARE_SIMDGROUPS * kSimdWidth, 1, 1});
    return {};
  }

  Result<void> attend(const View& prepared, const View& partials) {
    const bool appends = op_.k.has_value() && !several_;
    HC_ASSIGN(const Pipeline* pipeline, c_.pipelines.get("attend", fmt::format("attend_{}", kernel_suffix(cache_.type)),
                                                         HC_ATTEND_THREADS, constants(appends)));
    c_.encoder.pipeline(*pipeline);
    bind_rows(appends);
    if (several_) c_.encoder.read(3, prepared);
    c_.encoder.write(4, columns(op_.out));
    if (splits_) c_.encoder.write(5, partials);
    if (op_.sinks) c_.encoder.constant(14, c_.places.vector(*op_.sinks));
    c_.encoder.threadgroup_memory(0, shape_.queries_bytes);
    c_.encoder.threadgroup_memory(1, shape_.scores_bytes);
    c_.encoder.threadgroup_memory(2, shape_.sums_bytes);
    c_.encoder.dispatch({splits_ ? n_slots_ : 1, layer_.n_kv_heads, ceil_div(c_.rows.n, shape_.rows)},
                        {HC_ATTEND_THREADS, 1, 1});
    return {};
  }

  Result<void> combine(const View& partials) {
    HC_ASSIGN(const Pipeline* pipeline,
              c_.pipelines.get("attend", "attend_combine", kCombineThreads, constants(false)));
    c_.encoder.pipeline(*pipeline);
    c_.encoder.read(0, columns(op_.q));
    c_.encoder.write(1, columns(op_.out));
    c_.encoder.read(2, partials);
    c_.encoder.constant(3, c_.rows.positions);
    if (op_.sinks) c_.encoder.constant(4, c_.places.vector(*op_.sinks));
    c_.encoder.args(5, args());
    c_.encoder.dispatch({op_.n_heads, c_.rows.n, 1}, {kCombineThreads, 1, 1});
    return {};
  }

  OpContext& c_;
  const Attend& op_;
  const program::CacheLayer& layer_;
  const CacheView cache_;
  const bool several_;  // rows of a sequence
  Shape shape_;
  uint32_t n_slots_ = 0;  // chunks that a row can see, at most
  bool splits_ = false;
};

}  // namespace

std::string obstacle(const program::Program& program, const Attend& op, CacheType) {
  const program::CacheLayer& c = program.cache(op);
  for (const uint32_t dim : {c.key_dim, c.value_dim})
    if (dim % kVectorElements != 0 || dim > kMostHeadDim)
      return fmt::format("heads of {} elements: attention on Metal takes multiples of {} up to {}", dim,
                         kVectorElements, kMostHeadDim);
  if (op.output_gate && c.key_dim != c.value_dim)
    return fmt::format("an output gate with heads of {} for keys and {} for values", c.key_dim, c.value_dim);
  return "";
}

Result<void> encode(OpContext& c, const Attend& op) {
  const auto waits_for = [&](const std::optional<program::Slice>& s) {
    return s && c.pending && c.pending->ending.x.buffer == s->buffer;
  };
  if (waits_for(op.q) || waits_for(op.k) || waits_for(op.v) || waits_for(op.out)) HC_TRY(flush_residual(c));
  return Encoding(c, op).run();
}

}  // namespace honeycrisp::backend::metal
