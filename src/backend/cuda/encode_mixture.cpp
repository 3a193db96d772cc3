// A mixture of experts: its scratch memory, its plan and its launches. Pairs of a row and one of its experts are
// multiplied each by itself (few generated rows, and formats without tiles), four of an expert together (more generated
// rows), or sorted by expert as a prompt's product in halves. Shapes of launches depend on the number of rows alone, so
// that graphs serve any choice of experts.
#include "backend/cuda/encoder.h"
#include "backend/cuda/mixture_args.h"
#include "base/checked.h"

#include <algorithm>

namespace honeycrisp::backend::cuda {

using namespace program;

namespace {

constexpr uint32_t kFewSlots = 64, kManySlots = 128;  // of an expert's tile: what the grouped product has kernels for
constexpr uint32_t kRowsAlone = 2;                    // generated rows whose pairs are multiplied each by itself

template <class Visit>
void for_each_mixture(const Program& program, const Visit& visit) {
  for (const Step& step : program.steps)
    if (const auto* m = std::get_if<MixExperts>(&step.op)) visit(*m);
}

EndingArgs ending_of(EndingKind kind, const std::vector<Matrix>& matrices) {
  EndingArgs e;
  e.kind = kind;
  e.n_parts = uint32_t(matrices.size());
  for (size_t i = 0; i < matrices.size(); ++i) e.rows[i] = matrices[i].rows;
  return e;
}

// Blocks that share a pair's rows: the multiprocessors divided among the pairs of one row.
uint32_t blocks_of_pair(uint32_t units, uint32_t top_k, uint32_t multiprocessors) {
  return std::clamp(multiprocessors / top_k, 1u, std::max(units, 1u));
}

uint32_t tile_slots(uint32_t n_pairs, uint32_t n_experts) {
  return n_pairs > uint64_t{n_experts} * kFewSlots ? kManySlots : kFewSlots;
}

// Every expert may leave a tile with a single pair.
uint32_t most_tiles(uint32_t n_pairs, uint32_t n_experts, uint32_t slots) {
  return uint32_t((n_pairs + uint64_t{std::min(n_pairs, n_experts)} * (slots - 1)) / slots);
}

// Whether gate and up choose the experts of few rows themselves.
bool chooses_in_place(const Program& program, const MixExperts& op, const std::vector<bool>& packed) {
  return op.router.matrix.rows <= kMostChosenInPlace && packed_alike(program, packed, {op.gate, op.up});
}
// Whether the last product of few rows adds the experts up itself.
bool adds_in_place(const Program& program, const MixExperts& op, const std::vector<bool>& packed) {
  const uint64_t tiles = uint64_t{op.router.top_k} * ceil_div(program.weight(op.down).cols, kTileCols);
  return packed[op.down.weight] && tiles <= kMostSummedTiles && !op.branch_norm && !op.ending.post_norm && !op.add;
}

}  // namespace

uint64_t most_slots(const Program& program, uint64_t max_rows) {
  uint64_t most = 0;
  for_each_mixture(program, [&](const MixExperts& m) {
    const auto pairs = uint32_t(std::min<uint64_t>(max_rows * m.router.top_k, UINT32_MAX));
    const uint32_t slots = tile_slots(pairs, m.router.matrix.rows);
    most = std::max(most, uint64_t{most_tiles(pairs, m.router.matrix.rows, slots)} * slots);
  });
  return most;
}

void place_mixtures(const Program& program, uint64_t max_rows, StepMemory& memory) {
  uint64_t scores = 0, top_k = 0, hidden = 0, products = 0, shared_hidden = 0, shared_out = 0, tiles = 0;
  for_each_mixture(program, [&](const MixExperts& m) {
    scores = std::max<uint64_t>(scores, uint64_t{m.router.matrix.rows} + 1);
    top_k = std::max<uint64_t>(top_k, m.router.top_k);
    hidden = std::max<uint64_t>(hidden, m.gate.rows);
    products = std::max<uint64_t>({products, m.down.rows, uint64_t{2} * m.gate.rows});
    const auto pairs = uint32_t(std::min<uint64_t>(max_rows * m.router.top_k, UINT32_MAX));
    tiles = std::max<uint64_t>(tiles, most_tiles(pairs, m.router.matrix.rows, kMatVecRows));
    if (!m.shared) return;
    shared_hidden = std::max<uint64_t>(shared_hidden, m.shared->gate.rows);
    shared_out = std::max<uint64_t>(shared_out, m.shared->down.rows);
  });
  Layout& layout = memory.layout;
  memory.scores = layout.add(max_rows * scores, sizeof(float));
  memory.experts = layout.add(max_rows * top_k, sizeof(uint32_t));
  memory.expert_weights = layout.add(max_rows * top_k, sizeof(float));
  memory.slots = layout.add(most_slots(program, max_rows), sizeof(uint32_t));
  memory.tiles = layout.add(tiles, sizeof(ExpertTile));
  memory.hidden = layout.add(max_rows * top_k * hidden, sizeof(float));
  memory.pair_products = layout.add(max_rows * top_k * products, sizeof(float));
  memory.shared_hidden = layout.add(max_rows * shared_hidden, sizeof(float));
  memory.shared_out = layout.add(max_rows * shared_out, sizeof(float));
  memory.pair_stride = uint32_t(products);
}

StepPlan plan_mixture(const Program& program, const MixExperts& op, const std::vector<bool>& packed) {
  StepPlan plan;
  std::string formats, unpacked;
  const auto add_name = [](std::string& names, std::string_view name, const char* separator) {
    if (names.find(name) == std::string::npos) names += (names.empty() ? "" : separator) + std::string(name);
  };
  for (const Matrix& m : {op.gate, op.up, op.down}) {
    std::string name(quant::to_string(program.weight(m).format));
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return char(std::tolower(c)); });
    add_name(formats, name, "+");
    if (!packed[m.weight]) add_name(unpacked, name, ", ");
  }
  plan.kernel = fmt::format("mix_experts.{}.cuda.{}", formats, unpacked.empty() ? "mma" : "simt");
  const bool alike = packed_alike(program, packed, {op.gate, op.up});
  const bool prepares = !packed[op.gate.weight] || !packed[op.up.weight];
  plan.launches = 2;  // scores, down
  plan.launches += chooses_in_place(program, op, packed) ? 0 : 1;
  plan.launches += alike ? 1 : 3 + (prepares ? 1 : 0);  // gate and up
  plan.launches += adds_in_place(program, op, packed) ? 0 : 1;
  if (op.shared) {
    const SharedExpert& s = *op.shared;
    const bool pair = packed_alike(program, packed, {s.gate, s.up});
    plan.launches += pair ? 1 : 3 + (packed[s.gate.weight] && packed[s.up.weight] ? 0 : 1);
    plan.launches += packed[s.down.weight] ? 1 : 3;
  }
  if (!unpacked.empty())
    plan.why_not_fast = fmt::format("{}: no packed tiles (or experts of odd sizes); plain products in f32", unpacked);
  else if (!alike)
    plan.why_not_fast = "gate and up have different formats: their unit is a launch of its own";
  return plan;
}

