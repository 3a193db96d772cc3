#include "backend/metal/soft/device.h"

#include "backend/metal/soft/executor.h"

#include <algorithm>
#include <cstring>

namespace honeycrisp::backend::metal::soft {
namespace {

/// UINT64_MAX if it is more than 2^64.
uint64_t product_of(const Size& s) {
  const uint64_t two = uint64_t(s.x) * s.y;
  return s.z != 0 && two > UINT64_MAX / s.z ? UINT64_MAX : two * s.z;
}

}  // namespace

// ---- device ----

Device::Device(const DeviceOptions& options)
    : options_(options), log_(std::make_shared<ReportLog>(options.report_limit)) {}

Device::~Device() {
  // The last command buffer may have held the device, and been dropped by the executor's own thread.
  if (executor_ && executor_->on_own_thread()) std::thread([e = std::move(executor_)] {}).detach();
}

Result<std::shared_ptr<Device>> Device::create(const DeviceOptions& options) {
  std::shared_ptr<Device> d(new Device(options));
  HC_ASSIGN(d->executor_, Executor::create(options, d->log_));
  return d;
}

Result<std::shared_ptr<Buffer>> Device::new_buffer(size_t bytes, Hazards hazards) {
  return Buffer::allocate(bytes, hazards, options_.check ? log_ : nullptr);
}

Result<std::shared_ptr<Buffer>> Device::wrap_memory(void* memory, size_t bytes, std::function<void()> release,
                                                    Hazards hazards) {
  return Buffer::wrap(memory, bytes, std::move(release), hazards);
}

Result<std::shared_ptr<const Library>> Device::open_library(const std::string& name) {
  HC_ASSIGN(auto library,
            Library::open(name.find('/') == std::string::npos ? Library::default_path(name, options_.check) : name));
  if (library->checked() != options_.check)
    return invalid("{}: the device {}, the library is {}", library->path(),
                   options_.check ? "checks" : "does not check",
                   library->checked() ? "a checked one" : "not a checked one");
  return library;
}

Result<std::shared_ptr<const Pipeline>> Device::new_pipeline(const std::shared_ptr<const Library>& library,
                                                             const std::string& function,
                                                             const FunctionConstants& constants) {
  auto p = std::make_shared<Pipeline>();
  p->library = library;
  HC_ASSIGN(p->function, library->function(function));
  const Unit& unit = *p->function.unit;
  for (const auto& [index, value] : constants.values()) {
    const auto* end = unit.constants + unit.constant_count;
    const auto* c =
        std::find_if(unit.constants, end, [&, i = index](const FunctionConstant& f) { return f.index == i; });
    if (c == end || index == kDerivedConstant) continue;  // Metal ignores values that a function does not use
    if (value.size() != c->bytes)
      return invalid("{}: function constant {} (index {}) has {} bytes, {} were given", function, c->name, index,
                     c->bytes, value.size());
    p->constants.emplace_back(c, value);
  }
  p->apply_constants();
  for (uint32_t i = 0; i < p->function.kernel->parameter_count; ++i) {
    const Parameter& parameter = p->function.kernel->parameters[i];
    if (!parameter.enabled || *parameter.enabled()) p->required |= uint64_t(1) << i;
  }
  return std::shared_ptr<const Pipeline>(std::move(p));
}

std::shared_ptr<CommandBuffer> Device::new_command_buffer() {
  return std::shared_ptr<CommandBuffer>(new CommandBuffer(shared_from_this()));
}

void Pipeline::apply_constants() const {
  const Unit& unit = *function.unit;
  for (uint32_t i = 0; i < unit.constant_count; ++i) {
    std::memset(unit.constants[i].address(), 0, unit.constants[i].bytes);
    if (unit.constants[i].defined) *unit.constants[i].defined() = false;
  }
  for (const auto& [c, value] : constants) {
    std::memcpy(c->address(), value.data(), value.size());
    *c->defined() = true;
  }
  unit.derive();
}

// ---- command buffer ----

CommandBuffer::CommandBuffer(std::shared_ptr<Device> device)
    : device_(std::move(device)), state_(std::make_shared<State>()) {}

std::shared_ptr<Encoder> CommandBuffer::new_encoder(DispatchType type) {
  auto order = std::make_shared<EncoderOrder>();
  order->id = device_->executor_->next_encoder();
  if (encoding("an encoder")) {
    state_->encoders.push_back(order);
    ++state_->open_encoders;
  }
  return std::shared_ptr<Encoder>(new Encoder(shared_from_this(), type, std::move(order)));
}

void CommandBuffer::on_completed(std::function<void(CommandBuffer&)> handler) {
  if (encoding("a completion handler")) state_->handlers.push_back(std::move(handler));
}

/// Metal's validation layer stops the process at a misuse; here it is reported, and fails what is not yet committed.
bool CommandBuffer::encoding(const char* what) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->status == Status::kEncoding) return true;
  }
  device_->log_->add({Fault::kBinding, fmt::format("{} after the commit", what), {}, std::nullopt});
  return false;
}

