// DeltaNet: what needs only a row's inputs first, for all rows at once; then the recurrence, sequential in position and
// parallel over sequences, value heads and blocks of value columns; then the norm and gate of whole heads.
//   convolve  rows × heads of q, k and v   and once per row the scalars of all value heads
//   advance   sequences × value heads × 64 columns, and once per sequence the history of the convolution
//   finish    rows × value heads
#include "backend/cpu/op_kernel.h"
#include "base/checked.h"

#include <algorithm>
#include <cmath>

namespace honeycrisp::backend::cpu {
namespace {

using program::DeltaNet;

enum Pass : uint32_t { kConvolve, kAdvance, kFinish, kPasses };

constexpr uint32_t kMaxTaps = 16;
constexpr uint32_t kColumns = kDeltaBlocks * kLanes;  // of an item

class DeltaNetKernel final : public OpKernel {
 public:
  DeltaNetKernel(const program::Program& program, const DeltaNet& op)
      : program_(program),
        op_(op),
        layer_(program.state(op)),
        n_parts_(2 * op.n_key_heads + layer_.n_heads + 1),
        column_blocks_(ceil_div(layer_.value_dim, kColumns)),
        q_scale_(layer_.key_dim, 1 / float(layer_.key_dim)),
        k_scale_(layer_.key_dim, 1 / std::sqrt(float(layer_.key_dim))),
        zeros_(std::max(layer_.key_dim, layer_.value_dim)) {
    const std::vector<float>& taps = program.vectors[op.conv].values;
    taps_.resize(taps.size());
    for (size_t i = 0; i < layer_.channels; ++i)
      for (size_t j = 0; j < layer_.kernel_size; ++j) taps_[j * layer_.channels + i] = taps[i * layer_.kernel_size + j];
  }

  Needs needs() const override {
    return {.outputs_per_row = row_floats(), .thread_floats = 2 * size_t{round_up(layer_.value_dim, kLanes)}};
  }
  uint64_t memory_bytes() const override {
    return (taps_.size() + q_scale_.size() + k_scale_.size() + zeros_.size()) * sizeof(float);
  }
  uint32_t n_passes() const override { return kPasses; }

  size_t n_items(uint32_t pass, const StepState& s) const override {
    switch (pass) {
      case kConvolve: return size_t{s.n_rows} * n_parts_;
      case kAdvance: return s.n_runs * items_per_run();
      default: return size_t{s.n_rows} * layer_.n_heads;
    }
  }

  void run(uint32_t pass, size_t begin, size_t end, const StepState& s, ThreadScratch& t) const override {
    for (size_t item = begin; item < end; ++item) {
      switch (pass) {
        case kConvolve: {
          const size_t index = item / n_parts_;
          const auto part = uint32_t(item % n_parts_);
          part == n_parts_ - 1 ? make_gates(s.rows_by_sequence[index].row, s) : convolve(index, part, s);
          break;
        }
        case kAdvance: {
          const SequenceRun& sequence = s.runs[item / items_per_run()];
          const auto part = uint32_t(item % items_per_run());
          if (part == items_per_run() - 1)
            keep_history(sequence, s);
          else
            advance(sequence, part / column_blocks_, part % column_blocks_ * kColumns, s);
          break;
        }
        case kFinish: finish(item / layer_.n_heads, uint32_t(item % layer_.n_heads), s, t); break;
      }
    }
  }

 private:
  size_t items_per_run() const { return size_t{layer_.n_heads} * column_blocks_ + 1; }
  uint32_t keys() const { return op_.n_key_heads * layer_.key_dim; }  // columns of q, and of k

  // ---- the memory of a step: [rows] of channels, decay and beta

  size_t row_floats() const { return size_t{layer_.channels} + 2 * size_t{layer_.n_heads}; }

  float* channels(size_t row, const StepState& s) const { return s.outputs + row * row_floats(); }
  float* decay(size_t row, const StepState& s) const { return channels(row, s) + layer_.channels; }  // [heads]
  float* beta(size_t row, const StepState& s) const { return decay(row, s) + layer_.n_heads; }       // [heads]

  static bool starts_anew(const SequenceRun& sequence, const StepState& s) {
    return s.batch->rows[s.rows_by_sequence[sequence.first].row].position == 0;
  }
  float* history(const SequenceRun& sequence, const StepState& s) const {
    return s.states->history(op_.state, s.batch->sequences[sequence.sequence].state);
  }

  // ---- the passes

  // Part `part` of the channels: a head of q, of k or of v.
  void convolve(size_t index, uint32_t part, const StepState& s) const {
    const bool is_value = part >= 2 * op_.n_key_heads;
    const uint32_t first =
        is_value ? 2 * keys() + (part - 2 * op_.n_key_heads) * layer_.value_dim : part * layer_.key_dim;
    const SequenceRow& at = s.rows_by_sequence[index];
    const SequenceRun& sequence = s.runs[at.run];
    const size_t past = layer_.kernel_size - 1, before = index - sequence.first;  // rows of the sequence in this step
    const float* inputs[kMaxTaps];
    for (size_t j = 0; j <= past; ++j) {
      const size_t ago = past - j;
      if (ago <= before)
        inputs[j] = s.row(op_.qkv, s.rows_by_sequence[index - ago].row) + first;
      else if (starts_anew(sequence, s))
        inputs[j] = zeros_.data();
      else
        inputs[j] = history(sequence, s) + (past - (ago - before)) * layer_.channels + first;
    }
    float* out = channels(at.row, s) + first;
    const uint32_t n = is_value ? layer_.value_dim : layer_.key_dim;
    s.isa->convolve({.taps = taps_.data() + first,
                     .tap_stride = layer_.channels,
                     .inputs = inputs,
                     .n_taps = layer_.kernel_size,
                     .n = n,
                     .out = out});
    if (is_value) return;
    // x / √(Σ x² + eps) is the RMS norm with eps / n, times n^-½; q is scaled by as much again.
    const std::vector<float>& scale = part < op_.n_key_heads ? q_scale_ : k_scale_;
    s.isa->rms_norm(out, n, scale.data(), op_.l2_eps / float(n), out);
  }

