// honeycrisp/metal_ops.h: arguments checked and named, then Project's launches (project.h) with no program around them.
#include "honeycrisp/metal_ops.h"

#include "backend/metal/apple/device.h"
#include "backend/metal/project.h"
#include "backend/metal/soft_device.h"
#include "base/checked.h"
#include "quant/formats.h"

#include <algorithm>
#include <initializer_list>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <unistd.h>
#include <vector>

namespace honeycrisp::metal {

namespace host = backend::metal;

namespace {

#define HC_SAME_ID(id, F) static_assert(uint32_t(Format::k##F) == id);
HC_METAL_FORMATS(HC_SAME_ID)
#undef HC_SAME_ID

constexpr uint32_t kMostSize = INT32_MAX;  // of rows and columns, so that kernels may add to them

/// Bytes as arguments ask for them: no product of three sizes overflows.
using Bytes = unsigned __int128;

/// What `body` returns; what it throws, as an error.
template <class Body>
auto guarded(const Body& body) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Fail(ErrorCode::kOutOfMemory, "out of memory");
  } catch (const std::exception& e) {
    return Fail(ErrorCode::kInternal, e.what());
  }
}

/// An argument as it is checked, under the name of its field.
struct Argument {
  const char* name;
  const View& view;
  Bytes need;
  uint32_t alignment = sizeof(float);
  bool written = false;
};

struct NamedWeights {
  const char* name;
  const Weights& weights;
};
struct NamedView {
  const char* name;
  const View& view;
};

/// One launch, whichever function asked for it.
struct Request {
  const char* function;
  const ProjectionArgs& args;
  NamedView input;
  std::vector<NamedWeights> weights;
  std::vector<NamedView> outputs;
  std::optional<program::Activation> gate;
};

Result<void> check_sizes(const Request& r) {
  const std::pair<const char*, uint32_t> sizes[] = {
      {"rows", r.args.rows}, {"output_size", r.args.output_size}, {"hidden_size", r.args.hidden_size}};
  for (const auto& [name, size] : sizes) {
    if (size == 0) return invalid("{}: {} is 0", r.function, name);
    if (size > kMostSize) return invalid("{}: {} is {}, at most {} can be", r.function, name, size, kMostSize);
  }
  for (const NamedWeights& w : r.weights) {
    const auto format = quant::format_from_id(uint32_t(w.weights.format));
    if (!format) return invalid("{}: {} has the unknown format {}", r.function, w.name, uint32_t(w.weights.format));
    if (!host::has_kernel(*format))
      return unsupported("{}: {} is of {}, for which there is no kernel", r.function, w.name,
                         quant::to_string(*format));
    if (const uint32_t block = quant::info(*format).block_elements; r.args.hidden_size % block != 0)
      return invalid("{}: hidden_size {} is no multiple of {}, the block of {}'s {}", r.function, r.args.hidden_size,
                     block, w.name, quant::to_string(*format));
  }
  return {};
}

quant::Format format_of(const Weights& w) { return quant::Format(w.format); }

uint32_t alignment_of(const Weights& w) {
  if (w.format == Format::kF32) return sizeof(float);
  return quant::info(format_of(w)).block_bytes % 2 == 0 ? 2 : 1;
}

std::vector<Argument> arguments_of(const Request& r) {
  const auto& [rows, output_size, hidden_size] = r.args;
  std::vector<Argument> all{{r.input.name, r.input.view, Bytes{rows} * hidden_size * sizeof(float)}};
  for (const NamedWeights& w : r.weights)
    all.push_back({w.name, w.weights.view, Bytes{output_size} * quant::row_bytes(format_of(w.weights), hidden_size),
                   alignment_of(w.weights)});
  for (const NamedView& o : r.outputs)
    all.push_back({o.name, o.view, Bytes{rows} * output_size * sizeof(float), sizeof(float), true});
  return all;
}

Result<void> check_lengths(const Request& r, std::span<const Argument> arguments) {
  for (const Argument& a : arguments) {
    const uint64_t bytes = a.view.buffer.bytes();
    const uint64_t have = bytes - std::min(bytes, a.view.offset);
    if (a.need > have)
      return a.view.offset == 0 ? invalid("{}: {} needs {} bytes, has {}", r.function, a.name, a.need, have)
                                : invalid("{}: {} needs {} bytes, has {} from byte {} on", r.function, a.name, a.need,
                                          have, a.view.offset);
    if (a.view.offset % a.alignment != 0)
      return invalid("{}: {} begins at byte {} of its buffer, which is no multiple of {}", r.function, a.name,
                     a.view.offset, a.alignment);
  }
  return {};
}

