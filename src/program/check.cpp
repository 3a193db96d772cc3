#include "program/check.h"

#include "base/checked.h"

#include <algorithm>
#include <cmath>

namespace honeycrisp::program {
namespace {

constexpr uint64_t kMostStateFloats = uint64_t{1} << 32;  // of one layer: hundreds of times any published model

// Walks the steps in order and remembers which columns of each buffer hold a value.
class Checker {
 public:
  explicit Checker(const Program& program) : program_(program) {
    for (const Buffer& b : program.buffers) written_.emplace_back(b.width, false);
  }

  Result<void> run() {
    for (const Weight& w : program_.weights) HC_TRY(weight(w));
    for (const CacheLayer& c : program_.caches) HC_TRY(cache(c));
    for (const Rope& r : program_.ropes) HC_TRY(rope_table(r));
    for (const StateLayer& l : program_.states) HC_TRY(state(l));
    advanced_.assign(program_.states.size(), false);
    appended_.assign(program_.caches.size(), false);
    bool has_logits = false;
    for (const Step& step : program_.steps) {
      has_logits = std::holds_alternative<Logits>(step.op);
      auto result = std::visit([&](const auto& op) { return this->op(op); }, step.op);
      if (!result) return invalid("{}: {}", step.label, result.error().message);
      if (step.layer && *step.layer >= program_.n_layers)
        return invalid("{}: layer {} of {}", step.label, *step.layer, program_.n_layers);
    }
    if (!has_logits) return invalid("the program does not end in logits");
    return {};
  }

 private:
  Result<void> weight(const Weight& w) {
    const auto& f = quant::info(w.format);
    if (w.cols == 0 || w.rows == 0 || w.slices == 0) return invalid("weight {}: an empty dimension", w.name);
    if (w.cols % f.block_elements != 0)
      return invalid("weight {}: {} columns are no multiple of {}'s block of {}", w.name, w.cols, f.name,
                     f.block_elements);
    const auto rows = checked_mul<uint64_t>(w.rows, w.slices);
    const auto bytes = rows ? checked_mul(*rows, w.row_bytes()) : std::nullopt;
    if (!bytes || *bytes != w.bytes) return invalid("weight {}: {} bytes do not match its shape", w.name, w.bytes);
    return {};
  }

  Result<void> cache(const CacheLayer& c) {
    if (c.n_kv_heads == 0 || c.key_dim == 0 || c.value_dim == 0) return invalid("a cache layer without a geometry");
    return {};
  }

  Result<void> state(const StateLayer& l) {
    if (l.n_heads == 0 || l.key_dim == 0 || l.value_dim == 0 || l.channels == 0 || l.kernel_size == 0)
      return invalid("a recurrent layer without a geometry");
    const auto matrix = checked_mul<uint64_t>(uint64_t{l.n_heads} * l.key_dim, l.value_dim);
    if (!matrix || *matrix > kMostStateFloats || l.history_floats() > kMostStateFloats)
      return invalid("a recurrent state of {} heads of {} x {}, {} channels is out of all proportion", l.n_heads,
                     l.key_dim, l.value_dim, l.channels);
    return {};
  }

  Result<void> rope_table(const Rope& r) {
    if (r.inverse_frequency.empty()) return invalid("a rope table without pairs");
    for (const double frequency : r.inverse_frequency)
      if (!std::isfinite(frequency)) return invalid("a rope table holds the frequency {}", frequency);
    return {};
  }

  Result<void> vector(VectorId id, size_t size, const char* what) {
    if (id >= program_.vectors.size()) return invalid("{}: no such vector", what);
    const Vector& v = program_.vectors[id];
    if (v.values.size() != size)
      return invalid("{} {} has {} values, expected {}", what, v.name, v.values.size(), size);
    return {};
  }
  Result<void> norm(const std::optional<Norm>& n, size_t size, const char* what) {
    if (!n) return {};
    if (!(n->eps >= 0)) return invalid("{}: epsilon {} is not a number ≥ 0", what, n->eps);
    if (n->weight) return vector(*n->weight, size, what);
    return {};
  }

  Result<void> matrix(const Matrix& m, uint32_t cols, const char* what, uint32_t slices = 1) {
    if (m.weight >= program_.weights.size()) return invalid("{}: no such weight", what);
    const Weight& w = program_.weight(m);
    if (w.slices != slices) return invalid("{} {} has {} slices, expected {}", what, w.name, w.slices, slices);
    if (m.rows == 0 || m.first_row > w.rows || m.rows > w.rows - m.first_row)
      return invalid("{} {} has {} rows, needs {} from {}", what, w.name, w.rows, m.rows, m.first_row);
    if (w.cols != cols) return invalid("{} {} has {} columns, its input {}", what, w.name, w.cols, cols);
    return {};
  }