void CommandBuffer::fail(Error error) {
  const std::lock_guard lock(state_->mutex);
  if (state_->status == Status::kEncoding && state_->result) state_->result = tl::unexpected(std::move(error));
}

void CommandBuffer::commit() {
  if (state_->open_encoders != 0) fail({ErrorCode::kInvalidInput, "committed with an encoder that was not ended"});
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->status != Status::kEncoding) return;
    state_->status = Status::kCommitted;
  }
  std::map<std::shared_ptr<Buffer>, bool> uses;
  for (const Dispatch& d : state_->dispatches) {
    const KernelInfo& k = *d.pipeline->function.kernel;
    for (uint32_t i = 0; i < k.parameter_count; ++i) {
      const Parameter& p = k.parameters[i];
      const bool buffer = p.attribute == Attribute::kBuffer || p.attribute == Attribute::kConstantBuffer;
      if (buffer && d.pipeline->required >> i & 1 && d.bindings[p.index].buffer)
        uses[d.bindings[p.index].buffer] |= p.writable;
    }
  }
  for (const auto& [buffer, written] : uses) {
    buffer->begin_use(written);
    state_->uses.emplace_back(buffer, written);
  }
  device_->executor_->submit(shared_from_this());
}

void CommandBuffer::wait() {
  std::unique_lock lock(state_->mutex);
  if (state_->status == Status::kEncoding) return;
  const bool in_handler = device_->executor_->on_own_thread();
  state_->changed.wait(lock, [&] { return state_->finished || (in_handler && state_->status >= Status::kCompleted); });
  lock.unlock();
  observe();
}

Status CommandBuffer::status() {
  Status s;
  {
    const std::lock_guard lock(state_->mutex);
    s = state_->status;
  }
  if (s >= Status::kCompleted) observe();
  return s;
}

Result<void> CommandBuffer::result() {
  const std::lock_guard lock(state_->mutex);
  return state_->result;
}

double CommandBuffer::seconds() {
  const std::lock_guard lock(state_->mutex);
  return state_->seconds;
}

void CommandBuffer::observe() { device_->executor_->observe(*state_); }

// ---- encoder ----

Encoder::Encoder(std::shared_ptr<CommandBuffer> commands, DispatchType type, std::shared_ptr<EncoderOrder> order)
    : commands_(std::move(commands)), type_(type), order_(std::move(order)) {}

bool Encoder::usable(const char* what) {
  if (!commands_->encoding(what)) return false;
  if (!ended_) return true;
  commands_->fail({ErrorCode::kInvalidInput, fmt::format("{} after the end of the encoder", what)});
  return false;
}

void Encoder::set_pipeline(std::shared_ptr<const Pipeline> pipeline) { next_.pipeline = std::move(pipeline); }

void Encoder::set_buffer(std::shared_ptr<Buffer> buffer, size_t offset, uint32_t index, size_t length) {
  if (index >= kMaxBuffers)
    return commands_->fail(
        {ErrorCode::kInvalidInput, fmt::format("buffer index {}; the last is {}", index, kMaxBuffers - 1)});
  Binding& b = next_.bindings[index];
  b = {};
  if (!buffer) return;
  if (offset > buffer->length() || (length != kToEnd && length > buffer->length() - offset))
    return commands_->fail(
        {ErrorCode::kInvalidInput, fmt::format("buffer({}): a view of {} bytes at {} of a buffer of {} bytes", index,
                                               length == kToEnd ? 0 : length, offset, buffer->length())});
  b.length = length == kToEnd ? buffer->length() - offset : length;
  b.offset = offset;
  b.buffer = std::move(buffer);
}

void Encoder::set_bytes(std::span<const unsigned char> bytes, uint32_t index) {
  if (index >= kMaxBuffers || bytes.empty() || bytes.size() > 4096)
    return commands_->fail(
        {ErrorCode::kInvalidInput,
         fmt::format("{} bytes at index {}: 1 to 4096 bytes, index up to {}", bytes.size(), index, kMaxBuffers - 1)});
  Binding& b = next_.bindings[index];
  b = {};
  b.bytes = std::make_shared<const std::vector<unsigned char>>(bytes.begin(), bytes.end());
  b.length = bytes.size();
}

void Encoder::set_threadgroup_memory(uint32_t bytes, uint32_t index) {
  if (index >= kMaxThreadgroupArguments || bytes % 16 != 0 || bytes > kThreadgroupBytes)
    return commands_->fail({ErrorCode::kInvalidInput,
                            fmt::format("threadgroup({}) of {} bytes: a multiple of 16, up to {}, index up to {}",
                                        index, bytes, kThreadgroupBytes, kMaxThreadgroupArguments - 1)});
  next_.threadgroup_bytes[index] = bytes;
}

