// What a model computes, as a flat list of fused ops over named buffers; the one description that every backend
// executes, prints and counts. Families (model/families) write it, backends read it.
// Knows nothing of files, devices, threads or tokens' meaning. All buffers are f32 [rows of the batch][width].
//
// Reading guide: a Llama layer is
//   Project(norm, q k v) → Attend → Project(o, residual) → Project(norm, gate up, gated) → Project(down, residual).
// Fusion is what an op's fields say; there is no pattern-matching pass.
#pragma once

#include "quant/formats.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace honeycrisp::program {

using BufferId = uint32_t;  // index into Program::buffers
using WeightId = uint32_t;  // index into Program::weights
using VectorId = uint32_t;  // index into Program::vectors
using RopeId = uint32_t;    // index into Program::ropes
using CacheId = uint32_t;   // index into Program::caches
using StateId = uint32_t;   // index into Program::states

/// Positions in a page of the KV cache. Divides kAttentionChunk.
inline constexpr uint32_t kPagePositions = 64;
/// Attention works in chunks of positions that start at absolute multiples of this, merged left to right.
inline constexpr uint32_t kAttentionChunk = 256;
/// Most matrices that one Project multiplies with the same input.
inline constexpr size_t kMaxMatrices = 4;

// ---- what ops refer to

/// A matrix in the layout of its GGUF file: [slices][rows][cols] with rows of blocks along cols. `data` stays owned by
/// whoever opened the file and must outlive the Program.
struct Weight {
  std::string name;
  quant::Format format = quant::Format::kF32;
  uint32_t cols = 0;    // input features
  uint32_t rows = 0;    // output features
  uint32_t slices = 1;  // experts
  const std::byte* data = nullptr;
  uint64_t bytes = 0;

  uint64_t row_bytes() const { return quant::row_bytes(format, cols); }
};

/// A small f32 vector or table, owned: norm weights, biases, sinks.
struct Vector {
  std::string name;
  std::vector<float> values;
};

/// Rotary embedding (arXiv:2104.09864). Lane pairs (first, second) are (2i, 2i+1) when interleaved, else
/// (i, i + pair_distance); lanes beyond the pairs stay as they are. angle = position · inverse_frequency[i] in f64,
/// cos and sin rounded to f32 after multiplication with `magnitude`.
struct Rope {
  bool interleaved = false;
  uint32_t pair_distance = 0;             // of half-split pairs
  std::vector<double> inverse_frequency;  // [pairs]
  double magnitude = 1.0;                 // YaRN's attention factor
  std::string kind;                       // for people: "none", "linear ×8", "llama3 factors", …
};

/// One layer's share of the KV cache.
struct CacheLayer {
  uint32_t n_kv_heads = 0;
  uint32_t key_dim = 0;    // per head
  uint32_t value_dim = 0;  // per head
  uint32_t window = 0;     // 0: all positions are kept
  uint32_t pool = 0;       // filled in by assign_pools()
  uint32_t layer_in_pool = 0;
};

/// Cache layers of one geometry and window, which take and free pages together.
struct CachePool {
  uint32_t n_kv_heads = 0, key_dim = 0, value_dim = 0, window = 0;
  uint32_t n_layers = 0;
};

/// What one recurrent layer keeps of a sequence's past, in f32: the matrices of its delta rule and the last inputs of
/// its short convolution. A sequence at position 0 has zeros.
struct StateLayer {
  uint32_t n_heads = 0;      // value heads
  uint32_t key_dim = 0;      // per head
  uint32_t value_dim = 0;    // per head
  uint32_t channels = 0;     // of the convolution
  uint32_t kernel_size = 0;  // taps of the convolution, the current input included

  uint64_t matrix_floats() const { return uint64_t{n_heads} * key_dim * value_dim; }  // [heads][key][value]
  uint64_t history_floats() const { return uint64_t{channels} * (kernel_size - 1); }  // [oldest … newest][channels]
  uint64_t floats() const { return matrix_floats() + history_floats(); }
};

struct Buffer {
  std::string name;
  uint32_t width = 0;
};

/// Columns [column, column + width) of a buffer.
struct Slice {
  BufferId buffer = 0;
  uint32_t column = 0;
  uint32_t width = 0;
};

