#include "backend/cuda/persistent_plan.h"

#include "base/checked.h"

#include <algorithm>
#include <map>

namespace honeycrisp::backend::cuda {

using namespace program;

namespace {

constexpr uint32_t kPlaceAlignment = 4;  // floats: what a thread polls together
constexpr uint32_t kEndUnit = 32;        // outputs of an ending that a block takes together

// Where the current content of every buffer lies. Each writing of columns that were already written begins a new
// version of the buffer, in a place of its own: nothing is overwritten during a step.
class Places {
 public:
  explicit Places(const Program& program) : program_(program), versions_(program.buffers.size()) {}

  uint32_t fresh(uint32_t width) {
    const uint32_t place = plane_;
    overflow_ |= width > UINT32_MAX / 8 - plane_;
    plane_ += round_up(width, kPlaceAlignment);
    return place;
  }
  uint32_t write(const Slice& slice) {
    Version& v = versions_[slice.buffer];
    const bool again = std::any_of(v.written.begin(), v.written.end(), [&](const Slice& other) {
      return slice.column < other.column + other.width && other.column < slice.column + slice.width;
    });
    if (again || v.written.empty()) v = {fresh(program_.buffers[slice.buffer].width), {}};
    v.written.push_back(slice);
    return v.place + slice.column;
  }
  /// Place of columns of which all are written, else kNoPlace.
  uint32_t read(const Slice& slice) const {
    const Version& v = versions_[slice.buffer];
    uint64_t written = 0;
    for (const Slice& other : v.written) {
      const uint32_t from = std::max(slice.column, other.column);
      const uint32_t to = std::min(slice.column + slice.width, other.column + other.width);
      if (from < to) written += to - from;
    }
    return written == slice.width ? v.place + slice.column : kNoPlace;
  }
  uint32_t plane() const { return plane_; }
  bool overflow() const { return overflow_; }

 private:
  struct Version {
    uint32_t place = 0;
    std::vector<Slice> written;  // disjoint
  };
  const Program& program_;
  std::vector<Version> versions_;
  uint32_t plane_ = 0;
  bool overflow_ = false;
};

// An op with the matrices of its parts.
struct LoweredOp {
  StepOp op;
  std::vector<Matrix> matrices;
  uint32_t step = 0;  // of the program
};

// Turns steps into ops, or says why not. Without weights and a cache, pointers stay null: for questions only.
class Lowering {
 public:
  Lowering(const Program& program, CacheType type, const Weights* weights, const KvCache* cache)
      : program_(program),
        type_(type),
        weights_(weights),
        cache_(cache),
        packed_(packed_weights(program, true)),
        places_(program) {
    for (size_t i = 0; i < program.steps.size(); ++i) {
      at_ = i;
      const size_t before = ops.size();
      obstacles.push_back(std::visit([&](const auto& op) { return lower(op); }, program.steps[i].op));
      for (size_t made = before; made < ops.size(); ++made) ops[made].step = uint32_t(i);
    }
    if (places_.overflow()) obstacles[0] = "its vectors are too long to have a place each";
  }

  std::vector<std::string> obstacles;
  std::vector<LoweredOp> ops;
  uint32_t embedded = 0, n_attends = 0;
  std::optional<uint32_t> head_dim;  // StepArgs::head_dim of the attentions so far
  uint32_t plane() const { return places_.plane(); }

 private:
  using Why = std::string;  // empty: lowered

  NormArgs norm_args(const std::optional<Norm>& norm) const {
    if (weights_ != nullptr) return weights_->norm(norm);
    return {norm.has_value(), norm && norm->weight ? vector(*norm->weight) : nullptr, norm ? norm->eps : 0};
  }
  // Without weights an address that no other vector has, for plans tell vectors apart by it.
  const float* vector(VectorId id) const {
    return weights_ != nullptr ? weights_->vector(id) : reinterpret_cast<const float*>((uint64_t{id} + 1) << 32);
  }

  Why lower(const Embed& e) {
    if (at_ != 0) return "an embedding after the first step";
    embedded = places_.write(e.out);
    return {};
  }

  Why products_obstacle(const std::vector<Matrix>& matrices, uint32_t cols) const {
    for (const Matrix& m : matrices)
      if (!packed_[m.weight]) return fmt::format("{} has no packed tiles", quant::to_string(program_.weight(m).format));
    if (cols > kMostKTiles * kTileCols) return fmt::format("products of {} columns", cols);
    if (cols % kPlaceAlignment != 0) return fmt::format("an input of {} columns, no multiple of four", cols);
    return {};
  }