/// Threadgroups read inputs while others write outputs.
Result<void> check_overlaps(const Request& r, std::span<const Argument> arguments) {
  const auto begin = [](const Argument& a) {
    return reinterpret_cast<uintptr_t>(a.view.buffer.data()) + a.view.offset;
  };
  for (const Argument& out : arguments) {
    if (!out.written) continue;
    for (const Argument& other : arguments)
      if (&other != &out && begin(out) < begin(other) + uint64_t(other.need) &&
          begin(other) < begin(out) + uint64_t(out.need))
        return invalid("{}: {} overlaps {}", r.function, out.name, other.name);
  }
  return {};
}

Result<void> check_buffer_bytes(const host::Device& device, uint64_t bytes, std::string_view label) {
  if (bytes == 0) return invalid("{}: a buffer cannot have 0 bytes", label);
  if (bytes > device.most_buffer_bytes())
    return unsupported("{}: {} bytes are more than the {} of the device's largest buffer", label, bytes,
                       device.most_buffer_bytes());
  return {};
}

/// What launches ask of a program's memory: the weights of one request.
class RequestPlaces final : public host::Places {
 public:
  std::vector<host::WeightView> weights;

  host::WeightView weight(const program::Matrix& m) const override { return weights[m.weight]; }
  host::View buffer(program::BufferId) const override { return {}; }
  host::View vector(program::VectorId) const override { return {}; }
  host::View rope(program::RopeId) const override { return {}; }
  host::CacheView cache(program::CacheId) const override { return {}; }
  host::StateView state(program::StateId) const override { return {}; }
  Result<host::View> scratch(uint64_t) override { return unsupported("a projection needs no scratch"); }
  void release(const host::View&) override {}
};

}  // namespace

struct Device::Impl {
  explicit Impl(std::shared_ptr<host::Device> d) : device(std::move(d)), pipelines(*device) {}
  std::shared_ptr<host::Device> device;
  std::mutex mutex;  // of the pipelines
  host::Pipelines pipelines;
};

struct Buffer::Impl {
  std::shared_ptr<Device::Impl> device;  // outlives the memory
  std::shared_ptr<host::Buffer> memory;
  uint64_t bytes = 0;  // of wrapped memory, less than the whole pages of `memory`
};

struct Commands::Impl {
  Impl(std::shared_ptr<Device::Impl> d, std::unique_ptr<host::CommandBuffer> c)
      : device(std::move(d)), commands(std::move(c)), encoder(commands->encoder()) {}
  std::shared_ptr<Device::Impl> device;
  std::unique_ptr<host::CommandBuffer> commands;
  host::StepEncoder encoder;
  std::vector<Buffer> used;  // alive as long as the encoder tells memory by its address
  bool ran = false;

  static Result<void> encode(Impl* commands, const Request& request);  // null: moved away
};

// ---- buffers
// ---------------------------------------------------------------------------------------------------------

uint64_t Buffer::bytes() const { return impl_ ? impl_->bytes : 0; }
std::byte* Buffer::data() const { return impl_ ? impl_->memory->contents() : nullptr; }

// ---- devices
// ---------------------------------------------------------------------------------------------------------