Result<void> Encoder::run(const MixExperts& op, const StepRows& rows, Stream stream) const {
  HC_TRY(mix(op, rows.generated, false, stream));
  return mix(op, rows.prompt, true, stream);
}

Result<void> Encoder::mix(const MixExperts& op, const RowList& rows, bool prompt, Stream stream) const {
  if (rows.n == 0) return {};
  const auto optional = [&](const std::optional<VectorId>& v) { return v ? weights_.vector(*v) : nullptr; };
  RouteArgs r;
  r.in = rows_of(op.in);
  r.cols = op.in.width;
  r.rows = rows;
  r.router_norm = weights_.norm(op.router.norm);
  r.input_norm = weights_.norm(op.input_norm);
  r.matrix = weights_.router(op.router.matrix);
  r.n_experts = op.router.matrix.rows;
  if (op.shared && op.shared->scale) r.shared_scale = weights_.router(*op.shared->scale);
  r.bias = optional(op.router.bias);
  r.scores = memory_.as<float>(places_.scores);
  HC_TRY(check_cuda(launch_route(r, stream), fmt::format("scores of experts for {} rows", rows.n)));

  ChoiceArgs choice;
  choice.scores = r.scores;
  choice.n_experts = r.n_experts;
  choice.top_k = op.router.top_k;
  choice.routing = op.router.routing;
  choice.expert_scale = optional(op.router.expert_scale);
  choice.experts = memory_.as<uint32_t>(places_.experts);
  choice.weights = memory_.as<float>(places_.expert_weights);

  CombineArgs c;
  c.rows = rows;
  c.cols = op.down.rows;
  c.top_k = op.router.top_k;
  c.n_experts = r.n_experts;
  c.products = {memory_.as<float>(places_.pair_products), places_.pair_stride};
  c.experts = choice.experts;
  c.weights = choice.weights;
  c.bias = optional(op.down_bias);
  if (op.shared) c.shared = {memory_.as<float>(places_.shared_out), op.shared->down.rows};
  if (r.shared_scale != nullptr) c.shared_score = r.scores + r.n_experts;
  c.branch_norm = weights_.norm(op.branch_norm);
  c.post_norm = weights_.norm(op.ending.post_norm);
  if (op.add) c.add = rows_of(*op.add);
  c.x = rows_of(op.ending.x);
  c.branch_scale = op.ending.branch_scale;
  c.residual_scale = op.ending.residual_scale;

  if (op.shared) HC_TRY(multiply_shared(*op.shared, op, rows, prompt, stream));
  if (!prompt || prompts_ == PromptPath::kSplit) return mix_pairs(op, choice, c, stream);
  const Pairs pairs{choice.experts, rows.n * op.router.top_k, op.router.top_k};
  HC_TRY(check_cuda(launch_choose(choice, rows.n, stream), fmt::format("choosing experts for {} rows", rows.n)));
  HC_TRY(multiply_pairs_in_halves(op, rows, pairs, stream));
  return check_cuda(launch_combine(c, stream), "adding the experts");
}

