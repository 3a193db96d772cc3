#include "backend/cuda/persistent_plan.h"

#include "base/checked.h"

#include <algorithm>
#include <map>

namespace honeycrisp::backend::cuda {

using namespace program;

namespace {

constexpr uint32_t kPlaceAlignment = 4;  // floats: what a thread polls together
constexpr uint32_t kEndUnit = 32;        // outputs of an ending that a block takes together

// Formats whose codes of the upper half block are multiplied by 16 (packed.cuh).
bool high_scaled(quant::Format f) { return f != quant::Format::kQ8_0; }

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
};

// Turns steps into ops, or says why not. Without weights and a cache, pointers stay null: for questions only.
class Lowering {
 public:
  Lowering(const Program& program, CacheType type, const Weights* weights, const KvCache* cache)
      : program_(program),
        type_(type),
        weights_(weights),
        cache_(cache),
        packed_(packed_weights(program)),
        places_(program) {
    for (size_t i = 0; i < program.steps.size(); ++i) {
      at_ = i;
      obstacles.push_back(std::visit([&](const auto& op) { return lower(op); }, program.steps[i].op));
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
    return {norm.has_value(), nullptr, norm ? norm->eps : 0};
  }
  const float* vector(VectorId id) const { return weights_ != nullptr ? weights_->vector(id) : nullptr; }

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
    op.high_scaled = high_scaled(program_.weight(p.matrices[0]).format);
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
    std::vector<uint32_t> outs;
    for (const Slice& out : store.outs) outs.push_back(places_.write(out));
    // Matrices whose formats want their input staged differently are ops of their own.
    for (const bool scaled : {true, false}) {
      StepOp group = op;
      std::vector<Matrix> matrices;
      for (size_t i = 0; i < p.matrices.size(); ++i) {
        if (high_scaled(program_.weight(p.matrices[i]).format) != scaled) continue;
        group.out[matrices.size()] = outs[i];
        group.rows[matrices.size()] = op.rows[i];
        group.bias[matrices.size()] = op.bias[i];
        matrices.push_back(p.matrices[i]);
      }
      group.n_parts = uint8_t(matrices.size());
      group.high_scaled = scaled;
      if (!matrices.empty()) ops.push_back({group, matrices});
    }
    return {};
  }