  void make_gates(size_t row, const StepState& s) const {
    for (uint32_t h = 0; h < layer_.n_heads; ++h) {
      const size_t column = size_t{h / op_.gate_run} * op_.gate_stride + h % op_.gate_run;
      decay(row, s)[h] = s.row(op_.alpha, row)[column];
      beta(row, s)[h] = s.row(op_.beta, row)[column];
    }
    s.isa->delta_gates(program_.vectors[op_.a].values.data(), program_.vectors[op_.dt_bias].values.data(),
                       layer_.n_heads, decay(row, s), beta(row, s));
  }

  // All rows of a sequence, columns [column, column + 64) of a value head.
  void advance(const SequenceRun& sequence, uint32_t head, uint32_t column, const StepState& s) const {
    const uint32_t width = round_up(layer_.value_dim, kLanes);  // of the matrix, in columns
    const uint32_t n_values = std::min(kColumns, layer_.value_dim - column);
    const uint32_t key_head = op_.grouped_heads ? head / (layer_.n_heads / op_.n_key_heads) : head % op_.n_key_heads;
    float* matrix = s.states->matrices(op_.state, s.batch->sequences[sequence.sequence].state) +
                    (size_t{head} * width + column) * layer_.key_dim;
    if (starts_anew(sequence, s)) std::fill_n(matrix, size_t{round_up(n_values, kLanes)} * layer_.key_dim, 0.0f);
    for (uint32_t i = 0; i < sequence.count; ++i) {
      const size_t row = s.rows_by_sequence[sequence.first + i].row;
      const float* c = channels(row, s);
      const size_t value = size_t{head} * layer_.value_dim + column;
      s.isa->delta_step({.state = matrix,
                         .key_dim = layer_.key_dim,
                         .n_values = n_values,
                         .q = c + key_head * layer_.key_dim,
                         .k = c + keys() + key_head * layer_.key_dim,
                         .v = c + 2 * keys() + value,
                         .decay = decay(row, s)[head],
                         .beta = beta(row, s)[head],
                         .out = s.row(op_.out, row) + value});
    }
  }

  // The last inputs of the convolution, for the step after this one.
  void keep_history(const SequenceRun& sequence, const StepState& s) const {
    const size_t past = layer_.kernel_size - 1, n = layer_.channels;
    float* kept = history(sequence, s);
    for (size_t j = 0; j < past; ++j) {  // oldest first: what is read has not been overwritten yet
      const size_t ago = past - 1 - j;   // from the last row
      if (ago < sequence.count)
        std::copy_n(s.row(op_.qkv, s.rows_by_sequence[sequence.first + sequence.count - 1 - ago].row), n, kept + j * n);
      else if (starts_anew(sequence, s))
        std::fill_n(kept + j * n, n, 0.0f);
      else
        std::copy_n(kept + (j + sequence.count) * n, n, kept + j * n);
    }
  }

  void finish(size_t row, uint32_t head, const StepState& s, ThreadScratch& t) const {
    const uint32_t n = layer_.value_dim, padded = round_up(n, kLanes);
    float *out = s.row(op_.out, row) + size_t{head} * n, *gate = t.floats, *normed = t.floats + padded;
    std::fill_n(gate, 2 * padded, 0.0f);
    std::copy_n(s.row(op_.z, row) + size_t{head} * n, n, gate);
    const float* weight = op_.norm.weight ? program_.vectors[*op_.norm.weight].values.data() : nullptr;
    s.isa->rms_norm(out, n, weight, op_.norm.eps, normed);
    s.isa->gate_silu(normed, gate, padded);
    std::copy_n(gate, n, out);
  }

  const program::Program& program_;
  const DeltaNet& op_;
  const program::StateLayer& layer_;
  size_t n_parts_;                        // items of a row in the first pass
  uint32_t column_blocks_;                // items of a head in the second
  std::vector<float> taps_;               // [kernel_size][channels]
  std::vector<float> q_scale_, k_scale_;  // [key_dim]
  std::vector<float> zeros_;              // what a convolution reads before position 0
};

}  // namespace

Result<std::unique_ptr<OpKernel>> make_kernel(const program::Program& program, const DeltaNet& op, const Target&) {
  if (const uint32_t taps = program.state(op).kernel_size; taps > kMaxTaps)
    return unsupported("a convolution of {} taps; the cpu backend has at most {}", taps, kMaxTaps);
  return std::make_unique<DeltaNetKernel>(program, op);
}

}  // namespace honeycrisp::backend::cpu