  Result<void> slice(const Slice& s, const char* what) {
    if (s.buffer >= program_.buffers.size()) return invalid("{}: no such buffer", what);
    const Buffer& b = program_.buffers[s.buffer];
    if (s.width == 0 || s.column > b.width || s.width > b.width - s.column)
      return invalid("{}: columns {}+{} are outside buffer {} of {}", what, s.column, s.width, b.name, b.width);
    return {};
  }
  Result<void> reads(const Slice& s, const char* what) {
    HC_TRY(slice(s, what));
    const auto& columns = written_[s.buffer];
    if (!std::all_of(columns.begin() + s.column, columns.begin() + s.column + s.width, [](bool b) { return b; }))
      return invalid("{}: buffer {} is read before it was written", what, program_.buffers[s.buffer].name);
    return {};
  }
  Result<void> writes(const Slice& s, const char* what) {
    HC_TRY(slice(s, what));
    auto& columns = written_[s.buffer];
    std::fill(columns.begin() + s.column, columns.begin() + s.column + s.width, true);
    return {};
  }
  // Attention may write one head while it still reads another. (A Project may overwrite its input.)
  Result<void> apart(const Slice& input, const Slice& output) {
    if (input.buffer != output.buffer || input.column + input.width <= output.column ||
        output.column + output.width <= input.column)
      return {};
    return invalid("buffer {} is read and written in the same columns", program_.buffers[input.buffer].name);
  }
  Result<void> width(const Slice& s, uint64_t expected, const char* what) {
    if (s.width != expected) return invalid("{}: {} columns, expected {}", what, s.width, expected);
    return {};
  }

  Result<void> op(const Embed& e) {
    HC_TRY(matrix(e.table, e.out.width, "embedding table"));
    if (e.table.rows < program_.vocabulary)
      return invalid("an embedding of {} rows for a vocabulary of {}", e.table.rows, program_.vocabulary);
    return writes(e.out, "output");
  }

  Result<void> op(const Project& p) {
    HC_TRY(reads(p.in, "input"));
    HC_TRY(norm(p.input_norm, p.in.width, "input norm"));
    if (p.matrices.empty() || p.matrices.size() > kMaxMatrices)
      return invalid("{} matrices, expected 1 to {}", p.matrices.size(), kMaxMatrices);
    if (p.biases.size() != p.matrices.size())
      return invalid("{} biases for {} matrices", p.biases.size(), p.matrices.size());
    for (size_t i = 0; i < p.matrices.size(); ++i) {
      HC_TRY(matrix(p.matrices[i], p.in.width, "matrix"));
      if (p.biases[i]) HC_TRY(vector(*p.biases[i], p.matrices[i].rows, "bias"));
    }
    return std::visit([&](const auto& e) { return ending(p, e); }, p.ending);
  }

  Result<void> ending(const Project& p, const Store& s) {
    if (s.outs.size() != p.matrices.size())
      return invalid("{} outputs for {} matrices", s.outs.size(), p.matrices.size());
    for (size_t i = 0; i < s.outs.size(); ++i) {
      const uint32_t rows = p.matrices[i].rows, run = s.norm_width == 0 ? rows : s.norm_width;
      HC_TRY(width(s.outs[i], rows, "output"));
      if (s.norm && rows % run != 0) return invalid("norm width {} does not divide {} outputs", run, rows);
      HC_TRY(norm(s.norm, run, "output norm"));
      if (s.add) {
        HC_TRY(reads(*s.add, "addend"));
        HC_TRY(width(*s.add, rows, "addend"));
      }
    }
    for (const Slice& out : s.outs) HC_TRY(writes(out, "output"));
    return {};
  }

  Result<void> ending(const Project& p, const Gate& g) {
    const uint32_t rows = p.matrices[0].rows;
    const size_t expected = g.operand ? 1 : 2;
    if (p.matrices.size() != expected) return invalid("{} matrices, the gate needs {}", p.matrices.size(), expected);
    if (g.operand) {
      HC_TRY(reads(*g.operand, "gate's operand"));
      HC_TRY(width(*g.operand, rows, "gate's operand"));
    } else if (p.matrices[1].rows != rows) {
      return invalid("gate has {} rows, up has {}", rows, p.matrices[1].rows);
    }
    HC_TRY(width(g.out, rows, "output"));
    return writes(g.out, "output");
  }