/// A tensor, or a range of its rows (of every slice, where it has several).
struct Matrix {
  WeightId weight = 0;
  uint32_t first_row = 0;
  uint32_t rows = 0;
};

/// RMS norm: x / sqrt(mean(x²) + eps) · weight. Weightless when absent (Gemma 4's V norm).
struct Norm {
  std::optional<VectorId> weight;
  float eps = 0;
};

/// A gated unit of two operands: the gate's activation times the other, "up".
enum class Activation : uint8_t {
  kSilu,           // gate · σ(gate) · up
  kGeluTanh,       // 0.5 gate (1 + tanh(√(2/π) (gate + 0.044715 gate³))) · up
  kClampedSwiglu,  // g σ(1.702 g) (u + 1) with g = min(gate, 7), u = clamp(up, −7, 7): gpt-oss
};
inline constexpr float kSwigluAlpha = 1.702f;
inline constexpr float kSwigluLimit = 7.0f;

// ---- ops

/// out = scale · row `token` of the table.
struct Embed {
  Matrix table;
  Slice out;
  float scale = 1;
};

/// Ending of a Project: y is stored as out_scale · (add + norm(scale · y)), matrix i into outs[i].
struct Store {
  std::vector<Slice> outs;
  float scale = 1;
  std::optional<Norm> norm;  // over each run of norm_width outputs; 0: over the whole output row
  uint32_t norm_width = 0;
  std::optional<Slice> add;  // may be the output itself
  float out_scale = 1;
};

/// Ending of a Project: out = the gated unit of y0 and the second matrix's y1, or a given vector.
struct Gate {
  Activation activation = Activation::kSilu;
  std::optional<Slice> operand;  // set: one matrix, times this; unset: two matrices of equal rows
  Slice out;
};

/// Ending of a Project: x = residual_scale · (x + branch_scale · post_norm(y)).
struct Residual {
  Slice x;
  float branch_scale = 1;
  std::optional<Norm> post_norm;  // over the whole row of y
  float residual_scale = 1;
};

/// One to four matrices times the same (optionally normed) input, with one ending. y = W · norm(in) + bias.
struct Project {
  Slice in;
  std::optional<Norm> input_norm;
  std::vector<Matrix> matrices;                 // 1..kMaxMatrices
  std::vector<std::optional<VectorId>> biases;  // one per matrix
  std::variant<Store, Gate, Residual> ending;
};

/// Growth of the scores with a query's position: times 1 + beta · ln(1 + ⌊position / period⌋) (Ministral 3).
struct Temperature {
  double beta = 0;
  uint32_t period = 1;  // positions
};

/// Norms and rotates q and k, appends k and v to the cache, and attends:
/// out[h] = softmax(softcap(scale · q[h]·K)) · V over positions j with 0 ≤ i − j (< window, if there is one).
/// K and V are read after rounding to the cache's type, the current position included. Query head h reads KV head
/// h / (n_heads / n_kv_heads).
struct Attend {
  uint32_t n_heads = 0;
  Slice q;                 // [n_heads][key_dim]; with output_gate [n_heads][2][key_dim] = query, gate
  std::optional<Slice> k;  // [n_kv_heads][key_dim]; unset: the layer reads what `cache`'s owner appended
  std::optional<Slice> v;  // [n_kv_heads][value_dim]; unset although k is set: V is K before norm and rope
  Slice out;               // [n_heads][value_dim]
  CacheId cache = 0;
  std::optional<Norm> q_norm, k_norm, v_norm;  // before rope
  bool norm_whole_projection = false;          // q and k norms over all heads together (OLMo 2) instead of per head
  std::optional<RopeId> rope;
  uint32_t window = 0;  // 0: none
  float scale = 1;
  std::optional<Temperature> temperature;  // on top of scale
  float softcap = 0;                       // 0: none; else cap · tanh(s / cap)
  std::optional<VectorId> sinks;           // [n_heads] logits that take part in the softmax without a value
  bool output_gate = false;                // out · σ(gate)

  /// What the scores of a query at this position are multiplied by.
  double score_scale(uint32_t position) const;
};