Result<void> Encoder::gate_pairs(const MixExperts& op, const Pairs& pairs, Stream stream) const {
  GatePairsArgs g{op.activation, pairs, op.gate.rows, {memory_.as<float>(places_.pair_products), places_.pair_stride}};
  if (op.gate_bias) g.bias[0] = weights_.vector(*op.gate_bias);
  if (op.up_bias) g.bias[1] = weights_.vector(*op.up_bias);
  g.hidden = memory_.as<float>(places_.hidden);
  return check_cuda(launch_gate_pairs(g, stream), "gating the experts' units");
}

// The sorted pairs of a step's rows: where they go, and how many tiles there may be.
SortedPairs Encoder::place_sorted(uint32_t n_pairs, uint32_t n_experts, uint32_t slots) const {
  SortedPairs sorted;
  sorted.slots = memory_.as<uint32_t>(places_.slots);
  sorted.tiles = memory_.as<ExpertTile>(places_.tiles);
  sorted.tile_slots = slots;
  sorted.n_tiles = most_tiles(n_pairs, n_experts, slots);
  return sorted;
}

// Generated rows: pairs of a row and an expert, each by itself while experts rarely meet, else those of an expert
// together.
Result<void> Encoder::mix_pairs(const MixExperts& op, const ChoiceArgs& choice, const CombineArgs& combine,
                                Stream stream) const {
  const std::vector<bool>& packed = weights_.packed();
  const RowList& rows = combine.rows;
  const Pairs pairs{choice.experts, rows.n * op.router.top_k, op.router.top_k};
  const bool alike = packed_alike(program_, packed, {op.gate, op.up});
  const bool together = rows.n > kRowsAlone;
  const bool in_place = !together && chooses_in_place(program_, op, packed);
  if (!in_place)
    HC_TRY(check_cuda(launch_choose(choice, rows.n, stream), fmt::format("choosing experts for {} rows", rows.n)));
  SortedPairs sorted;
  if (together && (packed[op.gate.weight] || packed[op.up.weight] || packed[op.down.weight])) {
    sorted = place_sorted(pairs.n, choice.n_experts, kMatVecRows);
    HC_TRY(check_cuda(launch_sort_pairs(pairs, choice.n_experts, sorted, stream),
                      fmt::format("sorting {} pairs", pairs.n)));
  }
  const auto args_of = [&](const std::vector<Matrix>& matrices, Rows in, uint32_t cols, const NormArgs& norm,
                           uint32_t per_row, const EndingArgs& ending) {
    ExpertMatVecArgs args;
    MatVecArgs& a = args.product;
    a.format = program_.weight(matrices[0]).format;
    a.in = in;
    a.cols = cols;
    a.input_norm = norm;
    for (size_t i = 0; i < matrices.size(); ++i) {
      a.tiles[i] = weights_.tiles(matrices[i]);
      a.slice_bytes[i] = weights_.slice_bytes(matrices[i]);
    }
    a.ending = ending;
    a.rows = rows;
    a.pairs = {pairs.experts, pairs.n, per_row};
    a.n_blocks = blocks_of_pair(ceil_div(matrices[0].rows, kTileRows), op.router.top_k, device_.multiprocessors);
    args.sorted = sorted;
    return args;
  };
  const auto multiply = [&](const ExpertMatVecArgs& args) {
    return check_cuda(launch_expert_mat_vec(args, stream),
                      fmt::format("products of {} pairs of rows and experts", pairs.n));
  };
  const auto multiply_plain = [&](const Matrix& m, const float* x, uint32_t per_row, Rows out) {
    return check_cuda(
        launch_plain_expert_mat_vec(weights_.matrix(m), x, {pairs.experts, pairs.n, per_row}, out, stream),
        fmt::format("products of {} pairs of rows and experts", pairs.n));
  };
  const Rows in = rows_of(op.in), hidden{memory_.as<float>(places_.hidden), op.gate.rows};
  const Rows products = combine.products;
  const NormArgs norm = weights_.norm(op.input_norm);
  if (alike) {
    EndingArgs ending = ending_of(EndingKind::kGate, {op.gate, op.up});
    ending.activation = op.activation;
    if (op.gate_bias) ending.bias[0] = weights_.vector(*op.gate_bias);
    if (op.up_bias) ending.bias[1] = weights_.vector(*op.up_bias);
    ending.out[0] = hidden;
    ExpertMatVecArgs args = args_of({op.gate, op.up}, in, op.in.width, norm, pairs.per_row, ending);
    if (in_place) args.choice = choice;
    HC_TRY(multiply(args));
  } else {
    float* x = memory_.as<float>(places_.plain_x);
    if (!packed[op.gate.weight] || !packed[op.up.weight])
      HC_TRY(check_cuda(launch_prepare_input(in, op.in.width, norm, rows, x, nullptr, nullptr, 0, stream),
                        "norming the input"));
    uint32_t column = 0;
    for (const Matrix& m : {op.gate, op.up}) {
      EndingArgs ending = ending_of(EndingKind::kProduct, {m});
      ending.out[0] = {products.data + column, products.stride};
      column += m.rows;
      HC_TRY(packed[m.weight] ? multiply(args_of({m}, in, op.in.width, norm, pairs.per_row, ending))
                              : multiply_plain(m, x, pairs.per_row, ending.out[0]));
    }
    HC_TRY(gate_pairs(op, pairs, stream));
  }
  if (!together && adds_in_place(program_, op, packed)) {
    EndingArgs ending = ending_of(EndingKind::kResidual, {op.down});
    ending.scale = combine.branch_scale;
    ending.out_scale = combine.residual_scale;
    ending.out[0] = combine.x;
    ExpertMatVecArgs args = args_of({op.down}, hidden, op.gate.rows, {}, 0, ending);
    args.product.n_blocks = device_.multiprocessors;
    args.sum = combine;
    return multiply(args);
  }
  EndingArgs ending = ending_of(EndingKind::kProduct, {op.down});
  ending.out[0] = products;
  HC_TRY(packed[op.down.weight] ? multiply(args_of({op.down}, hidden, op.gate.rows, {}, 0, ending))
                                : multiply_plain(op.down, hidden.data, 0, products));
  return check_cuda(launch_combine(combine, stream), "adding the experts");
}

