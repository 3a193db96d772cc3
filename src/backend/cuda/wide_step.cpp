#include "backend/cuda/wide_step.h"

#include "backend/cuda/chunk_memory.h"
#include "backend/cuda/step_rows.h"
#include "backend/cuda/wide_places.h"
#include "base/checked.h"

#include <algorithm>
#include <cuda_runtime_api.h>
#include <map>

namespace honeycrisp::backend::cuda {

using namespace program;

namespace {

constexpr uint64_t kMostSumBytes = 40 << 20;  // of a launch's products: they should stay in L2

// ---- sharing the work out

// What the units before each, and all of them, cost: about the time of a k tile's products.
std::vector<uint64_t> costs(const WideProductArgs& p) {
  const bool gate = p.op.ending == EndingKind::kGate;
  std::vector<uint64_t> before = {0};
  for (uint32_t part = 0; part < (gate ? 1 : p.op.n_parts); ++part)
    for (uint32_t unit = 0; unit < wide_units(p.op, part); ++unit)
      before.push_back(before.back() + p.tile_bytes[part] + (gate ? p.tile_bytes[1] : 0));
  return before;
}

// Where the slices of units [first, end) begin, by equal costs.
std::vector<uint32_t> slices(const std::vector<uint64_t>& cost_before, uint32_t first, uint32_t end,
                             uint32_t n_slices) {
  const uint64_t begin = cost_before[first], whole = cost_before[end] - begin;
  std::vector<uint32_t> starts;
  for (uint32_t s = 0; s <= n_slices; ++s)
    starts.push_back(uint32_t(
        std::lower_bound(cost_before.begin() + first, cost_before.begin() + end, begin + whole * s / n_slices) -
        cost_before.begin()));
  starts.back() = end;
  return starts;
}

}  // namespace

// The plan's ops, and before each product whose input nobody makes fragments of, one that makes them. Returns which op
// of the plan each is.
std::vector<uint32_t> WideStep::lower(const PersistentPlan& plan) {
  std::vector<uint32_t> of_plan;
  uint32_t beyond = plan.plane;  // places
  const auto add = [&](const StepOp& op, uint32_t i) {
    ops_.push_back(op);
    steps_.push_back(plan.steps[i]);
    of_plan.push_back(i);
  };
  for (uint32_t i = 0; i < plan.ops.size(); ++i) {
    StepOp op = plan.ops[i];
    op.halves_in = op.halves_out = true;  // products of many rows are made of f16
    if (op.kind == StepOpKind::kProject && op.fragments_in == kNoPlace) {
      StepOp maker;
      maker.kind = StepOpKind::kFragments;
      maker.in = op.in;
      maker.cols = maker.rows[0] = op.cols;
      maker.norm.weight = op.norm.weight;
      maker.fragments_out = op.fragments_in = beyond;
      maker.halves_out = true;
      beyond += fragment_words(op.cols);
      add(maker, i);
    }
    add(op, i);
  }
  return of_plan;
}

Result<WideStep> WideStep::lay_out(const Program& program, const PersistentPlan& plan, const Weights* weights,
                                   const DeviceInfo& device, uint32_t max_rows, std::vector<uint32_t>& starts) {
  WideStep w;
  w.n_steps_ = uint32_t(program.steps.size());
  w.n_attends_ = plan.n_attends;
  w.n_blocks_ = device.multiprocessors;
  w.most_kv_heads_ = plan.most_kv_heads;
  w.chunk_floats_ = plan.partial_floats;
  const auto& embed = std::get<Embed>(program.steps[0].op);
  if (weights != nullptr) w.embedding_ = weights->matrix(embed.table);
  w.embedding_scale_ = embed.scale;
  w.embedded_ = plan.embedded;
  const std::vector<uint32_t> plan_ops = w.lower(plan);
  w.plane_ = share_places(w.ops_, w.embedded_, embed.out.width);

  const uint32_t rows = std::min(max_rows, kWideRows), padded = wide_padded_rows(rows);
  uint64_t sum_bytes = 0, square_floats = 0;
  for (uint32_t i = 0; i < w.ops_.size(); ++i) {
    const StepOp& op = w.ops_[i];
    if (op.kind != StepOpKind::kProject) {
      w.launches_.push_back({i, {}});
      continue;
    }
    const std::vector<Matrix>& matrices = plan.matrices[plan_ops[i]];
    WideProductArgs p;
    p.op = op;
    for (size_t part = 0; part < matrices.size(); ++part) {
      if (weights != nullptr) p.tiles[part] = weights->tiles(matrices[part]);
      p.formats[part] = program.weight(matrices[part]).format;
      p.tile_bytes[part] = tile_bytes(p.formats[part]);
    }
    p.k_tiles = ceil_div(op.cols, kTileCols);
    p.n_groups = ceil_div(p.k_tiles, kWideKTiles);
    p.n_slices = std::max(1u, device.multiprocessors / p.n_groups);
    const std::vector<uint64_t> cost_before = costs(p);
    const auto units = uint32_t(cost_before.size() - 1);
    const uint64_t unit_bytes = uint64_t{p.n_groups} * wide_unit_tiles(op) * padded * kTileRows * sizeof(float);
    const auto n_launches = uint32_t(std::max<uint64_t>(1, ceil_div(units * unit_bytes, kMostSumBytes)));
    for (uint32_t n = 0; n < n_launches; ++n) {
      const auto first = uint32_t(uint64_t{units} * n / n_launches);
      const auto end = uint32_t(uint64_t{units} * (n + 1) / n_launches);
      if (first == end) continue;
      p.first_unit = first;
      p.n_units = end - first;
      p.n_row_tiles = (end - first) * wide_unit_tiles(op);
      w.launches_.push_back({i, p});
      const std::vector<uint32_t> of_launch = slices(cost_before, first, end, p.n_slices);
      starts.insert(starts.end(), of_launch.begin(), of_launch.end());
      sum_bytes = std::max(sum_bytes, (end - first) * unit_bytes);
      square_floats = std::max(square_floats, uint64_t{kWideRows} * p.k_tiles);
    }
  }

  Layout layout;
  w.planes_ = layout.add(uint64_t{rows} * w.plane_, sizeof(float));
  w.sums_ = layout.add(sum_bytes, 1);
  w.squares_ = layout.add(square_floats, sizeof(float));
  const uint64_t chunk_counts = uint64_t{kWideGroups} * w.n_attends_ * kStepRows * w.most_kv_heads_;
  w.count_bytes_ = chunk_counts * sizeof(uint32_t);
  w.counts_ = layout.add(w.count_bytes_, 1);
  w.slices_ = layout.add(starts.size(), sizeof(uint32_t));
  if (layout.overflow()) return invalid("the vectors of steps of {} rows would not fit the address space", rows);
  w.memory_bytes_ = layout.total();
  return w;
}

Result<uint64_t> WideStep::needed_bytes(const Program& program, const PersistentPlan& plan, const DeviceInfo& device,
                                        const CompileOptions& options) {
  std::vector<uint32_t> starts;
  HC_ASSIGN(const WideStep w, lay_out(program, plan, nullptr, device, options.max_rows, starts));
  const uint64_t group_bytes = w.group_bytes(ceil_div(context_length(options), kAttentionChunk));
  if (group_bytes == 0) return w.memory_bytes_;
  if (group_bytes > kMostChunkBytes) return w.memory_bytes_ + kMostChunkBytes;  // taken before the end of the context
  const uint32_t n_groups = ceil_div(std::min(options.max_rows, kWideRows), kStepRows);
  return w.memory_bytes_ + chunk_bytes(rows_together(group_bytes, n_groups) * group_bytes);
}

Result<WideStep> WideStep::make(const Program& program, const PersistentPlan& plan, FormatSet formats,
                                const Weights& weights, const DeviceInfo& device, uint32_t max_rows) {
  std::vector<uint32_t> starts;
  HC_ASSIGN(WideStep w, lay_out(program, plan, &weights, device, max_rows, starts));
  w.formats_ = formats;
  HC_ASSIGN(w.memory_, Memory::allocate(w.memory_bytes_, fmt::format("vectors of steps of up to {} rows", max_rows)));
  HC_TRY(check_cuda(
      cudaMemcpy(w.memory_.as(w.slices_), starts.data(), starts.size() * sizeof(uint32_t), cudaMemcpyHostToDevice),
      "uploading the slices of products"));
  const auto* slice_units = w.memory_.as<uint32_t>(w.slices_);
  for (Launch& launch : w.launches_) {
    WideProductArgs& p = launch.product;
    if (p.n_slices == 0) continue;
    p.slice_units = slice_units;
    slice_units += p.n_slices + 1;
    p.planes = w.memory_.as<float>(w.planes_);
    p.plane = w.plane_;
    p.partials = w.memory_.as<float>(w.sums_);
    p.squares = w.memory_.as<float>(w.squares_);
  }
  HC_TRY(check_cuda(prepare_wide_rows(), "preparing the kernels of wide steps"));
  HC_TRY(check_cuda(formats == FormatSet::kOften ? prepare_wide_product<FormatSet::kOften>()
                                                 : prepare_wide_product<FormatSet::kAll>(),
                    "preparing the kernels of wide steps"));
  return w;
}

bool WideStep::has_room(uint32_t n_positions) const {
  return group_bytes(ceil_div(n_positions, kAttentionChunk)) <= kMostChunkBytes;
}

Result<void> WideStep::issue(const Batch& batch, const StepRows& rows, const StepArgs& args, float* logits,
                             Stream stream, StepTimes* times) {
  int32_t dest = 0;
  for (uint32_t first = 0; first < batch.rows.size(); first += kWideRows) {
    const uint32_t n = std::min(kWideRows, uint32_t(batch.rows.size()) - first);
    HC_TRY(issue_rows(batch, first, n, dest, rows, args, logits, stream, times));
    for (const Row& row : batch.rows.subspan(first, n)) dest += row.wants_logits ? 1 : 0;
  }
  return {};
}

Result<void> WideStep::issue_rows(const Batch& batch, uint32_t first, uint32_t n_rows, int32_t dest,
                                  const StepRows& rows, const StepArgs& args, float* logits, Stream stream,
                                  StepTimes* times) {
  const uint32_t n_chunks = ceil_div(rows.n_positions, kAttentionChunk), n_groups = ceil_div(n_rows, kStepRows);
  const uint64_t group_bytes = this->group_bytes(n_chunks), group_floats = group_bytes / sizeof(float);
  const uint64_t together = rows_together(group_bytes, n_groups);
  if (const uint64_t bytes = together * group_bytes; bytes > partials_.bytes()) {
    HC_TRY(check_cuda(cudaStreamSynchronize(stream), "growing attention's memory"));
    partials_ = {};  // never both
    HC_ASSIGN(partials_, Memory::allocate(chunk_bytes(bytes), "chunks of attention"));
  }
  HC_TRY(check_cuda(cudaMemsetAsync(memory_.as(counts_), 0, count_bytes_, stream), "clearing counts"));

  WideRowsArgs step;
  int32_t dests[kWideRows];
  // Rows of a sequence may come to lie in several groups: those attend one after another.
  bool in_turn = false;
  std::map<uint32_t, uint32_t> group_of;  // sequence: group
  for (uint32_t g = 0; g < n_groups; ++g) {
    StepArgs& a = step.groups[g];
    a = args;
    a.planes = memory_.as<float>(planes_) + uint64_t{g} * kStepRows * plane_;
    a.plane = plane_;
    a.arrivals = memory_.as<uint32_t>(counts_) + uint64_t{g} * n_attends_ * kStepRows * most_kv_heads_;
    a.arrival_heads = most_kv_heads_;
    a.partials = partials_.as<float>() + g % together * group_floats;
    a.partial_floats = 0;  // one half serves all, as kernels follow one another
    a.n_chunks = n_chunks;
    a.n_rows = std::min(kStepRows, n_rows - g * kStepRows);
    put_rows(a, batch, first + g * kStepRows, dest);
    for (uint32_t i = 0; i < a.n_rows; ++i) {
      dests[g * kStepRows + i] = a.dest[i];
      in_turn |= group_of.emplace(batch.rows[a.row[i]].sequence, g).first->second != g;
    }
  }
  if (times != nullptr) HC_TRY(times->mark(0, stream));
  HC_TRY(check_cuda(launch_embed(embedding_, rows.tokens + first, n_rows,
                                 {memory_.as<float>(planes_) + embedded_, plane_}, embedding_scale_, stream),
                    fmt::format("embedding {} rows", n_rows)));
  uint32_t marked = 1;
  if (times != nullptr) HC_TRY(times->mark(marked++, stream));
  for (const Launch& launch : launches_) {
    const StepOp& op = ops_[launch.op];
    if (times != nullptr)
      while (marked <= steps_[launch.op]) HC_TRY(times->mark(marked++, stream));
    int status = 0;
    switch (op.kind) {
      case StepOpKind::kAttend: HC_TRY(issue_attend(step, op, n_groups, together, in_turn, stream)); break;
      case StepOpKind::kEnd: status = launch_wide_end(step, op, n_rows, stream); break;
      case StepOpKind::kFragments: status = launch_wide_fragments(step, op, n_rows, stream); break;
      case StepOpKind::kProject: {
        WideProductArgs p = launch.product;
        p.n_rows = n_rows;
        std::copy(dests, dests + n_rows, p.dest);
        p.logits = logits;
        status = formats_ == FormatSet::kOften ? launch_wide_product<FormatSet::kOften>(p, stream)
                                               : launch_wide_product<FormatSet::kAll>(p, stream);
        if (status == 0) status = launch_wide_finish(p, stream);
        break;
      }
    }
    HC_TRY(check_cuda(status, fmt::format("op {} of a step of {} rows", launch.op, n_rows)));
  }
  if (times != nullptr) {
    while (marked <= n_steps_) HC_TRY(times->mark(marked++, stream));
    HC_TRY(check_cuda(cudaStreamSynchronize(stream), "a profiled step"));
    HC_TRY(times->add(0, n_steps_));
  }
  return {};
}

Result<void> WideStep::issue_attend(const WideRowsArgs& rows, const StepOp& op, uint32_t n_groups, uint64_t together,
                                    bool in_turn, Stream stream) {
  const auto step = uint32_t(in_turn ? 1 : together);
  for (uint32_t first = 0; first < n_groups; first += step) {
    const uint32_t n = std::min(step, n_groups - first);
    uint32_t items = 0;
    bool merges = false;
    for (uint32_t g = first; g < first + n; ++g) {
      uint32_t of_group = 0;
      for (uint32_t i = 0; i < rows.groups[g].n_rows; ++i) {
        const uint32_t chunks = chunks_of(rows.groups[g].position[i], op.window).n;
        of_group += chunks * op.cache.n_kv_heads;
        merges |= chunks > 1;
      }
      items = std::max(items, of_group);
    }
    items = std::min(items, std::max(1u, n_blocks_ / n));  // blocks that take one after another begin but once
    HC_TRY(check_cuda(launch_wide_attend(rows, op, first, n, items, stream),
                      fmt::format("attention of {} rows", n * kStepRows)));
    if (merges) HC_TRY(check_cuda(launch_wide_merge(rows, op, first, n, stream), "joining the chunks of attention"));
  }
  return {};
}

}  // namespace honeycrisp::backend::cuda
