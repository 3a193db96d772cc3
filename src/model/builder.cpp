#include "model/builder.h"

#include "base/check.h"
#include "base/checked.h"
#include "base/text_escape.h"
#include "model/config.h"
#include "program/check.h"
#include "quant/dequantize.h"

#include <fmt/ranges.h>

namespace honeycrisp::model {
namespace {

std::string shape(const gguf::Tensor& t) {
  return fmt::format("{}", fmt::join(t.dims.begin(), t.dims.begin() + t.n_dims, "×"));
}

bool can_be_weight(quant::Format f) {
  using enum quant::Format;
  return f != kI8 && f != kI16 && f != kI32 && f != kI64 && f != kF64;
}

}  // namespace

Builder::Builder(const gguf::File& file, uint32_t n_layers, uint32_t vocabulary) : file_(file) {
  program_.n_layers = n_layers;
  program_.vocabulary = vocabulary;
}

bool Builder::has_in_layers(const std::string& name) {
  const bool present = has(name);
  const size_t layer_end = name.find('.', name.find('.') + 1);  // blk.3.attn_q.bias
  Answers& answers = answers_[name.substr(layer_end + 1)];
  std::string& first = present ? answers.present : answers.absent;
  if (first.empty()) first = name;
  return present;
}

Result<program::Matrix> Builder::matrix(const std::string& name, uint64_t cols, uint64_t rows) {
  return weight(name, cols, rows, 1);
}

Result<program::Matrix> Builder::expert_matrices(const std::string& name, uint64_t cols, uint64_t rows,
                                                 uint64_t slices) {
  return weight(name, cols, rows, slices);
}

Result<program::Matrix> Builder::weight(const std::string& name, uint64_t cols, uint64_t rows, uint64_t slices) {
  const gguf::Tensor* t = file_.find_tensor(name);
  if (t == nullptr) return invalid("tensor '{}' is missing", name);
  const auto elements = checked_mul<uint64_t>(cols, rows);
  const auto all = elements ? checked_mul<uint64_t>(*elements, slices) : std::nullopt;
  if (t->dims[0] != cols || t->dims[1] != rows || t->dims[2] != slices || t->elements() != all)
    return invalid("tensor '{}' is {}, the configuration asks for {}×{}{}", name, shape(*t), cols, rows,
                   slices == 1 ? std::string() : fmt::format("×{}", slices));
  if (!can_be_weight(t->format))
    return unsupported("tensor '{}' is of type {}, which cannot be a weight", name, quant::to_string(t->format));
  auto [it, inserted] = weights_.try_emplace(name, program::WeightId(program_.weights.size()));
  if (inserted) {
    program_.weights.push_back({name, t->format, uint32_t(cols), uint32_t(rows), uint32_t(slices), t->data, t->bytes});
    used_.insert(name);
  }
  return program::Matrix{it->second, 0, uint32_t(rows)};
}

Result<std::vector<float>> Builder::values(const std::string& name, uint64_t size, uint64_t rows) {
  const gguf::Tensor* t = file_.find_tensor(name);
  if (t == nullptr) return invalid("tensor '{}' is missing", name);
  const auto all = checked_mul<uint64_t>(size, rows);
  if (t->dims[0] != size || t->dims[1] != rows || t->elements() != all)
    return invalid("tensor '{}' is {}, the configuration asks for {}{}", name, shape(*t), size,
                   rows == 1 ? std::string() : fmt::format("×{}", rows));
  using enum quant::Format;
  if (t->format != kF32 && t->format != kF16 && t->format != kBF16)
    return unsupported("tensor '{}' is of type {}, expected F32, F16 or BF16", name, quant::to_string(t->format));
  used_.insert(name);
  std::vector<float> result(*all);
  quant::dequantize_row(t->format, t->data, result.data(), *all);
  return result;
}

Result<program::VectorId> Builder::vector(const std::string& name, uint64_t size, uint64_t rows) {
  HC_ASSIGN(auto v, values(name, size, rows));
  auto [it, inserted] = vectors_.try_emplace(name, program::VectorId(program_.vectors.size()));
  if (inserted) program_.vectors.push_back({name, std::move(v)});
  return it->second;
}

program::BufferId Builder::buffer(std::string name, uint64_t width) {
  HC_CHECK(width <= UINT32_MAX);
  program_.buffers.push_back({std::move(name), uint32_t(width)});
  return program::BufferId(program_.buffers.size() - 1);
}

program::Slice Builder::whole(program::BufferId buffer) const { return {buffer, 0, program_.buffers[buffer].width}; }

program::RopeId Builder::rope(program::Rope rope) {
  program_.ropes.push_back(std::move(rope));
  return program::RopeId(program_.ropes.size() - 1);
}

program::StateId Builder::state(program::StateLayer layer) {
  program_.states.push_back(layer);
  return program::StateId(program_.states.size() - 1);
}

program::VectorId Builder::computed_vector(std::string name, std::vector<float> values) {
  program_.vectors.push_back({std::move(name), std::move(values)});
  return program::VectorId(program_.vectors.size() - 1);
}

program::CacheId Builder::cache(program::CacheLayer layer) {
  program_.caches.push_back(layer);
  return program::CacheId(program_.caches.size() - 1);
}

void Builder::step(std::string label, std::optional<uint32_t> layer, program::Op op) {
  program_.steps.push_back({std::move(op), std::move(label), layer});
}

Result<program::Program> Builder::finish(std::vector<std::string>& notes) && {
  for (const auto& [suffix, answers] : answers_)
    if (!answers.present.empty() && !answers.absent.empty())
      return invalid("tensor '{}' is missing, while '{}' is there", answers.absent, answers.present);
  program::assign_pools(program_);
  HC_TRY(program::check(program_));
  size_t unused = 0, further = 0;
  std::string first;
  for (const gguf::Tensor& t : file_.tensors()) {
    if (used_.contains(std::string(t.name))) continue;
    if (layer_of(t.name) >= program_.n_layers) {  // absent is below every number
      ++further;
      continue;
    }
    if (t.name.ends_with(".scale"))
      return unsupported("tensor '{}': weights with a scale of their own are not supported here",
                         escape_for_display(t.name, 64));
    if (unused++ == 0) first = escape_for_display(t.name, 64);
  }
  if (further != 0)
    notes.push_back(fmt::format("layers from {} on ({} tensor{}) predict further tokens and are not used",
                                program_.n_layers, further, further == 1 ? "" : "s"));
  if (unused == 1) notes.push_back(fmt::format("tensor '{}' is not used by this architecture", first));
  if (unused > 1)
    notes.push_back(fmt::format("{} tensors are not used by this architecture, '{}' first", unused, first));
  return std::move(program_);
}

}  // namespace honeycrisp::model