// args.ending: of these matrices, which are unpacked in registers, or of one that is not: its experts are made half
// tiles as many at a time as there is memory for.
Result<void> Encoder::multiply_sorted(HalfGemmArgs args, const std::vector<Matrix>& matrices, Stream stream) const {
  const auto launch = [&] {
    return check_cuda(launch_half_gemm(args, stream),
                      fmt::format("a product of {} tiles of experts", args.pairs.n_tiles));
  };
  const uint32_t n_experts = args.n_experts;
  if (unpacked_in_registers(program_, weights_.packed(), matrices[0])) {
    for (size_t i = 0; i < matrices.size(); ++i)
      args.parts[i] = {weights_.tiles(matrices[i]), weights_.exponents(matrices[i]),
                       program_.weight(matrices[i]).format, weights_.slice_bytes(matrices[i]),
                       program_.weight(matrices[i]).rows};
    return launch();
  }
  const Matrix& matrix = matrices[0];
  auto* tiles = memory_.as<uint8_t>(places_.half_tiles);
  auto* exponents = memory_.as<int8_t>(places_.half_exponents);
  const uint32_t rows = round_up(matrix.rows, kTileRows);
  const uint64_t elements = uint64_t{args.k_tiles} * kTileCols * rows;
  const auto together = uint32_t(std::min<uint64_t>(places_.slab_elements / elements, n_experts));
  args.parts[0] = {tiles, exponents, quant::Format::kF16, elements * 2 * sizeof(uint16_t), rows};
  for (args.first_expert = 0; args.first_expert < n_experts; args.first_expert += together) {
    args.n_experts = std::min(together, n_experts - args.first_expert);
    DeviceMatrix part = weights_.matrix(matrix);
    const uint32_t skipped = args.first_expert * part.slice_rows;
    part.first_row += skipped;
    HC_TRY(check_cuda(
        launch_half_tiles(part, weights_.exponents(matrix) + skipped, args.n_experts, true, tiles, exponents, stream),
        "making half tiles"));
    HC_TRY(launch());
  }
  return {};
}

