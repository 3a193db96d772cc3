#include "backend/cuda/encoder.h"

#include "base/check.h"
#include "base/checked.h"

#include <algorithm>

namespace honeycrisp::backend::cuda {

using namespace program;

namespace {

constexpr uint64_t kSlabElements = uint64_t{64} << 20;   // weights made operands at a time for a prompt's product
constexpr uint64_t kPartialFloats = uint64_t{16} << 20;  // chunks of attention in memory together
constexpr uint32_t kMostExperts = 4096;                  // whose scores and counts a block has in shared memory
constexpr uint32_t kMaxPositions = uint32_t{1} << 20;    // where the context is not limited otherwise

struct Parts {
  Slice in;
  std::vector<Matrix> matrices;
};
Parts parts_of(const Step& step) {
  if (const auto* p = std::get_if<Project>(&step.op)) return {p->in, p->matrices};
  if (const auto* l = std::get_if<Logits>(&step.op)) return {l->in, {l->table}};
  return {};
}

// All products of a step that run like a Project's.
std::vector<Parts> products_of(const Step& step) {
  const auto* mix = std::get_if<MixExperts>(&step.op);
  if (mix == nullptr) return {parts_of(step)};
  std::vector<Parts> parts = {{mix->in, {}}};
  if (mix->shared) {
    parts.push_back({mix->in, {mix->shared->gate, mix->shared->up}});
    parts.push_back({{.width = mix->shared->gate.rows}, {mix->shared->down}});
  }
  return parts;
}

uint32_t total_rows(const std::vector<Matrix>& matrices) {
  uint64_t rows = 0;
  for (const Matrix& m : matrices) rows += m.rows;
  return uint32_t(std::min<uint64_t>(rows, UINT32_MAX));
}

// Matrices [first, ...) that have the format of the first: one launch.
size_t end_of_run(const Program& program, const std::vector<Matrix>& matrices, size_t first) {
  size_t end = first + 1;
  while (end < matrices.size() && program.weight(matrices[end]).format == program.weight(matrices[first]).format) ++end;
  return end;
}
uint32_t runs_of_one_format(const Program& program, const std::vector<Matrix>& matrices) {
  uint32_t n = 0;
  for (size_t first = 0; first < matrices.size(); first = end_of_run(program, matrices, first)) ++n;
  return n;
}

bool overlap(const Slice& a, const Slice& b) {
  return a.buffer == b.buffer && a.column < b.column + b.width && b.column < a.column + a.width;
}

// Slices that an ending writes.
std::vector<Slice> outputs_of(const Project& p) {
  if (const auto* s = std::get_if<Store>(&p.ending)) return s->outs;
  if (const auto* g = std::get_if<Gate>(&p.ending)) return {g->out};
  return {std::get<Residual>(p.ending).x};
}

bool device_has_half_gemm(const DeviceInfo& device) {
  return has_half_gemm() && device.major == 9 && device.minor == 0;
}

bool all_unpacked_in_registers(const Program& program, const std::vector<bool>& packed,
                               const std::vector<Matrix>& matrices) {
  return std::all_of(matrices.begin(), matrices.end(),
                     [&](const Matrix& m) { return unpacked_in_registers(program, packed, m); });
}

bool ending_has_norm(const Project& p) {
  if (const auto* s = std::get_if<Store>(&p.ending)) return s->norm.has_value();
  if (const auto* r = std::get_if<Residual>(&p.ending)) return r->post_norm.has_value();
  return false;
}

// Of matrices [first, first + n) alone.
EndingArgs part_of(const EndingArgs& e, size_t first, uint32_t n) {
  EndingArgs part = e;
  part.n_parts = n;
  for (uint32_t i = 0; i < n; ++i) {
    part.rows[i] = e.rows[first + i];
    part.bias[i] = e.bias[first + i];
    part.out[i] = e.out[first + i];
  }
  return part;
}

std::string lower(std::string_view name) {
  std::string s(name);
  std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return s;
}

}  // namespace

bool unpacked_in_registers(const Program& program, const std::vector<bool>& packed, const Matrix& m) {
  return packed[m.weight] && is_unpacked_in_registers(program.weight(m).format);
}

bool packed_alike(const Program& program, const std::vector<bool>& packed, const std::vector<Matrix>& matrices) {
  const quant::Format format = program.weight(matrices[0]).format;
  return std::all_of(matrices.begin(), matrices.end(),
                     [&](const Matrix& m) { return packed[m.weight] && program.weight(m).format == format; });
}

bool floats_alike(const Program& program, const std::vector<bool>& packed, const std::vector<Matrix>& matrices) {
  const quant::Format format = program.weight(matrices[0]).format;
  const bool floats = format == quant::Format::kF16 || format == quant::Format::kBF16 || format == quant::Format::kF32;
  return floats && program.weight(matrices[0]).cols % 8 == 0 &&
         std::all_of(matrices.begin(), matrices.end(),
                     [&](const Matrix& m) { return !packed[m.weight] && program.weight(m).format == format; });
}

Result<void> check_ops(const Program& program) {
  for (const Step& step : program.steps) {
    if (const auto* d = std::get_if<DeltaNet>(&step.op); d != nullptr && program.state(*d).key_dim > kMostDeltaKeys)
      return unsupported("{}: the cuda backend has no delta rule for keys of {} (at most {})", step.label,
                         program.state(*d).key_dim, kMostDeltaKeys);
    if (const auto* m = std::get_if<MixExperts>(&step.op); m != nullptr && m->router.matrix.rows > kMostExperts)
      return unsupported("{}: the cuda backend has no choice among {} experts (at most {})", step.label,
                         m->router.matrix.rows, kMostExperts);
  }
  return {};
}

uint32_t context_length(const CompileOptions& options) {
  return options.max_positions != 0 ? options.max_positions : kMaxPositions;
}

MatVecPath mat_vec_path(const Program& program, const Step& step, const std::vector<bool>& packed) {
  const Parts parts = parts_of(step);
  if (!std::all_of(parts.matrices.begin(), parts.matrices.end(),
                   [&](const Matrix& m) { return packed[m.weight] && !is_packed_float(program.weight(m).format); }))
    return MatVecPath::kEnding;
  const auto* project = std::get_if<Project>(&step.op);
  const bool pairs_up =
      project != nullptr && parts.matrices.size() > 1 && std::holds_alternative<Gate>(project->ending);
  if (pairs_up && !packed_alike(program, packed, parts.matrices)) return MatVecPath::kEnding;
  if (const auto* p = std::get_if<Project>(&step.op)) {
    if (ending_has_norm(*p)) return MatVecPath::kEnding;
    // Blocks write outputs while others still read the input.
    for (const Slice& out : outputs_of(*p))
      if (overlap(out, p->in)) return MatVecPath::kEnding;
  }
  return MatVecPath::kFused;
}

std::vector<StepPlan> plan_steps(const Program& program, const std::vector<std::string>& obstacles) {
  const bool persistent =
      std::all_of(obstacles.begin(), obstacles.end(), [](const std::string& why) { return why.empty(); });
  const std::vector<bool> packed = packed_weights(program, persistent);
  std::vector<StepPlan> plans;
  for (const Step& step : program.steps) {
    StepPlan plan{.kernel = std::string(op_name(step.op)) + ".cuda"};
    if (std::holds_alternative<Embed>(step.op)) {
      plan.launches = 1;
    } else if (std::holds_alternative<Attend>(step.op)) {
      plan.launches = 1;  // within the first chunk; beyond it, a second merges the chunks
    } else if (std::holds_alternative<DeltaNet>(step.op)) {
      plan.launches = 3;
    } else if (const auto* mix = std::get_if<MixExperts>(&step.op)) {
      plan = plan_mixture(program, *mix, packed);
    } else {
      const Parts parts = parts_of(step);
      const bool fused = mat_vec_path(program, step, packed) == MatVecPath::kFused;
      bool plain = false;
      std::string formats, unpacked;
      for (const Matrix& m : parts.matrices) {
        const std::string name = lower(quant::to_string(program.weight(m).format));
        if (formats.find(name) == std::string::npos) formats += (formats.empty() ? "" : "+") + name;
        if (packed[m.weight] && (persistent || !is_packed_float(program.weight(m).format))) continue;
        plain = true;
        if (unpacked.find(name) == std::string::npos) unpacked += (unpacked.empty() ? "" : ", ") + name;
      }
      plan.kernel = fmt::format("{}.{}.cuda.{}", op_name(step.op), formats, plain ? "simt" : "mma");
      const auto* project = std::get_if<Project>(&step.op);
      if (floats_alike(program, packed, parts.matrices))
        plan.launches = project != nullptr && ending_has_norm(*project) ? 3 : 2;
      else
        plan.launches =
            fused ? runs_of_one_format(program, parts.matrices) : uint32_t(parts.matrices.size()) + 1 + (plain ? 1 : 0);
      if (plain)
        plan.why_not_fast = fmt::format("{}: no products of packed tiles; plain ones in f32", unpacked);
      else if (!fused)
        plan.why_not_fast = "the ending needs whole rows or both products of a pair: it is a launch of its own";
    }
    const std::string& obstacle = obstacles[plans.size()];
    if (persistent) {  // one kernel for all steps after the embedding: it is counted at the first of them
      if (plan.kernel.ends_with(".mma")) plan.kernel.resize(plan.kernel.size() - 4);
      if (!plans.empty()) plan.kernel += ".persistent";
      plan.launches = plans.size() <= 1 ? 1 : 0;
      plan.why_not_fast.clear();
    } else {
      const std::string why = obstacle.empty() ? "other steps keep the program from the persistent kernel"
                                               : "not in the persistent kernel: " + obstacle;
      plan.why_not_fast = plan.why_not_fast.empty() ? why : why + "; " + plan.why_not_fast;
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

std::string fine_prompts_reason(const Program& program, const DeviceInfo& device) {
  if (!device_has_half_gemm(device)) return {};
  for (const Step& step : program.steps) {  // such models carry the rounding of activations much further
    if (const auto* a = std::get_if<Attend>(&step.op); a != nullptr && a->v_norm)
      return "prompts: values are normed, for which products of one half are too coarse";
    if (std::holds_alternative<MixExperts>(step.op))
      return "prompts: experts are chosen, for which products of one half are too coarse";
    if (std::holds_alternative<DeltaNet>(step.op))
      return "prompts: layers are recurrent, for which products of one half are too coarse";
  }
  return {};
}

PromptPath prompt_path(const Program& program, const DeviceInfo& device) {
  if (!device_has_half_gemm(device)) return PromptPath::kSplit;
  return fine_prompts_reason(program, device).empty() ? PromptPath::kHalf : PromptPath::kTwoHalves;
}

StepMemory place_step_memory(const Program& program, const CompileOptions& options, PromptPath prompts,
                             bool float_tiles) {
  StepMemory m;
  const std::vector<bool> packed = packed_weights(program, float_tiles);
  const uint64_t rows = options.max_rows;
  uint64_t widest_in = 0, widest_out = 0, slab = 0, queries = 0, most_heads = 0, partial_row = 0, arranged = 0;
  for (const Step& step : program.steps) {
    if (const auto* a = std::get_if<Attend>(&step.op)) {
      const CacheLayer& cache = program.cache(*a);
      queries = std::max<uint64_t>(queries, uint64_t{a->n_heads} * cache.key_dim);
      most_heads = std::max<uint64_t>(most_heads, a->n_heads);
      partial_row = std::max<uint64_t>(partial_row, uint64_t{a->n_heads} * (uint64_t{cache.value_dim} + 2) *
                                                        ceil_div(context_length(options), kAttentionChunk));
    }
    const bool halves = prompts != PromptPath::kSplit;
    for (const Parts& parts : products_of(step)) {
      const uint64_t depth = round_up<uint64_t>(parts.in.width, halves ? kTileCols : kGemmDepth);
      const uint64_t outputs = total_rows(parts.matrices);
      widest_in = std::max<uint64_t>(widest_in, depth);
      widest_out = std::max(widest_out, outputs);
      const uint64_t unit = halves ? depth * kTileRows : depth;  // whole row tiles
      if (!halves || !all_unpacked_in_registers(program, packed, parts.matrices))
        slab = std::max(slab, std::max(unit, std::min(depth * round_up<uint64_t>(outputs, kTileRows), kSlabElements)));
    }
    const auto* mix = std::get_if<MixExperts>(&step.op);
    if (mix == nullptr || !halves) continue;
    for (const Matrix& weights : {mix->gate, mix->up, mix->down}) {
      const uint64_t depth = round_up<uint64_t>(program.weight(weights).cols, kTileCols);
      arranged = std::max(arranged, depth * most_slots(program, rows));
      if (unpacked_in_registers(program, packed, weights)) continue;
      const uint64_t expert = depth * round_up<uint64_t>(weights.rows, kTileRows);  // at least one
      slab = std::max(slab, std::max(expert, std::min(expert * program.weight(weights).slices, kSlabElements)));
    }
  }
  for (const Buffer& b : program.buffers) {
    m.widths.push_back(b.width);
    m.buffers.push_back(m.layout.add(rows * b.width, sizeof(float)));
  }
  m.product_stride = uint32_t(widest_out);
  m.slab_elements = slab;
  // A row's chunks must fit; more rows share the memory of short contexts.
  m.partial_floats = partial_row == 0 ? 0 : std::max(partial_row, std::min(partial_row * rows, kPartialFloats));
  m.products = m.layout.add(rows * widest_out, sizeof(float));
  m.plain_x = m.layout.add(rows * widest_in, sizeof(float));
  m.queries = m.layout.add(rows * queries, sizeof(float));
  m.query_scales = m.layout.add(rows * most_heads, sizeof(float));
  if (prompts != PromptPath::kSplit) {
    const uint64_t parts = prompts == PromptPath::kTwoHalves ? 2 : 1;
    const uint64_t arranged_rows = round_up<uint64_t>(rows, kArrangedRows);
    m.x_half = m.layout.add(std::max(arranged_rows * widest_in, arranged) * parts + kArrangedSlack, sizeof(uint16_t));
    m.x_scales = m.layout.add(std::max(arranged_rows, most_slots(program, rows)), sizeof(float));
    m.half_tiles = m.layout.add(slab * parts, sizeof(uint16_t));
    m.half_exponents = m.layout.add(slab / kTileCols, sizeof(int8_t));
  } else {
    m.x_high = m.layout.add(rows * widest_in, sizeof(uint16_t));
    m.x_low = m.layout.add(rows * widest_in, sizeof(uint16_t));
    m.w_high = m.layout.add(slab, sizeof(uint16_t));
    m.w_low = m.layout.add(slab, sizeof(uint16_t));
  }
  m.partials = m.layout.add(m.partial_floats, sizeof(float));
  place_mixtures(program, rows, m);
  place_delta_nets(program, rows, m);
  return m;
}

Encoder::Encoder(const Program& program, const Weights& weights, const KvCache& cache, const DeviceInfo& device,
                 StepMemory places, const Memory& memory)
    : program_(program),
      weights_(weights),
      cache_(cache),
      device_(device),
      prompts_(prompt_path(program, device)),
      places_(std::move(places)),
      memory_(memory) {}

Rows Encoder::rows_of(const Slice& slice) const {
  return {memory_.as<float>(places_.buffers[slice.buffer]) + slice.column, places_.widths[slice.buffer]};
}

Result<void> Encoder::encode(const StepRows& rows, const std::vector<const float*>& ropes, float* logits, Stream stream,
                             StepTimes* times) const {
  if (times != nullptr) HC_TRY(times->mark(0, stream));
  for (size_t i = 0; i < program_.steps.size(); ++i) {
    const Step& step = program_.steps[i];
    Result<void> done;
    if (const auto* e = std::get_if<Embed>(&step.op)) done = run(*e, rows, stream);
    if (const auto* p = std::get_if<Project>(&step.op)) done = run(*p, step, rows, stream);
    if (const auto* a = std::get_if<Attend>(&step.op)) done = run(*a, rows, ropes, stream);
    if (const auto* d = std::get_if<DeltaNet>(&step.op)) done = run(*d, rows, stream);
    if (const auto* m = std::get_if<MixExperts>(&step.op)) done = run(*m, rows, stream);
    if (const auto* l = std::get_if<Logits>(&step.op)) done = run(*l, step, rows, logits, stream);
    if (!done) return fail(done.error().code, "{}: {}", step.label, done.error().message);
    if (times != nullptr) HC_TRY(times->mark(i + 1, stream));
  }
  return {};
}

Result<void> Encoder::run(const Embed& op, const StepRows& rows, Stream stream) const {
  return check_cuda(
      launch_embed(weights_.matrix(op.table), rows.tokens, rows.n_rows, rows_of(op.out), op.scale, stream),
      fmt::format("embedding {} rows", rows.n_rows));
}

EndingArgs Encoder::ending(const Project& op) const {
  EndingArgs e;
  e.n_parts = uint32_t(op.matrices.size());
  for (size_t i = 0; i < op.matrices.size(); ++i) {
    e.rows[i] = op.matrices[i].rows;
    if (op.biases[i]) e.bias[i] = weights_.vector(*op.biases[i]);
  }
  if (const auto* s = std::get_if<Store>(&op.ending)) {
    e.kind = EndingKind::kStore;
    e.scale = s->scale;
    e.out_scale = s->out_scale;
    e.norm = weights_.norm(s->norm);
    e.norm_width = s->norm_width;
    if (s->add) e.add = rows_of(*s->add);
    for (size_t i = 0; i < s->outs.size(); ++i) e.out[i] = rows_of(s->outs[i]);
  } else if (const auto* g = std::get_if<Gate>(&op.ending)) {
    e.kind = g->operand ? EndingKind::kGateOperand : EndingKind::kGate;
    e.activation = g->activation;
    if (g->operand) e.add = rows_of(*g->operand);
    e.out[0] = rows_of(g->out);
  } else {
    const auto& r = std::get<Residual>(op.ending);
    e.kind = EndingKind::kResidual;
    e.scale = r.branch_scale;
    e.out_scale = r.residual_scale;
    e.norm = weights_.norm(r.post_norm);
    e.out[0] = rows_of(r.x);
  }
  return e;
}

Result<void> Encoder::run(const Project& op, const Step& step, const StepRows& rows, Stream stream) const {
  const Product product{rows_of(op.in), op.in.width, weights_.norm(op.input_norm), op.matrices, ending(op)};
  HC_TRY(multiply_generated(product, rows.generated, mat_vec_path(program_, step, weights_.packed()), stream));
  return multiply_prompt(product, rows.prompt, stream);
}

Result<void> Encoder::run(const Logits& op, const Step& step, const StepRows& rows, float* logits,
                          Stream stream) const {
  Product product{rows_of(op.in), op.in.width, weights_.norm(op.norm), {op.table}, {}};
  product.ending.kind = EndingKind::kLogits;
  product.ending.n_parts = 1;
  product.ending.rows[0] = op.table.rows;
  product.ending.scale = op.scale;
  product.ending.softcap = op.softcap;
  product.ending.out[0] = {logits, op.table.rows};
  HC_TRY(multiply_generated(product, rows.generated_logits, mat_vec_path(program_, step, weights_.packed()), stream));
  return multiply_prompt(product, rows.prompt_logits, stream);
}

Result<void> Encoder::multiply_generated(const Product& product, const RowList& rows, MatVecPath path,
                                         Stream stream) const {
  if (rows.n == 0) return {};
  const uint32_t cols = product.width;
  const Rows in = product.in;
  const auto mat_vec_args = [&](const EndingArgs& ending) {
    MatVecArgs a;
    a.in = in;
    a.cols = cols;
    a.input_norm = product.norm;
    a.ending = ending;
    a.rows = rows;
    a.n_blocks = device_.multiprocessors;
    return a;
  };
  if (path == MatVecPath::kFused) {
    const std::vector<Matrix>& matrices = product.matrices;
    for (size_t first = 0, end; first < matrices.size(); first = end) {
      end = end_of_run(program_, matrices, first);
      MatVecArgs a = mat_vec_args(part_of(product.ending, first, uint32_t(end - first)));
      a.format = program_.weight(matrices[first]).format;
      for (size_t i = first; i < end; ++i) a.tiles[i - first] = weights_.tiles(matrices[i]);
      HC_TRY(check_cuda(launch_mat_vec(a, stream), fmt::format("products of {} rows", rows.n)));
    }
    return {};
  }
  if (floats_alike(program_, weights_.packed(), product.matrices)) return multiply_floats(product, rows, stream);
  bool prepared = false;
  uint32_t column = 0;
  for (const Matrix& m : product.matrices) {
    const DeviceMatrix matrix = weights_.matrix(m);
    const Rows products{memory_.as<float>(places_.products) + column, places_.product_stride};
    column += m.rows;
    if (matrix.packed && !is_packed_float(matrix.format)) {
      EndingArgs to_memory;
      to_memory.n_parts = 1;
      to_memory.rows[0] = m.rows;
      to_memory.out[0] = products;
      MatVecArgs a = mat_vec_args(to_memory);
      a.rows.dest = nullptr;  // products lie in the order of the list
      a.format = matrix.format;
      a.tiles[0] = weights_.tiles(m);
      HC_TRY(check_cuda(launch_mat_vec(a, stream), fmt::format("products of {} rows", rows.n)));
      continue;
    }
    float* x = memory_.as<float>(places_.plain_x);
    if (!prepared)
      HC_TRY(check_cuda(launch_prepare_input(in, cols, product.norm, rows, x, nullptr, nullptr, 0, stream),
                        "norming the input"));
    prepared = true;
    HC_TRY(check_cuda(launch_plain_mat_vec(matrix, x, rows.n, products, stream),
                      fmt::format("products of {} rows", rows.n)));
  }
  return check_cuda(
      launch_ending(product.ending, {memory_.as<float>(places_.products), places_.product_stride}, rows, stream),
      "ending products");
}

// The normed input lies in memory of its own, so that outputs may be written over the input at once.
Result<void> Encoder::multiply_floats(const Product& product, const RowList& rows, Stream stream) const {
  FloatMatVecArgs a;
  auto* x = memory_.as<float>(places_.plain_x);
  const Rows products{memory_.as<float>(places_.products), places_.product_stride};
  HC_TRY(check_cuda(launch_prepare_input(product.in, product.width, product.norm, rows, x, nullptr, nullptr, 0, stream),
                    "norming the input"));
  const bool ends = !product.ending.norm.present;
  a.x = x;
  a.rows = rows;
  a.n_multiprocessors = device_.multiprocessors;
  a.ending = product.ending;
  if (!ends) {
    a.ending = {};
    a.ending.n_parts = product.ending.n_parts;
    a.rows.dest = nullptr;  // products lie in the order of the list
  }
  uint32_t column = 0;
  for (size_t i = 0; i < product.matrices.size(); ++i) {
    a.parts[i] = weights_.matrix(product.matrices[i]);
    if (ends) continue;
    a.ending.rows[i] = product.matrices[i].rows;
    a.ending.out[i] = {products.data + column, products.stride};
    column += product.matrices[i].rows;
  }
  HC_TRY(check_cuda(launch_float_mat_vec(a, stream), fmt::format("products of {} rows", rows.n)));
  return ends ? Result<void>() : check_cuda(launch_ending(product.ending, products, rows, stream), "ending products");
}

Result<void> Encoder::multiply_prompt(const Product& product, const RowList& rows, Stream stream) const {
  if (rows.n == 0) return {};
  return prompts_ != PromptPath::kSplit ? multiply_prompt_in_halves(product, rows, stream)
                                        : multiply_prompt_split(product, rows, stream);
}

// Rows of a matrix that is not unpacked in registers, in slabs of half tiles. args.ending: of this matrix.
Result<void> Encoder::multiply_half_tiles(HalfGemmArgs args, const Matrix& matrix, Stream stream) const {
  auto* tiles = memory_.as<uint8_t>(places_.half_tiles);
  auto* exponents = memory_.as<int8_t>(places_.half_exponents);
  args.parts[0] = {tiles, exponents, quant::Format::kF16};
  const uint64_t tile_row = uint64_t{args.k_tiles} * kTileCols * kTileRows;
  const auto slab_rows =
      uint32_t(std::min<uint64_t>(places_.slab_elements / tile_row, UINT32_MAX / kTileRows)) * kTileRows;
  for (uint32_t done = 0; done < matrix.rows; done += slab_rows) {
    DeviceMatrix part = weights_.matrix(matrix);
    part.first_row += done;
    part.rows = std::min(matrix.rows - done, slab_rows);
    HC_TRY(check_cuda(
        launch_half_tiles(part, weights_.exponents(matrix) + done, 1, args.two_halves, tiles, exponents, stream),
        "making half tiles"));
    args.ending.rows[0] = part.rows;
    HC_TRY(check_cuda(launch_half_gemm(args, stream),
                      fmt::format("a product of {} x {} x {}", args.rows.n, part.rows, part.cols)));
    args.ending.out[0].data += part.rows;
    if (args.ending.bias[0] != nullptr) args.ending.bias[0] += part.rows;
    if (args.ending.add.data != nullptr) args.ending.add.data += part.rows;
  }
  return {};
}

Result<void> Encoder::multiply_prompt_in_halves(const Product& product, const RowList& rows, Stream stream) const {
  HalfGemmArgs a;
  a.k_tiles = ceil_div(product.width, kTileCols);
  a.x = memory_.as<uint16_t>(places_.x_half);
  a.x_scales = memory_.as<float>(places_.x_scales);
  a.n_arranged = round_up(rows.n, kArrangedRows);
  a.rows = rows;
  a.two_halves = prompts_ == PromptPath::kTwoHalves;
  a.n_multiprocessors = device_.multiprocessors;
  HC_TRY(check_cuda(
      launch_arrange_input(product.in, product.width, product.norm, rows, a.n_arranged, a.two_halves,
                           memory_.as<uint16_t>(places_.x_half), memory_.as<float>(places_.x_scales), stream),
      "arranging the input"));

  const std::vector<Matrix>& matrices = product.matrices;
  const auto direct = [&](const Matrix& m) { return unpacked_in_registers(program_, weights_.packed(), m); };
  const auto format = [&](size_t i) { return program_.weight(matrices[i]).format; };
  EndingArgs ending = product.ending;
  const bool pair = ending.kind == EndingKind::kGate;
  // A whole row for its norm, or both of a pair, must come together: then products go to memory first.
  const bool apart =
      ending.norm.present || (pair && !(direct(matrices[0]) && direct(matrices[1]) && format(0) == format(1)));
  const Rows products{memory_.as<float>(places_.products), places_.product_stride};
  if (apart) {
    ending = {};
    a.rows.dest = nullptr;
    uint32_t column = 0;
    for (const Matrix& m : matrices) {
      ending.rows[ending.n_parts] = m.rows;
      ending.out[ending.n_parts++] = {products.data + column, products.stride};
      column += m.rows;
    }
  }
  for (size_t first = 0, end; first < matrices.size(); first = end) {
    for (end = first; end < matrices.size() && direct(matrices[end]); ++end)
      a.parts[end - first] = {weights_.tiles(matrices[end]), weights_.exponents(matrices[end]), format(end)};
    if (end == first) {
      a.ending = part_of(ending, first, 1);
      HC_TRY(multiply_half_tiles(a, matrices[end++], stream));
      continue;
    }
    a.ending = part_of(ending, first, uint32_t(end - first));
    HC_TRY(check_cuda(launch_half_gemm(a, stream), fmt::format("a product of {} rows", rows.n)));
  }
  if (!apart) return {};
  return check_cuda(launch_ending(product.ending, products, rows, stream), "ending products");
}

Result<void> Encoder::multiply_prompt_split(const Product& product, const RowList& rows, Stream stream) const {
  const uint32_t depth = round_up(product.width, kGemmDepth);
  auto *x_high = memory_.as<uint16_t>(places_.x_high), *x_low = memory_.as<uint16_t>(places_.x_low);
  auto *w_high = memory_.as<uint16_t>(places_.w_high), *w_low = memory_.as<uint16_t>(places_.w_low);
  HC_TRY(check_cuda(
      launch_prepare_input(product.in, product.width, product.norm, rows, nullptr, x_high, x_low, depth, stream),
      "norming the input"));
  // Weights are split in slabs of whole rows, of one matrix or several, and each slab is one product.
  const auto slab_rows = uint32_t(std::min<uint64_t>(places_.slab_elements / depth, UINT32_MAX));
  uint32_t column = 0, filled = 0;
  const auto flush = [&]() -> Result<void> {
    if (filled == 0) return {};
    const Rows products{memory_.as<float>(places_.products) + column, places_.product_stride};
    HC_TRY(check_cuda(launch_gemm(x_high, x_low, rows.n, w_high, w_low, filled, depth, products, stream),
                      fmt::format("a product of {} x {} x {}", rows.n, filled, depth)));
    column += filled;
    filled = 0;
    return {};
  };
  for (const Matrix& m : product.matrices) {
    for (uint32_t done = 0; done < m.rows;) {
      if (filled == slab_rows) HC_TRY(flush());
      DeviceMatrix part = weights_.matrix(m);
      part.first_row += done;
      part.rows = std::min(m.rows - done, slab_rows - filled);
      const uint64_t at = uint64_t{filled} * depth;
      HC_TRY(check_cuda(launch_split_weights(part, w_high + at, w_low + at, depth, stream), "splitting weights"));
      filled += part.rows;
      done += part.rows;
    }
  }
  HC_TRY(flush());
  return check_cuda(
      launch_ending(product.ending, {memory_.as<float>(places_.products), places_.product_stride}, rows, stream),
      "ending products");
}

Result<void> Encoder::run(const Attend& op, const StepRows& rows, const std::vector<const float*>& ropes,
                          Stream stream) const {
  AttendArgs a;
  a.cache = cache_.view(program_.cache(op));
  a.q = rows_of(op.q);
  a.appends = op.k.has_value();
  a.v_is_k = op.k && !op.v;
  if (op.k) a.k = rows_of(*op.k);
  if (op.v) a.v = rows_of(*op.v);
  a.out = rows_of(op.out);
  a.output_gate = op.output_gate;
  a.norm_whole = op.norm_whole_projection;
  a.q_norm = weights_.norm(op.q_norm);
  a.k_norm = weights_.norm(op.k_norm);
  a.v_norm = weights_.norm(op.v_norm);
  a.n_heads = op.n_heads;
  if (op.rope) {
    const Rope& rope = program_.ropes[*op.rope];
    a.rope = ropes[*op.rope];
    a.interleaved = rope.interleaved;
    a.n_pairs = uint32_t(rope.inverse_frequency.size());
    a.pair_distance = rope.pair_distance;
  }
  a.window = op.window;
  a.scale = op.scale;
  a.softcap = op.softcap;
  if (op.temperature) a.temperature = *op.temperature;
  if (op.sinks) a.sinks = weights_.vector(*op.sinks);
  a.positions = rows.positions;
  a.table_start = rows.table_start;
  a.tables = rows.tables;
  a.n_pools = uint32_t(program_.pools.size());
  a.pool = program_.cache(op).pool;
  a.queries = memory_.as<float>(places_.queries);
  a.partials = memory_.as<float>(places_.partials);
  a.n_rows = rows.n_rows;
  // Of steps with one role, as the executor makes them.
  const bool tiles = rows.prompt.n == rows.n_rows && attend_tile_bytes(a) <= device_.shared_bytes;
  if (tiles) a.query_scales = memory_.as<float>(places_.query_scales);
  a.n_chunks = ceil_div(rows.n_positions, tiles ? kAttendSpan : kAttentionChunk);
  a.prepares = !tiles && rows.n_rows == 1;  // nobody attends to what another block appends
  if (!a.prepares)
    HC_TRY(check_cuda(launch_attend_prepare(a, stream), fmt::format("preparing attention of {} rows", rows.n_rows)));

  const uint64_t row_floats = uint64_t{a.n_heads} * a.n_chunks * (a.cache.value_dim + 2);
  const auto together = uint32_t(std::clamp<uint64_t>(places_.partial_floats / row_floats, 1, rows.n_rows));
  for (a.first_row = 0; a.first_row < rows.n_rows; a.first_row += together) {
    a.n_rows = std::min(together, rows.n_rows - a.first_row);
    HC_TRY(check_cuda(tiles ? launch_attend_tiles(a, stream) : launch_attend(a, stream),
                      fmt::format("attention of {} rows over {} positions", a.n_rows, rows.n_positions)));
  }
  return {};
}

}  // namespace honeycrisp::backend::cuda