  Why lower(const Project& p) {
    if (Why why = products_obstacle(p.matrices, p.in.width); !why.empty()) return why;
    StepOp op;
    op.in = places_.read(p.in);
    if (op.in == kNoPlace || op.in % kPlaceAlignment != 0) return "its input is not wholly written, or not aligned";
    op.cols = p.in.width;
    op.norm = norm_args(p.input_norm);
    op.n_parts = uint8_t(p.matrices.size());
    for (size_t i = 0; i < p.matrices.size(); ++i) {
      op.rows[i] = p.matrices[i].rows;
      if (p.biases[i]) op.bias[i] = vector(*p.biases[i]);
    }
    return std::visit([&](const auto& ending) { return end(p, op, ending); }, p.ending);
  }

  // The product's rows wait in a place of their own for the ending that norms them.
  Why end_rows(const Project& p, StepOp op, StepOp end, const Slice& out) {
    end.kind = StepOpKind::kEnd;
    end.n_parts = 1;
    end.in = places_.fresh(p.matrices[0].rows);
    end.cols = end.rows[0] = p.matrices[0].rows;
    end.out[0] = places_.write(out);
    op.ending = EndingKind::kProduct;
    op.out[0] = end.in;
    ops.push_back({op, p.matrices});
    ops.push_back({end, {}});
    return {};
  }

  Why end(const Project& p, StepOp op, const Store& store) {
    if (store.add) {
      if (p.matrices.size() != 1) return "an addend to several matrices";
      op.add = places_.read(*store.add);
      if (op.add == kNoPlace) return "its addend is not wholly written";
    }
    op.ending = EndingKind::kStore;
    op.scale = store.scale;
    op.out_scale = store.out_scale;
    if (store.norm) {
      if (p.matrices[0].rows % kPlaceAlignment != 0) return "a norm over outputs that are no multiple of four";
      if (p.matrices.size() != 1 || (store.norm_width != 0 && store.norm_width != p.matrices[0].rows))
        return "a norm over parts of its outputs";
      StepOp ending = op;
      ending.norm = norm_args(store.norm);
      op.add = kNoPlace;
      std::fill(std::begin(ending.bias), std::end(ending.bias), nullptr);
      return end_rows(p, op, ending, store.outs[0]);
    }
    for (size_t i = 0; i < store.outs.size(); ++i) op.out[i] = places_.write(store.outs[i]);
    ops.push_back({op, p.matrices});
    return {};
  }

  Why end(const Project& p, StepOp op, const Gate& gate) {
    if (gate.activation == Activation::kClampedSwiglu) return "clamped SwiGLU";
    op.ending = gate.operand ? EndingKind::kGateOperand : EndingKind::kGate;
    op.activation = gate.activation;
    if (gate.operand) {
      op.add = places_.read(*gate.operand);
      if (op.add == kNoPlace) return "its operand is not wholly written";
    }
    op.out[0] = places_.write(gate.out);
    ops.push_back({op, p.matrices});
    return {};
  }

  Why end(const Project& p, StepOp op, const Residual& residual) {
    StepOp ending = op;
    ending.ending = EndingKind::kResidual;
    ending.scale = residual.branch_scale;
    ending.out_scale = residual.residual_scale;
    ending.add = places_.read(residual.x);
    if (ending.add == kNoPlace) return "its residual is not wholly written";
    if (residual.post_norm) {
      ending.norm = norm_args(residual.post_norm);
      std::fill(std::begin(ending.bias), std::end(ending.bias), nullptr);
      return end_rows(p, op, ending, residual.x);
    }
    ending.out[0] = places_.write(residual.x);
    ops.push_back({ending, p.matrices});
    return {};
  }