Result<void> Encoder::multiply_pairs_in_halves(const MixExperts& op, const RowList& rows, const Pairs& pairs,
                                               Stream stream) const {
  const uint32_t n_experts = op.router.matrix.rows;
  const SortedPairs sorted = place_sorted(pairs.n, n_experts, tile_slots(pairs.n, n_experts));
  HC_TRY(check_cuda(launch_sort_pairs(pairs, n_experts, sorted, stream), fmt::format("sorting {} pairs", pairs.n)));

  HalfGemmArgs a;
  a.x = memory_.as<uint16_t>(places_.x_half);
  a.x_scales = memory_.as<float>(places_.x_scales);
  a.n_arranged = sorted.n_tiles * sorted.tile_slots;
  a.n_multiprocessors = device_.multiprocessors;
  a.pairs = sorted;
  a.n_experts = n_experts;
  a.two_halves = true;  // the kernels of a mixture have no other form
  const auto arrange = [&](Rows in, uint32_t cols, const NormArgs& norm, uint32_t per_row) {
    a.k_tiles = ceil_div(cols, kTileCols);
    return check_cuda(launch_arrange_pairs(in, cols, norm, rows, sorted, per_row, memory_.as<uint16_t>(places_.x_half),
                                           memory_.as<float>(places_.x_scales), stream),
                      "arranging the input");
  };
  const Rows hidden{memory_.as<float>(places_.hidden), op.gate.rows};
  const Rows products{memory_.as<float>(places_.pair_products), places_.pair_stride};
  HC_TRY(arrange(rows_of(op.in), op.in.width, weights_.norm(op.input_norm), pairs.per_row));
  if (packed_alike(program_, weights_.packed(), {op.gate, op.up}) &&
      unpacked_in_registers(program_, weights_.packed(), op.gate)) {
    a.ending = ending_of(EndingKind::kGate, {op.gate, op.up});
    a.ending.activation = op.activation;
    if (op.gate_bias) a.ending.bias[0] = weights_.vector(*op.gate_bias);
    if (op.up_bias) a.ending.bias[1] = weights_.vector(*op.up_bias);
    a.ending.out[0] = hidden;
    HC_TRY(multiply_sorted(a, {op.gate, op.up}, stream));
  } else {
    uint32_t column = 0;
    for (const Matrix& m : {op.gate, op.up}) {
      a.ending = ending_of(EndingKind::kProduct, {m});
      a.ending.out[0] = {products.data + column, products.stride};
      column += m.rows;
      HC_TRY(multiply_sorted(a, {m}, stream));
    }
    HC_TRY(gate_pairs(op, pairs, stream));
  }
  HC_TRY(arrange(hidden, op.gate.rows, {}, 0));
  a.ending = ending_of(EndingKind::kProduct, {op.down});
  a.ending.out[0] = products;
  return multiply_sorted(a, {op.down}, stream);
}

Result<void> Encoder::multiply_shared(const SharedExpert& shared, const MixExperts& op, const RowList& rows,
                                      bool prompt, Stream stream) const {
  const auto multiply = [&](const Product& product) {
    if (prompt) return multiply_prompt(product, rows, stream);
    const bool fused = packed_alike(program_, weights_.packed(), product.matrices);
    return multiply_generated(product, rows, fused ? MatVecPath::kFused : MatVecPath::kEnding, stream);
  };
  const Rows hidden{memory_.as<float>(places_.shared_hidden), shared.gate.rows};
  Product gate{rows_of(op.in), op.in.width, weights_.norm(op.input_norm), {shared.gate, shared.up}, {}};
  gate.ending = ending_of(EndingKind::kGate, gate.matrices);
  gate.ending.activation = op.activation;
  gate.ending.out[0] = hidden;
  HC_TRY(multiply(gate));
  Product down{hidden, shared.gate.rows, {}, {shared.down}, ending_of(EndingKind::kStore, {shared.down})};
  down.ending.out[0] = {memory_.as<float>(places_.shared_out), shared.down.rows};
  return multiply(down);
}

}  // namespace honeycrisp::backend::cuda