  Result<void> ending(const Project& p, const Residual& r) {
    if (p.matrices.size() != 1) return invalid("{} matrices, a residual takes 1", p.matrices.size());
    HC_TRY(reads(r.x, "residual"));
    HC_TRY(width(r.x, p.matrices[0].rows, "residual"));
    return norm(r.post_norm, p.matrices[0].rows, "post norm");
  }

  Result<void> op(const Attend& a) {
    if (a.cache >= program_.caches.size()) return invalid("no such cache layer");
    const CacheLayer& c = program_.cache(a);
    if (a.n_heads == 0 || a.n_heads % c.n_kv_heads != 0)
      return invalid("{} heads are no multiple of {} KV heads", a.n_heads, c.n_kv_heads);
    const uint64_t q_width = uint64_t{a.n_heads} * c.key_dim, k_width = uint64_t{c.n_kv_heads} * c.key_dim;
    HC_TRY(reads(a.q, "q"));
    HC_TRY(width(a.q, q_width * (a.output_gate ? 2 : 1), "q"));
    if (a.k) {
      HC_TRY(reads(*a.k, "k"));
      HC_TRY(width(*a.k, k_width, "k"));
      if (a.v) {
        HC_TRY(reads(*a.v, "v"));
        HC_TRY(width(*a.v, uint64_t{c.n_kv_heads} * c.value_dim, "v"));
      } else if (c.key_dim != c.value_dim) {
        return invalid("V is K, but their head sizes differ: {} and {}", c.key_dim, c.value_dim);
      }
      if (appended_[a.cache]) return invalid("cache layer {} is appended to twice", a.cache);
      appended_[a.cache] = true;
    } else {
      if (a.v) return invalid("v without k");
      if (!appended_[a.cache]) return invalid("cache layer {} is read before it was appended to", a.cache);
    }
    HC_TRY(norm(a.q_norm, a.norm_whole_projection ? q_width : c.key_dim, "q norm"));
    HC_TRY(norm(a.k_norm, a.norm_whole_projection ? k_width : c.key_dim, "k norm"));
    HC_TRY(norm(a.v_norm, c.value_dim, "v norm"));
    if (a.norm_whole_projection && a.output_gate) return invalid("a gate inside q with a norm over all of q");
    if (a.rope) HC_TRY(rope(*a.rope, c.key_dim));
    if (c.window != 0 && (a.window == 0 || a.window > c.window))
      return invalid("window {} is wider than the cache's {}", a.window, c.window);
    if (a.sinks) HC_TRY(vector(*a.sinks, a.n_heads, "sinks"));
    if (a.temperature && (a.temperature->period == 0 || !(a.temperature->beta >= 0)))
      return invalid("temperature {} every {} positions", a.temperature->beta, a.temperature->period);
    if (!(a.softcap >= 0)) return invalid("softcap {} is not a number ≥ 0", a.softcap);
    HC_TRY(width(a.out, uint64_t{a.n_heads} * c.value_dim, "output"));
    HC_TRY(writes(a.out, "output"));
    for (const std::optional<Slice>& input : {std::optional(a.q), a.k, a.v})
      if (input) HC_TRY(apart(*input, a.out));
    return {};
  }

  Result<void> rope(RopeId id, uint32_t head_dim) {
    if (id >= program_.ropes.size()) return invalid("no such rope table");
    const Rope& r = program_.ropes[id];
    const uint64_t pairs = r.inverse_frequency.size();
    const uint64_t last = r.interleaved ? 2 * pairs : r.pair_distance + pairs;
    if (last > head_dim || (!r.interleaved && r.pair_distance < pairs))
      return invalid("rope of {} pairs at distance {} does not fit a head of {}", pairs, r.pair_distance, head_dim);
    return {};
  }