  Why lower(const Attend& attend) {
    const CacheLayer& layer = program_.cache(attend);
    if (std::max(layer.key_dim, layer.value_dim) > kMostStepHeadDim)
      return fmt::format("heads of {} elements", std::max(layer.key_dim, layer.value_dim));
    if (attend.n_heads > layer.n_kv_heads * kMostStepHeadsPerKv)
      return fmt::format("{} heads for {} of keys", attend.n_heads, layer.n_kv_heads);
    if (attend.norm_whole_projection && (attend.q_norm || attend.k_norm)) return "a norm over all heads together";
    // Gemma 4's, whose attention amplifies the rounding of activations: even to 15 bits it makes a mean KL of 1e-5
    // (golden family in BF16; 4e-6 in Q8_0).
    if (attend.v_norm) return "a norm of the values: activations of eleven bits are too coarse for such models";
    if (attend.temperature) return "a temperature of attention by position";
    if (program_.ropes.size() > kMostStepRopes) return fmt::format("{} kinds of rope", program_.ropes.size());
    const Attend* owner = &attend;  // of the keys and values: what it appends, every reader appends again
    if (!attend.k) {
      owner = owners_.count(attend.cache) != 0 ? owners_[attend.cache] : nullptr;
      if (owner == nullptr || owner->rope != attend.rope) return "keys of another layer with another rope";
    }
    owners_[attend.cache] = owner;
    StepOp op;
    op.kind = StepOpKind::kAttend;
    op.q = places_.read(attend.q);
    if (attend.k) keys_[attend.cache] = {places_.read(*attend.k), attend.v ? places_.read(*attend.v) : 0};
    op.k = keys_[attend.cache].first;
    op.v = keys_[attend.cache].second;
    if (op.q == kNoPlace || op.k == kNoPlace || op.v == kNoPlace) return "its input is not wholly written";
    op.out[0] = places_.write(attend.out);
    op.rows[0] = attend.out.width;
    op.n_parts = 1;
    op.v_is_k = !owner->v;
    op.output_gate = attend.output_gate;
    op.n_heads = attend.n_heads;
    op.heads_per_kv = attend.n_heads / layer.n_kv_heads;
    op.window = attend.window;
    op.scale = attend.scale;
    op.softcap = attend.softcap;
    op.index = n_attends++;
    op.q_norm = norm_args(attend.q_norm);
    op.k_norm = norm_args(owner->k_norm);
    op.v_norm = norm_args(owner->v_norm);
    if (attend.rope) {
      const Rope& rope = program_.ropes[*attend.rope];
      op.rope = int32_t(*attend.rope);
      op.interleaved = rope.interleaved;
      op.n_pairs = uint32_t(rope.inverse_frequency.size());
      op.pair_distance = rope.pair_distance;
    }
    if (attend.sinks) op.sinks = vector(*attend.sinks);
    op.pool = layer.pool;
    if (cache_ != nullptr) op.cache = cache_->view(layer);
    op.cache.n_kv_heads = layer.n_kv_heads;
    op.cache.key_dim = layer.key_dim;
    op.cache.value_dim = layer.value_dim;
    const bool tensor =
        type_ == CacheType::kF16 && layer.key_dim == layer.value_dim && (layer.key_dim == 64 || layer.key_dim == 128);
    const uint32_t dim = tensor ? layer.key_dim : 0;
    head_dim = head_dim.value_or(dim) == dim ? dim : 0;
    ops.push_back({op, {}});
    return {};
  }

  Why lower(const Logits& logits) {
    if (at_ + 1 != program_.steps.size()) return "logits before the last step";
    if (Why why = products_obstacle({logits.table}, logits.in.width); !why.empty()) return why;
    StepOp op;
    op.ending = EndingKind::kLogits;
    op.in = places_.read(logits.in);
    if (op.in == kNoPlace || op.in % kPlaceAlignment != 0) return "its input is not wholly written, or not aligned";
    op.cols = logits.in.width;
    op.norm = norm_args(logits.norm);
    op.n_parts = 1;
    op.rows[0] = logits.table.rows;
    op.scale = logits.scale;
    op.softcap = logits.softcap;
    ops.push_back({op, {logits.table}});
    return {};
  }

  template <class Other>
  Why lower(const Other& other) {
    return fmt::format("the persistent kernel has no {}", op_name(Op(other)));
  }