/// Gated delta rule (arXiv:2412.06464) with its short causal convolution, position by position. For every row:
///   c = silu(Σ_j conv[·][j] · input[kernel_size − 1 − j positions ago])      per channel of q | k | v
///   q, k = l2norm(c's parts) per head (eps inside the root), q · key_dim^-½
///   decay = exp(a · softplus(alpha + dt_bias)), β = σ(beta)                  per value head
///   S = decay · S;  S += k ⊗ β (v − kᵀS);  o = qᵀS
///   out = rms_norm(o) · silu(z)                                              per value head
struct DeltaNet {
  StateId state = 0;
  uint32_t n_key_heads = 0;
  bool grouped_heads = false;  // value head h reads key head h / (value heads / key heads); unset: h mod key heads
  Slice qkv;                   // [n_key_heads][key_dim] q, the same of k, [n_heads][value_dim] v
  Slice z;                     // [n_heads][value_dim]
  // Value head h finds its scalar at column (h / gate_run) · gate_stride + h % gate_run of the slice.
  Slice alpha, beta;
  uint32_t gate_run = 0, gate_stride = 0;
  VectorId conv = 0;     // [channels][kernel_size], oldest input first
  VectorId a = 0;        // [n_heads]: −exp(A_log)
  VectorId dt_bias = 0;  // [n_heads]
  Norm norm;             // [value_dim]
  float l2_eps = 1e-6f;
  Slice out;  // [n_heads][value_dim]
};

/// How the scores of all experts become weights of the chosen ones: the top_k largest, ties to the lowest index.
/// Softmax over all and division by the chosen ones' sum is the same as kTopKSoftmax.
enum class Routing : uint8_t {
  kSoftmaxTopK,  // shares of a softmax over all experts: the chosen ones sum to less than 1
  kTopKSoftmax,  // softmax over the chosen scores only
};

struct Router {
  std::optional<Norm> norm;  // of MixExperts::in, for the router alone; unset: it reads what the experts read
  Matrix matrix;             // [experts][width]
  std::optional<VectorId> bias;
  Routing routing = Routing::kSoftmaxTopK;
  uint32_t top_k = 0;
  std::optional<VectorId> expert_scale;  // [experts], times the chosen weights
};

/// An expert that every row takes, its output times σ(w · input) where it has a gate.
struct SharedExpert {
  Matrix gate, up, down;
  std::optional<Matrix> scale;  // one row
};

/// Mixture of experts: y = Σ over the chosen, in order of rank, of weight · down(unit(gate · x, up · x)), plus the
/// shared expert; then branch norm, plus `add`, and the ending. Biases are [experts][rows].
struct MixExperts {
  Slice in;
  std::optional<Norm> input_norm;
  Router router;
  Activation activation = Activation::kSilu;
  Matrix gate, up, down;  // weights with a slice per expert
  std::optional<VectorId> gate_bias, up_bias, down_bias;
  std::optional<SharedExpert> shared;
  std::optional<Norm> branch_norm;  // over the whole row of y
  std::optional<Slice> add;         // a dense branch beside the experts
  Residual ending;
};

/// Final norm and output table, for the rows that ask: logits = scale · softcap(W · norm(in)).
struct Logits {
  Slice in;
  Norm norm;
  Matrix table;
  float scale = 1;
  float softcap = 0;
};

using Op = std::variant<Embed, Project, Attend, DeltaNet, MixExperts, Logits>;

struct Step {
  Op op;
  std::string label;              // "blk.3.qkv": for printing and messages
  std::optional<uint32_t> layer;  // absent: before the first or after the last layer
};

struct Program {
  std::vector<Weight> weights;
  std::vector<Vector> vectors;
  std::vector<Rope> ropes;
  std::vector<CacheLayer> caches;
  std::vector<CachePool> pools;  // filled in by assign_pools()
  std::vector<StateLayer> states;
  std::vector<Buffer> buffers;
  std::vector<Step> steps;
  uint32_t n_layers = 0;
  uint32_t vocabulary = 0;  // rows of the output table

  const Weight& weight(const Matrix& m) const { return weights[m.weight]; }
  const CacheLayer& cache(const Attend& a) const { return caches[a.cache]; }
  const StateLayer& state(const DeltaNet& d) const { return states[d.state]; }
};

/// "embed", "project", "attend", "delta_net", "mix_experts", "logits": the stem of the op's file in every backend.
const char* op_name(const Op& op);

}  // namespace honeycrisp::program
