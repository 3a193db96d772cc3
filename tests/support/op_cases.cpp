#include "support/op_cases.h"

namespace honeycrisp::test_support {
namespace {

using namespace program;
using quant::Format;

// ---- Project

void stores(TinyProgram& t, Format a, Format b, Format c) {
  const uint32_t last = t.only_packed ? 59 : 64, total = 20 + 17 + last;
  const BufferId wide = t.buffer(total);
  Matrix part = t.matrix(b, 50, t.width);
  part.first_row = a == b ? 16 : 13;
  part.rows = 17;
  Store store{.outs = {{wide, 0, 20}, {wide, 20, 17}, {wide, 37, last}}};
  t.add(Project{t.all(0),
                t.norm(t.width),
                {t.matrix(a, 20, t.width), part, t.matrix(c, last, t.width)},
                {t.vector(20, -1, 1), std::nullopt, t.vector(last, -1, 1)},
                store},
        "store");
  t.residual(t.matrix(Format::kF16, t.width, total), t.all(wide), {.branch_scale = 0.3f});
}

// Without a second format the other operand is given.
void gate(TinyProgram& t, Activation activation, Format first, std::optional<Format> second) {
  const uint32_t n = t.only_packed ? 96 : 100;  // 100: no multiple of 16
  const BufferId hidden = t.buffer(n);
  Gate g{activation, std::nullopt, t.all(hidden)};
  std::vector<Matrix> matrices = {t.matrix(first, n, t.width)};
  if (second) {
    matrices.push_back(t.matrix(*second, n, t.width));
  } else {
    const BufferId operand = t.buffer(n);
    t.store(t.matrix(Format::kF16, n, t.width), t.all(0), t.all(operand));
    g.operand = t.all(operand);
  }
  std::vector<std::optional<VectorId>> biases(matrices.size());
  biases.back() = t.vector(n, -1, 1);
  t.add(Project{t.all(0), t.norm(t.width), matrices, biases, g}, "gate");
  t.residual(t.matrix(Format::kBF16, t.width, n), t.all(hidden), {.branch_scale = 0.1f});
}

std::vector<OpCase> project_cases() {
  return {
      {"store_of_three_matrices_of_a_format",
       [](TinyProgram& t) { stores(t, Format::kQ4_0, Format::kQ4_0, Format::kQ4_0); }},
      {"store_of_mixed_formats", [](TinyProgram& t) { stores(t, Format::kF32, Format::kQ4_0, Format::kMXFP4); }},
      {"store_with_norm_per_slice_addend_and_scales",
       [](TinyProgram& t) {
         const BufferId other = t.buffer(t.width);
         t.store(t.matrix(Format::kQ8_0, t.width, t.width), t.all(0), t.all(other));
         const Norm norm = t.norm(16);  // not among the arguments, whose order, and so whose numbers, compilers choose
         t.store(t.matrix(Format::kQ4_0, t.width, t.width), t.all(0), t.all(0),
                 Store{.scale = 0.5f, .norm = norm, .norm_width = 16, .add = t.all(other), .out_scale = 0.7f});
       }},
      {"store_over_its_input_with_norm_of_the_row",
       [](TinyProgram& t) {
         t.store(t.matrix(Format::kQ4_0, t.width, t.width), t.all(0), t.all(0),
                 Store{.scale = 3, .norm = Norm{std::nullopt, 1e-6f}});
       }},
      {"store_over_its_input_with_addend",
       [](TinyProgram& t) {
         const BufferId other = t.buffer(t.width);
         t.store(t.matrix(Format::kIQ4_NL, t.width, t.width), t.all(0), t.all(other));
         t.store(t.matrix(Format::kQ4_0, t.width, t.width), t.all(0), t.all(0),
                 Store{.scale = 0.5f, .add = t.all(other), .out_scale = 0.7f});
       }},
      {"gate_silu_of_a_format", [](TinyProgram& t) { gate(t, Activation::kSilu, Format::kQ4_0, Format::kQ4_0); }},
      {"gate_gelu_of_two_formats",
       [](TinyProgram& t) { gate(t, Activation::kGeluTanh, Format::kQ4_0, Format::kQ5_0); }},
      {"gate_gelu_with_given_operand",
       [](TinyProgram& t) { gate(t, Activation::kGeluTanh, Format::kQ8_0, std::nullopt); }},
      {"gate_clamped_swiglu",
       [](TinyProgram& t) { gate(t, Activation::kClampedSwiglu, Format::kQ4_1, Format::kQ8_0); }},
      {"residual_with_scales",
       [](TinyProgram& t) {
         const BufferId other = t.buffer(t.width);
         t.store(t.matrix(Format::kQ8_0, t.width, t.width), t.all(0), t.all(other));
         t.residual(t.matrix(Format::kQ4_0, t.width, t.width), t.all(other),
                    {.branch_scale = 0.4f, .residual_scale = 0.9f});
       }},
      {"residual_over_its_input",
       [](TinyProgram& t) { t.residual(t.matrix(Format::kQ5_1, t.width, t.width), t.all(0), {.branch_scale = 0.4f}); }},
      {"residual_with_post_norm",
       [](TinyProgram& t) {
         const Norm norm = t.norm(t.width);
         t.residual(t.matrix(Format::kQ4_0, t.width, t.width), t.all(0), {.branch_scale = 0.4f, .post_norm = norm});
       }},
      {"residual_of_an_unpacked_format",
       [](TinyProgram& t) {
         const BufferId other = t.buffer(64);
         t.store(t.matrix(Format::kQ8_0, 64, t.width), t.all(0), t.all(other));
         const Norm norm = t.norm(t.width);
         t.residual(t.matrix(Format::kNVFP4, t.width, 64), t.all(other), {.branch_scale = 0.4f, .post_norm = norm});
       }},
  };
}

// ---- Attend

void head_norms(TinyProgram& t, Attend& a, bool whole) {
  a.q_norm = t.norm(whole ? TinyProgram::kHeads * t.head_dim : t.head_dim);
  a.k_norm = t.norm(whole ? TinyProgram::kKvHeads * t.head_dim : t.head_dim);
  a.norm_whole_projection = whole;
}

std::vector<OpCase> attend_cases() {
  return {
      {"attend_grouped_queries", [](TinyProgram& t) { t.attention([](TinyProgram&, Attend&) {}); }, 600},
      {"attend_head_norms_and_half_split_rope",
       [](TinyProgram& t) {
         t.attention([](TinyProgram& tiny, Attend& a) {
           head_norms(tiny, a, false);
           a.rope = tiny.rope(false, 16, 16);
         });
       },
       80},
      {"attend_whole_norms_and_interleaved_rope",
       [](TinyProgram& t) {
         t.attention([](TinyProgram& tiny, Attend& a) {
           head_norms(tiny, a, true);
           a.rope = tiny.rope(true, 16, 0);
         });
       },
       80},
      {"attend_partial_rope_v_norm_and_v_of_k",
       [](TinyProgram& t) {
         t.attention([](TinyProgram& tiny, Attend& a) {
           a.v.reset();
           a.k_norm = tiny.norm(tiny.head_dim);
           a.v_norm = Norm{std::nullopt, 1e-6f};
           a.rope = tiny.rope(false, 5, 16);
         });
       },
       80},
      {"attend_window", [](TinyProgram& t) { t.attention([](TinyProgram&, Attend&) {}, 100); }, 600},
      {"attend_window_of_three", [](TinyProgram& t) { t.attention([](TinyProgram&, Attend&) {}, 3); }, 270},
      {"attend_softcap_and_sinks",
       [](TinyProgram& t) {
         t.attention([](TinyProgram& tiny, Attend& a) {
           a.softcap = 5;
           a.sinks = tiny.vector(TinyProgram::kHeads, -2, 4);
         });
       },
       300},
      {"attend_temperature_by_position",
       [](TinyProgram& t) {
         t.attention([](TinyProgram&, Attend& a) { a.temperature = {.beta = 0.5, .period = 10}; });
       },
       80},
      {"attend_output_gate", [](TinyProgram& t) { t.attention([](TinyProgram&, Attend& a) { a.output_gate = true; }); },
       80},
      {"attend_reading_another_layer",
       [](TinyProgram& t) {
         t.attention([](TinyProgram&, Attend&) {});
         t.attention([](TinyProgram& tiny, Attend& a) {
           tiny.program.caches.pop_back();
           a.cache = 0;
           a.k.reset();
           a.v.reset();
         });
       },
       80},
  };
}

// ---- MixExperts

struct Experts {
  uint32_t n = 4, top_k = 2, hidden = 96;
  Format router = Format::kF32, gate = Format::kQ4_0, up = Format::kQ4_0, down = Format::kQ8_0;
};

MixExperts mix_experts(TinyProgram& t, const Experts& e) {
  MixExperts m;
  m.in = t.all(0);
  m.input_norm = t.norm(t.width);
  m.router.matrix = t.matrix(e.router, e.n, t.width);
  m.router.top_k = e.top_k;
  m.gate = t.matrix(e.gate, e.hidden, t.width, e.n);
  m.up = t.matrix(e.up, e.hidden, t.width, e.n);
  m.down = t.matrix(e.down, t.width, e.hidden, e.n);
  m.ending = Residual{.x = t.all(0), .branch_scale = 0.02f};
  return m;
}

OpCase mix_experts_case(std::string name, Experts e, std::function<void(TinyProgram&, MixExperts&)> change = {},
                        uint32_t width = 96) {
  return {.name = "mix_experts_" + std::move(name),
          .add =
              [=](TinyProgram& t) {
                MixExperts m = mix_experts(t, e);
                if (change) change(t, m);
                t.add(m, "experts");
              },
          .width = width};
}

SharedExpert shared_expert(TinyProgram& t, uint32_t hidden, Format format, bool scaled) {
  SharedExpert s{t.matrix(format, hidden, t.width), t.matrix(format, hidden, t.width),
                 t.matrix(format, t.width, hidden), std::nullopt};
  if (scaled) s.scale = t.matrix(Format::kF32, 1, t.width);
  return s;
}

std::vector<OpCase> mix_experts_cases() {
  std::vector<OpCase> cases = {
      mix_experts_case("of_one", {.n = 1, .top_k = 1}),
      mix_experts_case("best_of_nine", {.n = 9, .top_k = 1}),
      mix_experts_case("all_of_five", {.n = 5, .top_k = 5}),
      mix_experts_case("more_than_a_panel", {.n = 40, .top_k = 6, .hidden = 32}),
      mix_experts_case("softmax_of_the_chosen", {.n = 7, .top_k = 3},
                       [](TinyProgram&, MixExperts& m) { m.router.routing = Routing::kTopKSoftmax; }),
      mix_experts_case(
          "odd_hidden_size_and_biases",
          {.n = 6, .top_k = 3, .hidden = 77, .gate = Format::kMXFP4, .up = Format::kQ8_0, .down = Format::kF16},
          [](TinyProgram& t, MixExperts& m) {
            m.activation = Activation::kClampedSwiglu;
            m.router.routing = Routing::kTopKSoftmax;
            m.router.bias = t.vector(6, -1, 1);
            m.gate_bias = t.vector(6 * 77, -1, 1);
            m.up_bias = t.vector(6 * 77, -1, 1);
            m.down_bias = t.vector(uint64_t{6} * t.width, -1, 1);
          }),
      mix_experts_case("gate_and_up_in_one_tensor", {.n = 5, .top_k = 2, .hidden = 64},
                       [](TinyProgram& t, MixExperts& m) {
                         m.gate = m.up = t.matrix(Format::kQ5_0, 128, t.width, 5);
                         m.gate.rows = m.up.rows = m.up.first_row = 64;
                       }),
      mix_experts_case("router_with_norm_and_scales", {.n = 8, .top_k = 3},
                       [](TinyProgram& t, MixExperts& m) {
                         m.activation = Activation::kGeluTanh;
                         m.router.norm = t.norm(t.width);
                         m.router.expert_scale = t.vector(8);
                       }),
      mix_experts_case("quantized_router", {.n = 8, .top_k = 2, .router = Format::kQ8_0}),
      mix_experts_case("shared_expert", {.n = 4, .top_k = 2},
                       [](TinyProgram& t, MixExperts& m) { m.shared = shared_expert(t, 64, Format::kQ4_1, false); }),
      mix_experts_case("scaled_shared_expert_of_another_format", {.n = 4, .top_k = 3},
                       [](TinyProgram& t, MixExperts& m) {
                         m.router.norm = t.norm(t.width);
                         m.shared = shared_expert(t, 37, Format::kF16, true);
                         m.shared->gate = t.matrix(Format::kQ5_1, 37, t.width);
                       }),
      mix_experts_case("norms_dense_branch_and_scales", {.n = 6, .top_k = 2},
                       [](TinyProgram& t, MixExperts& m) {
                         const BufferId dense = t.buffer(t.width);
                         t.store(t.matrix(Format::kQ8_0, t.width, t.width), t.all(0), t.all(dense));
                         m.add = t.all(dense);
                         m.branch_norm = t.norm(t.width);
                         m.ending = Residual{t.all(0), 0.4f, t.norm(t.width), 0.9f};
                       }),
      mix_experts_case("dense_branch_without_norms", {.n = 3, .top_k = 2},
                       [](TinyProgram& t, MixExperts& m) {
                         const BufferId dense = t.buffer(t.width);
                         t.store(t.matrix(Format::kQ8_0, t.width, t.width), t.all(0), t.all(dense));
                         m.add = t.all(dense);
                         m.ending.residual_scale = 0.9f;
                       }),
      mix_experts_case("input_without_norm_added_to_itself", {.n = 3, .top_k = 2},
                       [](TinyProgram&, MixExperts& m) {
                         m.input_norm.reset();
                         m.add = m.in;
                       }),
  };
  for (const quant::FormatInfo& f : quant::kFormats) {
    if (is_integer_type(f.format)) continue;
    OpCase c = mix_experts_case(std::string("of_") + std::string(quant::to_string(f.format)),
                                {.n = 3, .top_k = 2, .hidden = 256, .gate = f.format, .up = f.format, .down = f.format},
                                {}, 256);
    c.positions = 5;
    cases.push_back(std::move(c));
  }
  return cases;
}

// ---- DeltaNet

struct Heads {
  uint32_t keys = 2, values = 4, key_dim = 16, value_dim = 32, taps = 4;
  uint32_t gate_run = 4, gate_stride = 4;
  bool grouped = false;
};

void delta_net(TinyProgram& t, const Heads& h) {
  const uint32_t channels = 2 * h.keys * h.key_dim + h.values * h.value_dim, values = h.values * h.value_dim;
  const uint32_t gates = (h.values / h.gate_run - 1) * h.gate_stride + h.gate_run;
  t.program.states.push_back({h.values, h.key_dim, h.value_dim, channels, h.taps});
  const BufferId in = t.buffer(channels), gate = t.buffer(values), out = t.buffer(values);
  const BufferId scalars = t.buffer(gates + h.gate_run);  // beta's columns lie between alpha's where there is room
  DeltaNet d;
  d.state = StateId(t.program.states.size() - 1);
  d.n_key_heads = h.keys;
  d.grouped_heads = h.grouped;
  d.qkv = t.all(in);
  d.z = t.all(gate);
  d.alpha = {scalars, 0, gates};
  d.beta = {scalars, h.gate_run, gates};
  d.gate_run = h.gate_run;
  d.gate_stride = h.gate_stride;
  d.conv = t.vector(uint64_t{channels} * h.taps, -0.6f, 0.6f);
  d.a = t.vector(h.values, -1.5f, -0.01f);
  d.dt_bias = t.vector(h.values, -1, 1);
  d.norm = t.norm(h.value_dim);
  d.out = t.all(out);
  t.store(t.matrix(Format::kQ8_0, channels, t.width), t.all(0), d.qkv, {.scale = 0.1f});
  t.store(t.matrix(Format::kQ4_0, values, t.width), t.all(0), d.z, {.scale = 0.1f});
  t.store(t.matrix(Format::kF32, gates + h.gate_run, t.width), t.all(0), t.all(scalars), {.scale = 0.3f});
  t.add(d, "delta_net");
  t.residual(t.matrix(Format::kF16, t.width, values), t.all(out), {.branch_scale = 0.3f});
}

std::vector<OpCase> delta_net_cases() {
  const auto a_case = [](const char* name, Heads h, uint32_t positions = 24) {
    return OpCase{std::string("delta_net_") + name, [h](TinyProgram& t) { delta_net(t, h); }, positions};
  };
  return {
      a_case("of_one_head", {.keys = 1, .values = 1, .key_dim = 8, .value_dim = 8, .gate_run = 1, .gate_stride = 1}),
      a_case("heads_by_remainder", {}, 70),
      a_case("grouped_heads_and_gates_in_runs",
             {.keys = 2, .values = 4, .gate_run = 2, .gate_stride = 4, .grouped = true}),
      a_case("large_heads",
             {.keys = 1, .values = 2, .key_dim = 128, .value_dim = 128, .gate_run = 2, .gate_stride = 2}),
      a_case("five_heads_of_odd_sizes",
             {.keys = 5, .values = 5, .key_dim = 9, .value_dim = 75, .taps = 3, .gate_run = 1, .gate_stride = 2}),
      a_case("without_past_inputs",
             {.keys = 1, .values = 3, .key_dim = 24, .value_dim = 20, .taps = 1, .gate_run = 3, .gate_stride = 3}),
      a_case("of_two_taps",
             {.keys = 3, .values = 3, .key_dim = 33, .value_dim = 49, .taps = 2, .gate_run = 3, .gate_stride = 5}),
      {"delta_net_after_another",
       [](TinyProgram& t) {
         delta_net(t, {});
         delta_net(t, {.keys = 1, .values = 4, .key_dim = 12, .value_dim = 17});
       }},
  };
}

}  // namespace

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> all = [] {
    std::vector<OpCase> cases;
    for (auto make : {project_cases, attend_cases, delta_net_cases, mix_experts_cases})
      for (OpCase& c : make()) cases.push_back(std::move(c));
    return cases;
  }();
  return all;
}

}  // namespace honeycrisp::test_support