  const Program& program_;
  const CacheType type_;
  const Weights* weights_;
  const KvCache* cache_;
  const std::vector<bool> packed_;
  Places places_;
  size_t at_ = 0;
  std::map<CacheId, const Attend*> owners_;
  std::map<CacheId, std::pair<uint32_t, uint32_t>> keys_;  // places of what is appended
};

// ---- what is published

// Whether the op reads floats that begin at `place`.
bool reads_floats(const StepOp& op, uint32_t place, uint32_t end) {
  const auto within = [&](uint32_t at) { return at != kNoPlace && at >= place && at < end; };
  if (op.kind == StepOpKind::kAttend) return within(op.q) || within(op.k) || within(op.v);
  return (op.fragments_in == kNoPlace && within(op.in)) || within(op.add);
}

// Products with floats take activations as f16.
void choose_forms(const Program& program, std::vector<StepOp>& ops, const std::vector<std::vector<Matrix>>& matrices) {
  for (size_t i = 0; i < ops.size(); ++i)
    ops[i].halves_in = std::any_of(matrices[i].begin(), matrices[i].end(),
                                   [&](const Matrix& m) { return is_packed_float(program.weight(m).format); });
}

// Outputs that one product reads whole are published as its fragments, and as floats only where others read them.
// Those of a block of columns come from one thread block then; so a product of so few row tiles that every block can
// have one at most publishes floats, if the kernel serves one row. (Several rows cost more to make fragments of.)
void share_fragments(std::vector<StepOp>& ops, uint32_t& plane, uint32_t rows_of_kernel, uint32_t n_blocks) {
  for (size_t i = 0; i < ops.size(); ++i) {
    StepOp& maker = ops[i];
    const uint32_t rows = maker.rows[0];
    const bool attends = maker.kind == StepOpKind::kAttend;
    if (!attends && maker.n_parts != 1 && maker.ending != EndingKind::kGate) continue;
    if (!attends && (maker.ending == EndingKind::kLogits || maker.ending == EndingKind::kProduct)) continue;
    if (attends && maker.cache.value_dim % kFragmentBlock != 0) continue;  // a warp has a whole block
    const bool few = maker.kind == StepOpKind::kProject && ceil_div(rows, kTileRows) <= n_blocks;
    if (few && rows_of_kernel == 1) continue;
    const auto reader = std::find_if(ops.begin() + ptrdiff_t(i) + 1, ops.end(), [&](const StepOp& op) {
      return op.kind == StepOpKind::kProject && op.in == maker.out[0] && op.cols == rows;
    });
    if (reader == ops.end()) continue;
    if (attends && reader->norm.weight != nullptr) continue;  // it publishes values as they are
    maker.fragments_out = plane;
    maker.fragments_norm = reader->norm.weight;
    maker.halves_out = reader->halves_in;
    plane += round_up(fragment_words(rows), kPlaceAlignment);
    for (StepOp& op : ops)  // and others that want the same
      if (op.kind == StepOpKind::kProject && op.in == maker.out[0] && op.cols == rows &&
          op.norm.weight == maker.fragments_norm && op.halves_in == maker.halves_out)
        op.fragments_in = maker.fragments_out;
    maker.floats_out = std::any_of(
        ops.begin(), ops.end(), [&](const StepOp& op) { return reads_floats(op, maker.out[0], maker.out[0] + rows); });
  }
}

// What the next op of each needs soon.
void look_ahead(std::vector<StepOp>& ops) {
  for (size_t i = 0; i + 1 < ops.size(); ++i) {
    const StepOp& next = ops[i + 1];
    StepOp& op = ops[i];
    op.ahead_norm = next.norm.weight;
    op.ahead_norm_floats = next.norm.weight != nullptr ? next.cols : 0;
    if (next.kind == StepOpKind::kAttend && op.kind != StepOpKind::kAttend) {
      op.ahead_attends = true;
      op.ahead_layer_offset = next.cache.layer_offset;
      op.pool = next.pool;
      op.cache = next.cache;
    }
    if (next.ending == EndingKind::kLogits) continue;
    if (next.fragments_out != kNoPlace) {
      op.ahead_place = next.fragments_out;
      op.ahead_floats = fragment_words(next.rows[0]);
      continue;
    }
    uint32_t end = 0;
    op.ahead_place = UINT32_MAX;
    for (uint32_t part = 0; part < next.n_parts; ++part) {
      op.ahead_place = std::min(op.ahead_place, next.out[part]);
      end = std::max(end, next.out[part] + next.rows[part]);
    }
    op.ahead_floats = end - std::min(end, op.ahead_place);
  }
}

// ---- shared memory

struct Needs {
  uint32_t most_k_tiles = 1, most_stage = 0;  // bytes of a stage
  bool attends = false;
  uint32_t head_dim = 0;
};

StepShared share_memory(const Needs& needs, uint32_t rows, uint32_t bytes) {
  constexpr uint32_t kPartialBytes = 32 << 10, kManyRowsTiles = 16;
  StepShared s;
  s.slots = kPartialBytes / partial_bytes(rows);  // of four row tiles at least
  const uint32_t fixed = s.slots * partial_bytes(rows), tile = project_stage_bytes(rows);
  // Two of the largest stages at least. One row is staged whole, several rows chunk after chunk.
  const uint32_t least_ring = 2 * needs.most_stage;
  if (bytes < least_ring + fixed) return s;
  const uint32_t fit = (bytes - least_ring - fixed) / tile;
  s.stage_tiles = std::min(needs.most_k_tiles, rows == 1 ? needs.most_k_tiles : kManyRowsTiles);
  if (fit < s.stage_tiles) {
    if (rows == 1 || fit < kRoundTiles) return s;
    s.stage_tiles = fit / kRoundTiles * kRoundTiles;
  }
  s.work = fixed + s.stage_tiles * tile;
  if (needs.attends) s.work = std::max(s.work, needs.head_dim != 0 ? kTensorAttendBytes : kPlainAttendBytes);
  s.work = round_up(s.work, 128u);
  if (s.work + least_ring <= bytes) s.ring = (bytes - s.work) / 128 * 128;
  return s;
}

// ---- sharing the work out

uint32_t row_tiles(const Matrix& m) { return ceil_div(m.rows, kTileRows); }

// For a kernel of so many rows.
class Sharing {
 public:
  Sharing(const Program& program, const Weights* weights, uint32_t n_blocks, uint32_t rows, const StepShared& shared)
      : program_(program),
        weights_(weights),
        n_blocks_(n_blocks),
        rows_(rows),
        shared_(shared),
        passes_(n_blocks),
        stages_(n_blocks) {}