Device::Device(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<Device> Device::system() {
  return guarded([]() -> Result<Device> {
    HC_ASSIGN(auto device, host::system_device());
    return Device(std::make_shared<Impl>(std::move(device)));
  });
}

Result<Device> Device::software(const SoftwareOptions& options) {
  return guarded([&]() -> Result<Device> {
    HC_ASSIGN(auto device, host::soft_device({.check = options.check, .threads = options.threads}));
    return Device(std::make_shared<Impl>(std::move(device)));
  });
}

std::string Device::describe() const { return impl_->device->describe(); }
uint64_t Device::most_buffer_bytes() const { return impl_->device->most_buffer_bytes(); }

Result<Buffer> Device::allocate(uint64_t bytes, std::string_view label) const {
  return guarded([&]() -> Result<Buffer> {
    HC_TRY(check_buffer_bytes(*impl_->device, bytes, label));
    HC_ASSIGN(auto memory, impl_->device->allocate(bytes, std::string(label)));
    Buffer buffer;
    buffer.impl_ = std::make_shared<Buffer::Impl>(Buffer::Impl{impl_, std::move(memory), bytes});
    return buffer;
  });
}

Result<Buffer> Device::wrap(std::byte* memory, uint64_t bytes, std::function<void()> release,
                            std::string_view label) const {
  return guarded([&]() -> Result<Buffer> {
    HC_TRY(check_buffer_bytes(*impl_->device, bytes, label));
    const auto page = uint64_t(sysconf(_SC_PAGESIZE));
    if (memory == nullptr || reinterpret_cast<uintptr_t>(memory) % page != 0)
      return invalid("{}: memory to wrap must begin at a multiple of {} bytes, not at {}", label, page,
                     static_cast<void*>(memory));
    HC_ASSIGN(auto wrapped, impl_->device->wrap(memory, round_up(bytes, page), std::move(release), std::string(label)));
    Buffer buffer;
    buffer.impl_ = std::make_shared<Buffer::Impl>(Buffer::Impl{impl_, std::move(wrapped), bytes});
    return buffer;
  });
}

Result<Commands> Device::new_commands(std::string_view label) const {
  return guarded([&]() -> Result<Commands> {
    HC_ASSIGN(auto commands, impl_->device->command_buffer(std::string(label)));
    return Commands(std::make_unique<Commands::Impl>(impl_, std::move(commands)));
  });
}

// ---- commands
// --------------------------------------------------------------------------------------------------------

Commands::Commands(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Commands::Commands(Commands&&) noexcept = default;
Commands& Commands::operator=(Commands&&) noexcept = default;
Commands::~Commands() = default;

Result<void> Commands::Impl::encode(Impl* c, const Request& r) {
  if (c == nullptr || c->ran) return invalid("{}: these commands have run already", r.function);
  HC_TRY(check_sizes(r));
  const std::vector<Argument> arguments = arguments_of(r);
  HC_TRY(check_lengths(r, arguments));
  for (const Argument& a : arguments)
    if (a.view.buffer.impl_->device != c->device)
      return invalid("{}: {} is a buffer of another device", r.function, a.name);
  HC_TRY(check_overlaps(r, arguments));

  for (const Argument& a : arguments) c->used.push_back(a.view.buffer);
  const auto view_of = [](const Argument& a) {
    return host::View{a.view.buffer.impl_->memory.get(), a.view.offset, uint64_t(a.need)};
  };
  program::Program program;
  RequestPlaces places;
  std::vector<program::Matrix> matrices;
  host::Launch launch;
  launch.in = {view_of(arguments[0]), r.args.hidden_size, r.args.hidden_size};
  launch.batch = r.args.rows;
  for (size_t m = 0; m < r.weights.size(); ++m) {
    const quant::Format format = format_of(r.weights[m].weights);
    const host::View view = view_of(arguments[1 + m]);
    matrices.push_back({program::WeightId(m), 0, r.args.output_size});
    program.weights.push_back(
        {r.weights[m].name, format, r.args.hidden_size, r.args.output_size, 1, nullptr, view.bytes});
    places.weights.push_back({view, program.weights[m].row_bytes(), view.bytes});
  }
  launch.matrices = matrices;
  for (size_t o = 0; o < r.outputs.size(); ++o)
    launch.ending.out[o] =
        host::Rows{view_of(arguments[1 + r.weights.size() + o]), r.args.output_size, r.args.output_size};
  if (r.gate) {
    launch.ending.kind = host::kEndGate;
    launch.ending.activation = *r.gate;
  }
  const host::PartRows rows{.n = r.args.rows, .role = backend::Role::kGenerated};
  const std::lock_guard lock(c->device->mutex);
  host::OpContext context{program, c->device->pipelines, c->encoder, places, rows, {}};
  // A launch takes weights for constant; here an earlier projection may have written them.
  for (uint32_t m = 0; m < places.weights.size(); ++m)
    c->encoder.read(host::kBufferWeights + m, places.weights[m].view);
  return host::launch_mat_vec(context, launch);
}

Result<void> Commands::project(const Projection& p) {
  return guarded([&] {
    return Impl::encode(impl_.get(),
                        {"project", p.args, {"input", p.input}, {{"weights", p.weights}}, {{"output", p.output}}, {}});
  });
}

Result<void> Commands::project_dual(const DualProjection& p) {
  return guarded([&] {
    return Impl::encode(impl_.get(), {"project_dual",
                                      p.args,
                                      {"input", p.input},
                                      {{"first_weights", p.first_weights}, {"second_weights", p.second_weights}},
                                      {{"first_output", p.first_output}, {"second_output", p.second_output}},
                                      {}});
  });
}

Result<void> Commands::project_gated(const GatedProjection& p) {
  return guarded([&] {
    return Impl::encode(
        impl_.get(), {"project_gated",
                      p.args,
                      {"input", p.input},
                      {{"gate_weights", p.gate_weights}, {"up_weights", p.up_weights}},
                      {{"output", p.output}},
                      p.activation == Activation::kSilu ? program::Activation::kSilu : program::Activation::kGeluTanh});
  });
}

uint32_t Commands::launches() const { return impl_ ? impl_->encoder.launches() : 0; }

Result<void> Commands::run() {
  return guarded([&]() -> Result<void> {
    if (!impl_ || impl_->ran) return invalid("run: these commands have run already");
    impl_->ran = true;
    impl_->commands->commit();
    return impl_->commands->wait();
  });
}

}  // namespace honeycrisp::metal
