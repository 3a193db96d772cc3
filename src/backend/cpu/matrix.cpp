#include "backend/cpu/matrix.h"

#include "base/check.h"
#include "base/checked.h"
#include "quant/dequantize.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace honeycrisp::backend::cpu {
namespace {

constexpr uint32_t kUnpackedInputs = 256;  // unpacked to f32 at a time: whole blocks of every format

bool is_weight_format(quant::Format format) {
  switch (format) {
    case quant::Format::kI8:
    case quant::Format::kI16:
    case quant::Format::kI32:
    case quant::Format::kI64:
    case quant::Format::kF64: return false;
    default: return true;
  }
}

std::string join(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : "+") + name;
  return all;
}

template <class Keep>
std::string distinct_formats(std::span<const MatrixKernel> matrices, Keep keep) {
  std::vector<std::string> names;
  for (const MatrixKernel& m : matrices) {
    if (!keep(m)) continue;
    std::string name(quant::to_string(m.format()));
    for (char& c : name) c = char(std::tolower(static_cast<unsigned char>(c)));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
  }
  return join(names);
}

}  // namespace

Result<MatrixKernel> MatrixKernel::create(const program::Program& program, const program::Matrix& matrix,
                                          const Target& target) {
  const program::Weight& w = program.weight(matrix);
  if (!is_weight_format(w.format))
    return unsupported("weight {}: {} is not a format of weights", w.name, quant::to_string(w.format));
  MatrixKernel m;
  m.row_bytes_ = w.row_bytes();
  m.slice_bytes_ = w.rows * m.row_bytes_;
  m.data_ = w.data + matrix.first_row * m.row_bytes_;
  m.rows_ = matrix.rows;
  m.cols_ = w.cols;
  m.format_ = w.format;
  m.activations_ = target.activations;
  m.multiply_panels_ = multiply_panels_for(integers_of(target.isa, target.activations), w.format);
  m.multiply_floats_ = multiply_floats_for(target.isa, w.format);
  if (is_packed(w.format) && target.packed) {
    m.packed_ = target.packed->find(matrix);
    HC_CHECK(m.packed_ != nullptr, "{} is not packed", w.name);
  }
  return m;
}

size_t MatrixKernel::scratch_floats() const {
  return unpacks_to_floats() ? (1 + kMostPanels) * size_t{kLanes} * kUnpackedInputs : 0;  // rows of one, and panels
}

uint32_t MatrixKernel::outputs_of(const PanelChoice& panels) const {
  return std::min(panels.count * kLanes, rows_ - panels.first * kLanes);
}

void MatrixKernel::multiply(const PanelChoice& panels, const PreparedInput& x, const RowChoice& rows,
                            const StepState& s, ThreadScratch& t, float* y, uint32_t slice) const {
  const uint64_t panel_bytes = packed_ ? packed_->panel_bytes : 0;
  const uint8_t* packed = packed_ ? packed_->data + slice * packed_->slice_bytes + panels.first * panel_bytes : nullptr;
  if (multiply_panels_)
    return multiply_panels_({.panels = packed,
                             .n_panels = panels.count,
                             .panel_bytes = panel_bytes,
                             .n_groups = cols_ / kGroup,
                             .groups = x.groups,
                             .tile_rows = x.tile_rows,
                             .first = rows.first,
                             .rows = rows.indices,
                             .n_rows = rows.count,
                             .y = y});
  const size_t stride = round_up(cols_, kLanes);
  const FloatPanelArgs args{.panels = packed,
                            .n_panels = panels.count,
                            .panel_bytes = panel_bytes,
                            .cols = cols_,
                            .inputs = x.plain + rows.first * stride,
                            .input_stride = stride,
                            .rows = rows.indices,
                            .n_rows = rows.count,
                            .adds = false,
                            .y = y};
  if (multiply_floats_) return multiply_floats_(args);
  multiply_unpacking(data_ + slice * slice_bytes_ + uint64_t{panels.first} * kLanes * row_bytes_, outputs_of(panels),
                     args, s, t);
}