  void add(const LoweredOp& lowered, uint32_t index) {
    index_ = index;
    lowered_ = &lowered;
    if (lowered.op.kind == StepOpKind::kProject) return add_products();
    for (uint32_t b = 0; b < n_blocks_; ++b) {
      StepPass pass = new_pass();
      if (lowered.op.kind == StepOpKind::kEnd) {
        const uint32_t units = ceil_div(lowered.op.cols, kEndUnit);
        pass.begin = units * b / n_blocks_ * kEndUnit;
        pass.end = std::min(units * (b + 1) / n_blocks_ * kEndUnit, lowered.op.cols);
        if (pass.begin >= pass.end) continue;
      }
      pass.opens = pass.closes = true;
      passes_[b].push_back(pass);
    }
  }

  StepLists finish() {
    StepLists lists;
    lists.shared = shared_;
    for (const auto& passes : passes_) {
      lists.pass_start.push_back(uint32_t(lists.passes.size()));
      lists.passes.insert(lists.passes.end(), passes.begin(), passes.end());
    }
    lists.pass_start.push_back(uint32_t(lists.passes.size()));
    for (const auto& stages : stages_) {
      lists.stage_start.push_back(uint32_t(lists.stages.size()));
      lists.stages.insert(lists.stages.end(), stages.begin(), stages.end());
      lists.stages.resize(lists.stages.size() + kStagesAhead);
    }
    return lists;
  }

 private:
  StepPass new_pass() const {
    StepPass pass;
    pass.op = index_;
    return pass;
  }
  quant::Format format(uint32_t part) const { return program_.weight(lowered_->matrices[part]).format; }
  uint32_t k_tiles() const { return ceil_div(lowered_->op.cols, kTileCols); }
  uint32_t chunk() const { return chunk_tiles(k_tiles(), shared_.stage_tiles); }
  // Row tiles of a pass: a thread has one output, and partial sums of a chunk have room. Of a gate, whole blocks.
  uint32_t most_tiles() const {
    const uint32_t fit = shared_.slots / std::max(1u, chunk());
    return std::min({kPassTiles, kStepThreads / (kTileRows * rows_), fit}) / 4 * 4;
  }
  // Row tiles that stay together: what is published as fragments, a warp publishes a block of.
  uint32_t together() const { return lowered_->op.fragments_out == kNoPlace ? 1 : kFragmentBlock / kTileRows; }