  Result<void> op(const DeltaNet& d) {
    if (d.state >= program_.states.size()) return invalid("no such recurrent layer");
    if (advanced_[d.state]) return invalid("recurrent layer {} is advanced twice", d.state);
    advanced_[d.state] = true;
    const StateLayer& l = program_.state(d);
    const uint64_t values = uint64_t{l.n_heads} * l.value_dim, keys = uint64_t{d.n_key_heads} * l.key_dim;
    if (d.n_key_heads == 0 || l.n_heads % d.n_key_heads != 0)
      return invalid("{} value heads are no multiple of {} key heads", l.n_heads, d.n_key_heads);
    if (2 * keys + values != l.channels)
      return invalid("{} channels, but q, k and v have {}", l.channels, 2 * keys + values);
    HC_TRY(reads(d.qkv, "q, k, v"));
    HC_TRY(width(d.qkv, l.channels, "q, k, v"));
    HC_TRY(reads(d.z, "gate"));
    HC_TRY(width(d.z, values, "gate"));
    if (d.gate_run == 0 || l.n_heads % d.gate_run != 0 || d.gate_stride < d.gate_run)
      return invalid("{} heads in runs of {} at distance {}", l.n_heads, d.gate_run, d.gate_stride);
    const uint64_t gates = uint64_t{l.n_heads / d.gate_run - 1} * d.gate_stride + d.gate_run;
    HC_TRY(reads(d.alpha, "alpha"));
    HC_TRY(width(d.alpha, gates, "alpha"));
    HC_TRY(reads(d.beta, "beta"));
    HC_TRY(width(d.beta, gates, "beta"));
    HC_TRY(vector(d.conv, uint64_t{l.channels} * l.kernel_size, "convolution"));
    HC_TRY(vector(d.a, l.n_heads, "decay"));
    HC_TRY(vector(d.dt_bias, l.n_heads, "time step bias"));
    HC_TRY(norm(d.norm, l.value_dim, "norm"));
    if (!(d.l2_eps >= 0)) return invalid("epsilon {} is not a number ≥ 0", d.l2_eps);
    HC_TRY(width(d.out, values, "output"));
    HC_TRY(writes(d.out, "output"));
    for (const Slice& input : {d.qkv, d.z, d.alpha, d.beta}) HC_TRY(apart(input, d.out));
    return {};
  }

  Result<void> op(const MixExperts& m) {
    const uint32_t cols = m.in.width, hidden = m.gate.rows, out = m.down.rows;
    HC_TRY(reads(m.in, "input"));
    HC_TRY(norm(m.input_norm, cols, "input norm"));

    const Router& r = m.router;
    const uint32_t experts = r.matrix.rows;
    HC_TRY(norm(r.norm, cols, "router's norm"));
    HC_TRY(matrix(r.matrix, cols, "router"));
    if (r.bias) HC_TRY(vector(*r.bias, experts, "router's bias"));
    if (r.expert_scale) HC_TRY(vector(*r.expert_scale, experts, "experts' scale"));
    if (r.top_k == 0 || r.top_k > experts) return invalid("the {} best of {} experts", r.top_k, experts);

    HC_TRY(matrix(m.gate, cols, "experts' gate", experts));
    HC_TRY(matrix(m.up, cols, "experts' up", experts));
    HC_TRY(matrix(m.down, hidden, "experts' down", experts));
    if (m.up.rows != hidden) return invalid("experts' gate has {} rows, up has {}", hidden, m.up.rows);
    if (m.gate_bias) HC_TRY(vector(*m.gate_bias, uint64_t{experts} * hidden, "experts' gate bias"));
    if (m.up_bias) HC_TRY(vector(*m.up_bias, uint64_t{experts} * hidden, "experts' up bias"));
    if (m.down_bias) HC_TRY(vector(*m.down_bias, uint64_t{experts} * out, "experts' down bias"));
    if (m.shared) HC_TRY(shared_expert(*m.shared, cols, out));

    HC_TRY(norm(m.branch_norm, out, "branch norm"));
    if (m.add) {
      HC_TRY(reads(*m.add, "dense branch"));
      HC_TRY(width(*m.add, out, "dense branch"));
    }
    HC_TRY(reads(m.ending.x, "residual"));
    HC_TRY(width(m.ending.x, out, "residual"));
    return norm(m.ending.post_norm, out, "post norm");
  }

  Result<void> shared_expert(const SharedExpert& s, uint32_t cols, uint32_t out) {
    HC_TRY(matrix(s.gate, cols, "shared expert's gate"));
    HC_TRY(matrix(s.up, cols, "shared expert's up"));
    HC_TRY(matrix(s.down, s.gate.rows, "shared expert's down"));
    if (s.up.rows != s.gate.rows) return invalid("shared expert's gate has {} rows, up has {}", s.gate.rows, s.up.rows);
    if (s.down.rows != out) return invalid("the shared expert gives {} values, the experts {}", s.down.rows, out);
    if (!s.scale) return {};
    HC_TRY(matrix(*s.scale, cols, "shared expert's scale"));
    return s.scale->rows == 1 ? Result<void>() : invalid("shared expert's scale has {} rows", s.scale->rows);
  }

  Result<void> op(const Logits& l) {
    HC_TRY(reads(l.in, "input"));
    HC_TRY(norm(l.norm, l.in.width, "output norm"));
    HC_TRY(matrix(l.table, l.in.width, "output table"));
    if (l.table.rows != program_.vocabulary)
      return invalid("{} logits, the vocabulary has {}", l.table.rows, program_.vocabulary);
    return {};
  }