void MatrixKernel::multiply_unpacking(const std::byte* rows_of_weights, uint32_t n_outputs, FloatPanelArgs args,
                                      const StepState& s, ThreadScratch& t) const {
  float* rows = t.floats;  // [16][256], then the panels
  auto* panels = reinterpret_cast<uint8_t*>(rows + size_t{kLanes} * kUnpackedInputs);
  args.panels = panels;
  args.panel_bytes = size_t{kLanes} * kUnpackedInputs * sizeof(float);
  for (uint32_t first = 0; first < cols_; first += args.cols) {
    args.cols = std::min(kUnpackedInputs, cols_ - first);
    args.adds = first != 0;
    for (uint32_t output = 0; output < n_outputs; output += kLanes) {
      const uint32_t count = std::min(kLanes, n_outputs - output);
      const std::byte* from = rows_of_weights + output * row_bytes_ + quant::row_bytes(format_, first);
      for (uint32_t i = 0; i < count; ++i)
        quant::dequantize_row(format_, from + i * row_bytes_, rows + i * size_t{kUnpackedInputs}, args.cols);
      pack_panel(quant::Format::kF32, reinterpret_cast<const std::byte*>(rows), kUnpackedInputs * sizeof(float), count,
                 args.cols, panels + output / kLanes * args.panel_bytes);
    }
    s.isa->floats.F32(args);
    args.inputs += args.cols;
  }
}

InputKernel::InputKernel(const program::Program& program, const std::optional<program::Norm>& norm, uint32_t cols,
                         std::span<const MatrixKernel> matrices)
    : norms_(norm.has_value()), cols_(cols) {
  if (norm) {
    eps_ = norm->eps;
    if (norm->weight) norm_weight_ = program.vectors[*norm->weight].values.data();
  }
  for (const MatrixKernel& m : matrices) (m.takes_integers() ? integers_ : floats_) = true;
}

Needs InputKernel::needs() const {
  const size_t padded = round_up(cols_, kLanes);
  return {.groups_per_row = integers_ ? cols_ / kGroup : 0,
          .plain_per_row = floats_ ? padded : 0,
          .thread_floats = norms_ ? padded : 0};
}

std::byte* InputKernel::group_at(uint32_t row, uint32_t group, const PreparedInput& to, const StepState& s) const {
  const size_t first = first_group(row, cols_ / kGroup, to.tile_rows);
  return to.groups + (first + size_t{group} * to.tile_rows) * s.group_bytes;
}

void InputKernel::prepare(const float* x, uint32_t row, const PreparedInput& to, const StepState& s,
                          ThreadScratch& t) const {
  if (norms_) {
    s.isa->rms_norm(x, cols_, norm_weight_, eps_, t.floats);
    x = t.floats;
  }
  if (integers_) s.integers->quantize(x, cols_, to.tile_rows, group_at(row, 0, to, s));
  if (floats_) {
    const size_t padded = round_up(cols_, kLanes);
    std::memcpy(to.plain + row * padded, x, cols_ * sizeof(float));
  }
}

void InputKernel::prepare_group(const float* x, uint32_t first, uint32_t row, const PreparedInput& to,
                                const StepState& s) const {
  HC_DCHECK(!norms_ && first % kGroup == 0);
  if (integers_) s.integers->quantize(x, kGroup, to.tile_rows, group_at(row, first / kGroup, to, s));
  if (floats_) {
    const size_t padded = round_up(cols_, kLanes), count = std::min(kGroup, cols_ - first);
    std::memcpy(to.plain + row * padded + first, x, count * sizeof(float));
  }
}

std::string format_names(std::span<const MatrixKernel> matrices) {
  const bool eight_bits = std::any_of(matrices.begin(), matrices.end(), [](const MatrixKernel& m) {
    return m.takes_integers() && m.activations() == Activations::k8Bit;
  });
  return distinct_formats(matrices, [](const MatrixKernel&) { return true; }) + (eight_bits ? ".a8" : "");
}

std::string unpacked_formats(std::span<const MatrixKernel> matrices) {
  const std::string names = distinct_formats(matrices, [](const MatrixKernel& m) { return m.unpacks_to_floats(); });
  return names.empty() ? names : names + " is unpacked to f32 in every step";
}

}  // namespace honeycrisp::backend::cpu