  // Units (row tiles of all parts one after another; of a gate, with their partners) go to the blocks by equal bytes.
  void add_products() {
    const std::vector<Matrix>& matrices = lowered_->matrices;
    const bool gate = lowered_->op.ending == EndingKind::kGate;
    std::vector<std::pair<uint32_t, uint32_t>> units;  // part, row tile
    std::vector<uint64_t> ends;                        // bytes (per k tile) up to the unit's end
    uint64_t bytes = 0;
    for (uint32_t part = 0; part < (gate ? 1 : matrices.size()); ++part)
      for (uint32_t tile = 0; tile < row_tiles(matrices[part]); ++tile) {
        units.push_back({part, tile});
        bytes += tile_bytes(format(part)) + (gate ? tile_bytes(format(1)) : 0);
        ends.push_back(bytes);
      }
    size_t at = 0;
    for (uint32_t b = 0; b < n_blocks_; ++b) {
      const size_t begin = at;
      // What stays together belongs to the block in whose share its middle lies.
      while (at < units.size()) {
        const size_t end = std::min(at + together(), units.size());
        if ((ends[end - 1] + (at == 0 ? 0 : ends[at - 1])) * n_blocks_ >= 2 * bytes * (b + 1)) break;
        at = end;
      }
      if (begin == at) continue;
      std::vector<StepPass> passes = gate ? gate_passes(units[begin].second, uint32_t(at - begin))
                                          : store_passes({units.begin() + begin, units.begin() + at});
      passes.front().opens = passes.back().closes = true;
      for (const StepPass& pass : passes) {
        passes_[b].push_back(pass);
        add_stages(stages_[b], pass);
      }
      stages_[b].back().ends_op = 1;
    }
  }

  void add_tile(StepPass& pass, uint32_t part, uint32_t tile) const {
    const uint32_t row = tile * kTileRows;
    pass.tiles[pass.n_tiles++] = {row, uint8_t(part), uint8_t(std::min(kTileRows, lowered_->op.rows[part] - row))};
    if (pass.n_segments == 0 || pass.segments[pass.n_segments - 1].format != format(part))
      pass.segments[pass.n_segments++] = {format(part), 0};
    ++pass.segments[pass.n_segments - 1].n_tiles;
  }

  std::vector<StepPass> store_passes(const std::vector<std::pair<uint32_t, uint32_t>>& units) const {
    std::vector<StepPass> passes;
    for (const auto& [part, tile] : units) {
      if (passes.empty() || passes.back().n_tiles == most_tiles() ||
          (passes.back().n_segments == kPassSegments &&
           passes.back().segments[kPassSegments - 1].format != format(part)))
        passes.push_back(new_pass());
      add_tile(passes.back(), part, tile);
    }
    return passes;
  }

  std::vector<StepPass> gate_passes(uint32_t first, uint32_t n) const {
    std::vector<StepPass> passes;
    for (uint32_t done = 0; done < n;) {
      const uint32_t some = std::min(n - done, most_tiles() / 2);
      StepPass pass = new_pass();
      for (uint32_t part = 0; part < 2; ++part)
        for (uint32_t i = 0; i < some; ++i) add_tile(pass, part, first + done + i);
      passes.push_back(pass);
      done += some;
    }
    return passes;
  }

  // The tiles of a pass in the order in which project_pass() (persistent_project.cuh) takes them.
  void add_stages(std::vector<StepStage>& stages, const StepPass& pass) const {
    for (uint32_t tile0 = 0; tile0 < k_tiles(); tile0 += chunk()) {
      const uint32_t n_k = std::min(k_tiles() - tile0, chunk());
      uint32_t at = 0;  // row tile of the pass
      for (uint32_t i = 0; i < pass.n_segments; ++i) {
        const uint32_t size = tile_bytes(pass.segments[i].format);
        StepStage stage;
        for (const uint32_t end = at + pass.segments[i].n_tiles; at < end; ++at)
          for (uint32_t k = 0; k < n_k; ++k) {
            const uint8_t* tile = address(pass.tiles[at], tile0 + k, size);
            if (stage.n_tiles == stage_tiles(size) || !append(stage, tile, size)) {
              stages.push_back(stage);
              stage = {};
              append(stage, tile, size);
            }
          }
        stages.push_back(stage);
      }
    }
  }
  const uint8_t* address(const StepTile& tile, uint32_t k, uint32_t size) const {
    const Matrix& m = lowered_->matrices[tile.part];
    const uint64_t at = (uint64_t{tile.row / kTileRows} * k_tiles() + k) * size;
    if (weights_ != nullptr) return weights_->tiles(m) + at;
    return reinterpret_cast<const uint8_t*>(((uint64_t{m.weight} + 1) << 40) +
                                            uint64_t{m.first_row / kTileRows} * k_tiles() * size + at);
  }
  // False: the tile would begin a run too many.
  static bool append(StepStage& stage, const uint8_t* tile, uint32_t size) {
    uint32_t run = 0;
    while (run < kStageCopies && stage.bytes[run] != 0 &&
           (stage.from[run] + stage.bytes[run] != tile || (run + 1 < kStageCopies && stage.bytes[run + 1] != 0)))
      ++run;
    if (run == kStageCopies) return false;
    if (stage.bytes[run] == 0) stage.from[run] = tile;
    stage.bytes[run] += size;
    ++stage.n_tiles;
    return true;
  }