  const Program& program_;
  std::vector<std::vector<bool>> written_;  // [buffers][width]
  std::vector<bool> appended_;              // [caches]
  std::vector<bool> advanced_;              // [states]
};

}  // namespace

double Attend::score_scale(uint32_t position) const {
  if (!temperature) return double(scale);
  return double(scale) * (1 + temperature->beta * std::log(1.0 + position / temperature->period));
}

const char* op_name(const Op& op) {
  static constexpr const char* kNames[] = {"embed", "project", "attend", "delta_net", "mix_experts", "logits"};
  static_assert(std::size(kNames) == std::variant_size_v<Op>);
  return kNames[op.index()];
}

void assign_pools(Program& program) {
  program.pools.clear();
  for (CacheLayer& c : program.caches) {
    const auto same = [&](const CachePool& p) {
      return p.n_kv_heads == c.n_kv_heads && p.key_dim == c.key_dim && p.value_dim == c.value_dim &&
             p.window == c.window;
    };
    auto pool = std::find_if(program.pools.begin(), program.pools.end(), same);
    if (pool == program.pools.end())
      pool = program.pools.insert(pool, {c.n_kv_heads, c.key_dim, c.value_dim, c.window, 0});
    c.pool = uint32_t(pool - program.pools.begin());
    c.layer_in_pool = pool->n_layers++;
  }
}

Result<void> check(const Program& program) { return Checker(program).run(); }

namespace {

// What the matrices that one row meets add up to; `size` gives that of one row of a weight.
template <class Size>
struct MatrixSum {
  const Program& program;
  Size size;

  uint64_t of(const Matrix& m) const { return size(program.weight(m)) * m.rows; }

  uint64_t operator()(const Embed& e) const { return size(program.weight(e.table)); }
  uint64_t operator()(const Project& p) const {
    uint64_t sum = 0;
    for (const Matrix& m : p.matrices) sum += of(m);
    return sum;
  }
  uint64_t operator()(const Attend&) const { return 0; }
  uint64_t operator()(const DeltaNet&) const { return 0; }
  uint64_t operator()(const MixExperts& m) const {
    uint64_t sum = of(m.router.matrix) + m.router.top_k * (of(m.gate) + of(m.up) + of(m.down));
    if (m.shared) {
      sum += of(m.shared->gate) + of(m.shared->up) + of(m.shared->down);
      if (m.shared->scale) sum += of(*m.shared->scale);
    }
    return sum;
  }
  uint64_t operator()(const Logits& l) const { return of(l.table); }
};
template <class Size>
MatrixSum(const Program&, Size) -> MatrixSum<Size>;

// `per_position(op, cache layer)` times the positions that a row sees; 0 if the op does not attend.
template <class PerPosition>
uint64_t over_visible(const Program& program, const Op& op, uint32_t position, PerPosition per_position) {
  const auto* a = std::get_if<Attend>(&op);
  if (a == nullptr) return 0;
  const uint64_t visible = a->window == 0 ? uint64_t{position} + 1 : std::min(position + 1, a->window);
  return visible * per_position(*a, program.cache(*a));
}

}  // namespace

uint64_t weight_bytes(const Program& program, const Op& op) {
  return std::visit(MatrixSum{program, [](const Weight& w) { return w.row_bytes(); }}, op);
}

uint64_t weight_multiply_adds(const Program& program, const Op& op) {
  if (std::holds_alternative<Embed>(op)) return 0;
  return std::visit(MatrixSum{program, [](const Weight& w) { return uint64_t{w.cols}; }}, op);
}

uint64_t cache_values_read(const Program& program, const Op& op, uint32_t position) {
  return over_visible(program, op, position, [](const Attend&, const CacheLayer& c) {
    return uint64_t{c.n_kv_heads} * (uint64_t{c.key_dim} + c.value_dim);
  });
}

uint64_t attention_multiply_adds(const Program& program, const Op& op, uint32_t position) {
  return over_visible(program, op, position, [](const Attend& a, const CacheLayer& c) {
    return uint64_t{a.n_heads} * (uint64_t{c.key_dim} + c.value_dim);
  });
}

uint64_t weight_bytes(const Program& program) {
  uint64_t sum = 0;
  for (const Step& s : program.steps) sum += weight_bytes(program, s.op);
  return sum;
}

uint64_t state_bytes(const Program& program) {
  uint64_t floats = 0;
  for (const StateLayer& l : program.states) floats += l.floats();
  return floats * sizeof(float);
}

uint64_t resident_bytes(const Program& program) {
  uint64_t sum = 0;
  for (const Weight& w : program.weights) sum += w.bytes;
  return sum;
}

}  // namespace honeycrisp::program
