#include "rig.h"

#include "base/check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace honeycrisp::backend::metal::testing {
namespace {

constexpr uint64_t kGuard = 256;  // bytes
constexpr std::byte kGuardByte{0xa5};

}  // namespace

Rig::Rig(const soft::DeviceOptions& options) : Rig(soft::Device::create(options).value(), {}) {}
Rig::Rig(std::shared_ptr<soft::Device> device, SoftLibraries libraries) : soft(std::move(device)) {
  libraries.push_back(soft->open_library("backend_kernels").value());
  device_ = soft_device_around(soft, std::move(libraries));
  pipelines_ = std::make_unique<Pipelines>(*device_);
}
Rig::~Rig() = default;

View Rig::guarded(uint64_t bytes) {
  owned_.push_back(device_->allocate(bytes + 2 * kGuard, "rig").value());
  Buffer& b = *owned_.back();
  std::fill(b.contents(), b.contents() + b.bytes(), kGuardByte);
  views_.push_back({&b, kGuard, bytes});
  return views_.back();
}

std::string Rig::guards() const {
  for (const View& v : views_) {
    const std::byte* first = v.buffer->contents();
    const std::byte* after = first + kGuard + v.bytes;
    if (std::any_of(first, first + kGuard, [](std::byte b) { return b != kGuardByte; })) return "bytes before a view";
    if (std::any_of(after, after + kGuard, [](std::byte b) { return b != kGuardByte; })) return "bytes after a view";
  }
  return "";
}

program::Matrix Rig::add_weight(quant::Format format, uint32_t rows, uint32_t cols, std::vector<std::byte> bytes) {
  const auto id = program::WeightId(program.weights.size());
  auto memory = device_->allocate(bytes.size(), "weight").value();
  std::copy(bytes.begin(), bytes.end(), memory->contents());
  program.weights.push_back({fmt::format("weight {}", id), format, cols, rows, 1, memory->contents(), bytes.size()});
  weights_[id] = {std::move(memory), quant::row_bytes(format, cols)};
  return {id, 0, rows};
}

program::Matrix Rig::add_spread_weight(quant::Format format, uint32_t rows, uint32_t cols, std::byte* memory,
                                       uint64_t row_bytes, uint64_t bytes) {
  const auto id = program::WeightId(program.weights.size());
  auto buffer = device_->wrap(memory, bytes, [] {}, "spread").value();
  program.weights.push_back({"spread", format, cols, rows, 1, memory, bytes});
  weights_[id] = {std::move(buffer), row_bytes};
  return {id, 0, rows};
}

program::VectorId Rig::add_vector(std::vector<float> values) {
  const auto id = program::VectorId(program.vectors.size());
  const View v = guarded(values.size() * 4);
  std::memcpy(v.buffer->contents() + v.offset, values.data(), v.bytes);
  vectors_[id] = v;
  program.vectors.push_back({"vector", std::move(values)});
  return id;
}

program::Slice Rig::add_buffer(uint32_t width) {
  program.buffers.push_back({fmt::format("buffer {}", program.buffers.size()), width});
  return {program::BufferId(program.buffers.size() - 1), 0, width};
}

void Rig::set_rows(uint32_t n, Role role, std::vector<uint32_t> logits) {
  rows_ = {};
  rows_.n = n;
  rows_.role = role;
  buffers_.clear();
  for (const program::Buffer& b : program.buffers) {
    buffers_.push_back(guarded(4ull * n * b.width));
    auto* floats = reinterpret_cast<float*>(buffers_.back().buffer->contents() + kGuard);
    std::fill(floats, floats + uint64_t{n} * b.width, std::numeric_limits<float>::quiet_NaN());
  }
  rows_.n_logits = uint32_t(logits.size());
  if (!logits.empty()) {
    rows_.logit_rows = guarded(4 * logits.size());
    std::memcpy(rows_.logit_rows.buffer->contents() + kGuard, logits.data(), 4 * logits.size());
    rows_.logits = guarded(4ull * logits.size() * program.vocabulary);
  }
}

void Rig::set_tokens(const std::vector<int32_t>& tokens) {
  rows_.tokens = guarded(4 * tokens.size());
  std::memcpy(rows_.tokens.buffer->contents() + kGuard, tokens.data(), 4 * tokens.size());
}

void Rig::fill(const program::Slice& slice, const std::vector<float>& values) {
  const uint64_t stride = program.buffers[slice.buffer].width;
  HC_CHECK(values.size() == uint64_t{rows_.n} * slice.width);
  auto* floats = reinterpret_cast<float*>(buffers_[slice.buffer].buffer->contents() + kGuard) + slice.column;
  for (uint32_t r = 0; r < rows_.n; ++r)
    std::copy_n(values.data() + uint64_t{r} * slice.width, slice.width, floats + r * stride);
}

std::vector<float> Rig::values(const program::Slice& slice) const {
  const uint64_t stride = program.buffers[slice.buffer].width;
  std::vector<float> out(uint64_t{rows_.n} * slice.width);
  const auto* floats =
      reinterpret_cast<const float*>(buffers_[slice.buffer].buffer->contents() + kGuard) + slice.column;
  for (uint32_t r = 0; r < rows_.n; ++r)
    std::copy_n(floats + r * stride, slice.width, out.data() + uint64_t{r} * slice.width);
  return out;
}

std::vector<float> Rig::logits() const {
  const auto* floats = reinterpret_cast<const float*>(rows_.logits.buffer->contents() + kGuard);
  return {floats, floats + uint64_t{rows_.n_logits} * program.vocabulary};
}

std::string Rig::run(const std::vector<program::Op>& ops, bool flush) {
  return encode([&](StepEncoder& encoder) -> Result<void> {
    OpContext context{program, *pipelines_, encoder, *this, rows_, {}};
    for (const program::Op& op : ops) HC_TRY(std::visit([&](const auto& o) { return metal::encode(context, o); }, op));
    return flush ? flush_residual(context) : Result<void>{};
  });
}

std::string Rig::encode(const std::function<Result<void>(StepEncoder&)>& put) {
  auto commands = device_->command_buffer("ops").value();
  StepEncoder encoder(commands->encoder());
  const Result<void> encoded = put(encoder);
  launches_ = encoder.launches();
  barriers_ = encoder.barriers();
  commands->commit();
  const Result<void> done = commands->wait();
  if (!encoded) return encoded.error().message;
  if (!done) return done.error().message;
  std::string faults;
  for (const soft::Report& r : soft->reports()) faults += to_string(r) + "\n";
  return faults.empty() ? guards() : faults;
}

View Rig::buffer(program::BufferId id) const { return buffers_[id]; }
WeightView Rig::weight(const program::Matrix& m) const {
  const Spread& s = weights_.at(m.weight);
  return {
      {s.buffer.get(), m.first_row * s.row_bytes, uint64_t{m.rows - 1} * s.row_bytes + program.weight(m).row_bytes()},
      s.row_bytes,
      s.row_bytes * program.weight(m).rows};
}
View Rig::vector(program::VectorId id) const { return vectors_.at(id); }
Result<View> Rig::scratch(uint64_t bytes) { return guarded(bytes); }

}  // namespace honeycrisp::backend::metal::testing