  Why end(const Project& p, StepOp op, const Gate& gate) {
    if (gate.activation == Activation::kClampedSwiglu) return "clamped SwiGLU";
    op.ending = gate.operand ? EndingKind::kGateOperand : EndingKind::kGate;
    op.activation = gate.activation;
    if (gate.operand) {
      op.add = places_.read(*gate.operand);
      if (op.add == kNoPlace) return "its operand is not wholly written";
    } else if (high_scaled(program_.weight(p.matrices[1]).format) != op.high_scaled) {
      return "a gate of two formats whose inputs are staged differently";
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
    // Gemma 4's, whose attention amplifies the rounding of activations to f16 to a mean KL of 5e-5 (golden family).
    if (attend.v_norm) return "a norm of the values: activations in f16 are too coarse for such models";
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
    op.high_scaled = high_scaled(program_.weight(logits.table).format);
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

// ---- sharing the work out

uint32_t row_tiles(const Matrix& m) { return ceil_div(m.rows, kTileRows); }

class Sharing {
 public:
  Sharing(const Program& program, const Weights& weights, uint32_t n_blocks)
      : program_(program), weights_(weights), n_blocks_(n_blocks), passes_(n_blocks), spans_(n_blocks * kStepWarps) {}

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

  void finish(PersistentPlan& plan) {
    for (const auto& passes : passes_) {
      plan.pass_start.push_back(uint32_t(plan.passes.size()));
      plan.passes.insert(plan.passes.end(), passes.begin(), passes.end());
    }
    plan.pass_start.push_back(uint32_t(plan.passes.size()));
    for (const auto& spans : spans_) {
      plan.span_start.push_back(uint32_t(plan.spans.size()));
      plan.spans.insert(plan.spans.end(), spans.begin(), spans.end());
      plan.spans.push_back({});
    }
    plan.spans.push_back({});  // a warp looks one ahead
  }
  /// Partial sums of the pass with the most: of one chunk of K, and of all chunks.
  uint32_t chunk_slots() const { return slots_of_pass_; }
  uint32_t all_slots() const { return slots_of_op_; }

 private:
  StepPass new_pass() const {
    StepPass pass;
    pass.op = index_;
    return pass;
  }
  quant::Format format(uint32_t part) const { return program_.weight(lowered_->matrices[part]).format; }
  uint32_t k_tiles() const { return ceil_div(lowered_->op.cols, kTileCols); }

  // Units (row tiles of all parts one after another; of a gate, pairs) go to the blocks by equal bytes.
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
      // A unit belongs to the block in whose share its middle lies.
      while (at < units.size() && (ends[at] + (at == 0 ? 0 : ends[at - 1])) * n_blocks_ < 2 * bytes * (b + 1)) ++at;
      if (begin == at) continue;
      std::vector<StepPass> passes = gate ? gate_passes(units[begin].second, uint32_t(at - begin))
                                          : store_passes({units.begin() + begin, units.begin() + at});
      passes.front().opens = passes.back().closes = true;
      for (const StepPass& pass : passes) {
        passes_[b].push_back(with_tiles(pass));
        add_spans(b, pass);
      }
    }
  }

  std::vector<StepPass> store_passes(const std::vector<std::pair<uint32_t, uint32_t>>& units) const {
    std::vector<StepPass> passes;
    for (const auto& [part, tile] : units) {
      if (passes.empty() || passes.back().n_tiles == kPassTiles || passes.back().segments[0].format != format(part)) {
        passes.push_back(new_pass());
        passes.back().n_segments = 1;
        passes.back().segments[0].format = format(part);
      }
      StepPass& pass = passes.back();
      if (pass.n_pieces == 0 || pass.pieces[pass.n_pieces - 1].part != part)
        pass.pieces[pass.n_pieces++] = {uint16_t(part), 0, tile};
      ++pass.pieces[pass.n_pieces - 1].n;
      ++pass.segments[0].n_tiles;
      ++pass.n_tiles;
    }
    return passes;
  }

  std::vector<StepPass> gate_passes(uint32_t first, uint32_t n) {
    std::vector<StepPass> passes;
    const bool one_format = format(0) == format(1);
    for (uint32_t done = 0; done < n; done += kPassTiles / 2) {
      const auto some = uint16_t(std::min(n - done, kPassTiles / 2));
      StepPass pass = new_pass();
      pass.n_tiles = uint16_t(2 * some);
      pass.n_pieces = 2;
      for (uint16_t part = 0; part < 2; ++part) pass.pieces[part] = {part, some, first + done};
      pass.n_segments = one_format ? 1 : 2;
      pass.segments[0] = {format(0), uint16_t(one_format ? 2 * some : some)};
      if (!one_format) pass.segments[1] = {format(1), some};
      passes.push_back(pass);
    }
    return passes;
  }

  // Warps w with runs [n w / 16, n (w + 1) / 16) that reach into row tile `row` of a segment.
  StepPass with_tiles(StepPass pass) {
    const uint32_t n_chunks = ceil_div(k_tiles(), kStageTiles), last_k = k_tiles() - (n_chunks - 1) * kStageTiles;
    uint32_t at = 0, slot = 0;
    for (uint32_t i = 0; i < pass.n_segments; ++i) {
      for (uint32_t row = 0; row < pass.segments[i].n_tiles; ++row) {
        StepTile& tile = pass.tiles[at + row];
        tile.slot = uint8_t(slot + row);
        tile.sparse = pass.segments[i].n_tiles * last_k < kStepWarps;
        for (uint32_t last = 0; last < 2; ++last) {
          const uint32_t k = last != 0 ? last_k : kStageTiles, n = pass.segments[i].n_tiles * k;
          tile.first[last] = uint8_t((kStepWarps * (row * k + 1) - 1) / n);
          tile.last[last] = uint8_t((kStepWarps * (row + 1) * k - 1) / n);
        }
      }
      at += pass.segments[i].n_tiles;
      slot += pass.segments[i].n_tiles + kStepWarps;
    }
    at = 0;
    for (uint32_t i = 0; i < pass.n_pieces; ++i)
      for (uint32_t tile = 0; tile < pass.pieces[i].n; ++tile, ++at) {
        pass.tiles[at].part = uint8_t(pass.pieces[i].part);
        pass.tiles[at].row = (pass.pieces[i].first + tile) * kTileRows;
        pass.tiles[at].n_rows =
            uint8_t(std::min(kTileRows, lowered_->op.rows[pass.pieces[i].part] - pass.tiles[at].row));
      }
    slots_of_pass_ = std::max(slots_of_pass_, slot);
    slots_of_op_ = std::max(slots_of_op_, slot * n_chunks);
    return pass;
  }

  // The tiles of a pass in the order in which multiply_run() (persistent_project.cuh) takes them.
  void add_spans(uint32_t block, const StepPass& pass) {
    for (uint32_t tile0 = 0; tile0 < k_tiles(); tile0 += kStageTiles) {
      const uint32_t n_k = std::min(k_tiles() - tile0, kStageTiles);
      uint32_t first = 0;  // row tile of the segment
      for (uint32_t i = 0; i < pass.n_segments; ++i) {
        const uint32_t n = pass.segments[i].n_tiles * n_k, size = tile_bytes(pass.segments[i].format);
        for (uint32_t w = 0; w < kStepWarps; ++w)
          for (uint32_t at = n * w / kStepWarps; at < n * (w + 1) / kStepWarps; ++at)
            append(spans_[block * kStepWarps + w], address(pass, first + at / n_k, tile0 + at % n_k, size), size);
        first += pass.segments[i].n_tiles;
      }
    }
  }
  const uint8_t* address(const StepPass& pass, uint32_t tile, uint32_t k, uint32_t size) const {
    uint32_t piece = 0;
    while (tile >= pass.pieces[piece].n) tile -= pass.pieces[piece++].n;
    const StepPiece& p = pass.pieces[piece];
    return weights_.tiles(lowered_->matrices[p.part]) + (uint64_t{p.first + tile} * k_tiles() + k) * size;
  }
  static void append(std::vector<StepSpan>& spans, const uint8_t* tile, uint32_t size) {
    if (!spans.empty() && spans.back().tile_bytes == size &&
        spans.back().tiles + uint64_t{spans.back().n} * size == tile)
      ++spans.back().n;
    else
      spans.push_back({tile, 1, size});
  }

  const Program& program_;
  const Weights& weights_;
  const uint32_t n_blocks_;
  uint32_t index_ = 0;
  const LoweredOp* lowered_ = nullptr;
  uint32_t slots_of_pass_ = 0, slots_of_op_ = 0;
  std::vector<std::vector<StepPass>> passes_;
  std::vector<std::vector<StepSpan>> spans_;  // [blocks][kStepWarps]
};

// ---- shared memory

struct Needs {
  uint32_t most_k_tiles = 1, least_tile = UINT32_MAX, most_tile = 0;
  uint32_t chunk_slots = 0, all_slots = 0;
  bool attends = false;
  uint32_t head_dim = 0;
};

StepShared share_memory(const Needs& needs, uint32_t rows, uint32_t bytes) {
  StepShared s;
  s.slots = rows == 1 ? needs.all_slots : needs.chunk_slots;
  const uint32_t tile = project_stage_bytes(rows);
  const uint32_t most_work = bytes - std::min(bytes, kStepWarps * 2 * needs.most_tile);
  const uint32_t fixed = project_fixed_bytes(rows, s);
  // All of K at once if it fits beside a ring of two tiles a warp, else chunk after chunk.
  s.stage_tiles = needs.most_k_tiles;
  if (fixed + s.stage_tiles * tile > most_work)
    s.stage_tiles = std::max(kStageTiles, (most_work - std::min(most_work, fixed)) / tile / kStageTiles * kStageTiles);
  if (rows > 1) s.stage_tiles = std::min(s.stage_tiles, kStageTiles);
  s.work = fixed + s.stage_tiles * tile;
  if (needs.attends) s.work = std::max(s.work, needs.head_dim != 0 ? kTensorAttendBytes : kPlainAttendBytes);
  s.work = round_up(s.work, 128u);
  // One row is staged whole (persistent_project.cuh).
  if (s.work >= bytes || (rows == 1 && s.stage_tiles < needs.most_k_tiles)) return s;
  const uint32_t ring = std::min((bytes - s.work) / kStepWarps / 128 * 128, kRingSlots * needs.least_tile);
  const bool one_size = needs.least_tile == needs.most_tile;
  if (ring >= needs.most_tile * (one_size ? 1 : 2)) s.ring = ring;
  return s;
}

}  // namespace

std::vector<std::string> persistent_obstacles(const Program& program, CacheType type) {
  return Lowering(program, type, nullptr, nullptr).obstacles;
}

Result<PersistentPlan> make_persistent_plan(const Program& program, CacheType type, const Weights& weights,
                                            const KvCache& cache, uint32_t n_blocks, uint32_t shared_bytes) {
  const Lowering lowering(program, type, &weights, &cache);
  PersistentPlan plan;
  Needs needs;
  Sharing sharing(program, weights, n_blocks);
  for (const LoweredOp& lowered : lowering.ops) {
    const StepOp& op = lowered.op;
    sharing.add(lowered, uint32_t(plan.ops.size()));
    plan.ops.push_back(op);
    plan.ops.back().per_column = op.cols == 0 ? 0 : 1 / float(op.cols);
    for (const Matrix& m : lowered.matrices) {
      const bool halves = program.weight(m).format == quant::Format::kQ6_K;
      plan.ops.back().block_sums |= !halves;
      plan.ops.back().half_block_sums |= halves;
    }
    if (op.kind == StepOpKind::kAttend) {
      needs.attends = true;
      plan.most_kv_heads = std::max(plan.most_kv_heads, op.cache.n_kv_heads);
      plan.partial_floats = std::max(plan.partial_floats, uint64_t{op.n_heads} * (op.cache.value_dim + 2));
    } else {
      needs.most_k_tiles = std::max(needs.most_k_tiles, ceil_div(op.cols, kTileCols));
    }
    for (const Matrix& m : lowered.matrices) {
      needs.least_tile = std::min(needs.least_tile, tile_bytes(program.weight(m).format));
      needs.most_tile = std::max(needs.most_tile, tile_bytes(program.weight(m).format));
    }
  }
  for (size_t i = 0; i + 1 < plan.ops.size(); ++i) {
    const StepOp& next = plan.ops[i + 1];
    StepOp& op = plan.ops[i];
    op.ahead_norm = next.norm.weight;
    op.ahead_norm_floats = next.norm.weight != nullptr ? next.cols : 0;
    if (next.ending == EndingKind::kLogits) continue;
    uint32_t end = 0;
    op.ahead_place = UINT32_MAX;
    for (uint32_t part = 0; part < next.n_parts; ++part) {
      op.ahead_place = std::min(op.ahead_place, next.out[part]);
      end = std::max(end, next.out[part] + next.rows[part]);
    }
    op.ahead_floats = end - std::min(end, op.ahead_place);
  }
  sharing.finish(plan);
  if (plan.passes.size() > UINT32_MAX || plan.spans.size() > UINT32_MAX)
    return unsupported("the persistent kernel's lists would be too long");
  needs.chunk_slots = sharing.chunk_slots();
  needs.all_slots = sharing.all_slots();
  needs.head_dim = plan.head_dim = lowering.head_dim.value_or(0);
  plan.plane = lowering.plane();
  plan.embedded = lowering.embedded;
  plan.n_attends = lowering.n_attends;
  plan.one = share_memory(needs, 1, shared_bytes);
  plan.four = share_memory(needs, 4, shared_bytes);
  plan.eight = share_memory(needs, 8, shared_bytes);
  return plan;
}

}  // namespace honeycrisp::backend::cuda