  const Program& program_;
  const Weights* weights_;
  const uint32_t n_blocks_, rows_;
  const StepShared shared_;
  uint32_t index_ = 0;
  const LoweredOp* lowered_ = nullptr;
  std::vector<std::vector<StepPass>> passes_;
  std::vector<std::vector<StepStage>> stages_;
};

}  // namespace

std::vector<std::string> persistent_obstacles(const Program& program, CacheType type) {
  return Lowering(program, type, nullptr, nullptr).obstacles;
}

FormatSet format_set(const Program& program, CacheType type) {
  for (const LoweredOp& op : Lowering(program, type, nullptr, nullptr).ops)
    for (const Matrix& m : op.matrices)
      if (!has_format(FormatSet::kOften, program.weight(m).format)) return FormatSet::kAll;
  return FormatSet::kOften;
}

Result<PersistentPlan> make_persistent_plan(const Program& program, CacheType type, const Weights* weights,
                                            const KvCache* cache, uint32_t n_blocks, uint32_t shared_bytes) {
  const Lowering lowering(program, type, weights, cache);
  PersistentPlan plan;
  Needs needs;
  for (const LoweredOp& lowered : lowering.ops) {
    const StepOp& op = lowered.op;
    plan.ops.push_back(op);
    plan.steps.push_back(lowered.step);
    plan.matrices.push_back(lowered.matrices);
    plan.ops.back().per_column = op.cols == 0 ? 0 : 1 / float(op.cols);
    const uint32_t k_tiles = ceil_div(std::max(op.cols, 1u), kTileCols);
    plan.ops.back().per_k_tile = k_tiles == 1 ? 0 : UINT32_MAX / k_tiles + 1;
    for (const Matrix& m : lowered.matrices) {
      const uint32_t size = tile_bytes(program.weight(m).format);
      needs.most_stage = std::max(needs.most_stage, stage_tiles(size) * size);
    }
    if (op.kind == StepOpKind::kAttend) {
      needs.attends = true;
      plan.most_kv_heads = std::max(plan.most_kv_heads, op.cache.n_kv_heads);
      plan.partial_floats = std::max(plan.partial_floats, uint64_t{op.n_heads} * (op.cache.value_dim + 2));
    } else {
      needs.most_k_tiles = std::max(needs.most_k_tiles, ceil_div(op.cols, kTileCols));
    }
  }
  needs.head_dim = plan.head_dim = lowering.head_dim.value_or(0);
  choose_forms(program, plan.ops, plan.matrices);
  const std::vector<StepOp> plain = std::move(plan.ops);
  for (size_t i = 0; i < kRowCounts.size(); ++i) {
    std::vector<StepOp> ops = plain;
    uint32_t plane = lowering.plane();
    share_fragments(ops, plane, kRowCounts[i], n_blocks);
    look_ahead(ops);
    plan.plane = std::max(plan.plane, plane);
    plan.ops = ops;  // of the most rows in the end
    const StepShared shared = share_memory(needs, kRowCounts[i], shared_bytes);
    if (shared.ring == 0) continue;
    Sharing sharing(program, weights, n_blocks, kRowCounts[i], shared);
    for (size_t op = 0; op < ops.size(); ++op)
      sharing.add({ops[op], lowering.ops[op].matrices, plan.steps[op]}, uint32_t(op));
    plan.lists[i] = sharing.finish();
    plan.lists[i].ops = std::move(ops);
    if (plan.lists[i].passes.size() > UINT32_MAX || plan.lists[i].stages.size() > UINT32_MAX)
      return unsupported("the persistent kernel's lists would be too long");
  }
  plan.embedded = lowering.embedded;
  plan.n_attends = lowering.n_attends;
  return plan;
}

}  // namespace honeycrisp::backend::cuda