// Products that overflow are refused by record().
void Encoder::dispatch_threadgroups(Size g, Size t) { record(g, {g.x * t.x, g.y * t.y, g.z * t.z}, t); }

void Encoder::dispatch_threads(Size n, Size t) {
  const auto groups = [](uint32_t all, uint32_t of) { return of == 0 ? 0 : all / of + (all % of != 0 ? 1 : 0); };
  record({groups(n.x, t.x), groups(n.y, t.y), groups(n.z, t.z)}, n, t);
}

void Encoder::record(Size groups, Size grid, Size threads) {
  if (!usable("a dispatch")) return;
  const auto refuse = [&](std::string why) {
    Report r{Fault::kBinding, why, {}, std::nullopt};
    if (next_.pipeline) r.place.kernel = next_.pipeline->function.kernel->name;
    commands_->device_->log_->add(std::move(r));
    commands_->fail({ErrorCode::kInvalidInput, std::move(why)});
  };
  if (!next_.pipeline) return refuse("a dispatch without a pipeline");
  const KernelInfo& k = *next_.pipeline->function.kernel;
  const uint64_t count = product_of(threads);
  if (count == 0 || count > kMaxThreads)
    return refuse(fmt::format("{}: {} x {} x {} threads per threadgroup; 1 to {} are possible", k.name, threads.x,
                              threads.y, threads.z, kMaxThreads));
  const uint64_t all = product_of(groups);
  if (all == 0 || all > UINT32_MAX || uint64_t(groups.x) * threads.x > UINT32_MAX ||
      uint64_t(groups.y) * threads.y > UINT32_MAX || uint64_t(groups.z) * threads.z > UINT32_MAX)
    return refuse(fmt::format("{}: a grid of {} x {} x {} threadgroups", k.name, groups.x, groups.y, groups.z));
  uint32_t memory = 0;
  for (const uint32_t bytes : next_.threadgroup_bytes) memory += bytes;
  if (memory > kThreadgroupBytes)
    return refuse(fmt::format("{}: {} bytes of threadgroup memory; {} are there", k.name, memory, kThreadgroupBytes));
  Dispatch d = next_;
  for (uint32_t i = 0; i < k.parameter_count; ++i) {
    const Parameter& p = k.parameters[i];
    if (!(next_.pipeline->required >> i & 1)) continue;
    if (p.attribute == Attribute::kThreadgroup && d.threadgroup_bytes[p.index] == 0)
      return refuse(fmt::format("{}: threadgroup({}) {} has no length", k.name, p.index, p.name));
    if (p.attribute != Attribute::kBuffer && p.attribute != Attribute::kConstantBuffer) continue;
    const Binding& b = d.bindings[p.index];
    if (!b.bound()) return refuse(fmt::format("{}: buffer({}) {} is not bound", k.name, p.index, p.name));
    if (p.reference && b.length < p.bytes)
      return refuse(fmt::format("{}: buffer({}) {} has {} bytes, the kernel reads {}", k.name, p.index, p.name,
                                b.length, p.bytes));
    if (b.bytes && p.writable)
      return refuse(fmt::format("{}: buffer({}) {} is written, but set as bytes", k.name, p.index, p.name));
  }
  for (Binding& b : d.bindings) {
    if (!b.buffer) continue;
    const auto own = buffer_barriers_.find(b.buffer.get());
    b.interval = barriers_ + (own == buffer_barriers_.end() ? 0 : own->second);
  }
  d.groups = groups;
  d.grid = grid;
  d.threads_per_threadgroup = threads;
  d.encoder = order_;
  d.interval = intervals_;
  commands_->state_->dispatches.push_back(std::move(d));
  if (type_ == DispatchType::kSerial) memory_barrier();
}

void Encoder::memory_barrier() {
  if (!usable("a barrier")) return;
  ++barriers_;
  ++intervals_;
}

void Encoder::memory_barrier(std::span<const std::shared_ptr<Buffer>> buffers) {
  if (!usable("a barrier")) return;
  for (const auto& b : buffers) ++buffer_barriers_[b.get()];
  ++intervals_;
}

void Encoder::update_fence(Fence& fence) {
  if (!usable("a fence")) return;
  std::vector<uint64_t> known = order_->known;
  known.push_back(order_->id);
  known.insert(known.end(), fence.known.begin(), fence.known.end());
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  fence.known = std::move(known);
}

void Encoder::wait_for_fence(const Fence& fence) {
  if (!usable("a fence")) return;
  order_->known.insert(order_->known.end(), fence.known.begin(), fence.known.end());
  std::sort(order_->known.begin(), order_->known.end());
  order_->known.erase(std::unique(order_->known.begin(), order_->known.end()), order_->known.end());
}

void Encoder::end() {
  if (!usable("an end")) return;
  ended_ = true;
  --commands_->state_->open_encoders;
}

}  // namespace honeycrisp::backend::metal::soft
