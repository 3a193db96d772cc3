#include "backend/metal/soft/executor.h"

#include "base/check.h"
#include "base/cpu_count.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>

namespace honeycrisp::backend::metal::soft {
namespace {

uint32_t count(const Size& s) { return s.x * s.y * s.z; }

/// Buffers and threadgroup arguments of a dispatch. `gap`: bytes between threadgroup arguments. Gives in `reserved`
/// what they hold and in `used` where they end.
Invocation invocation(const Dispatch& d, uint32_t gap, uint32_t& reserved, uint32_t& used) {
  Invocation call{};
  for (uint32_t i = 0; i < kMaxBuffers; ++i) {
    const Binding& b = d.bindings[i];
    if (b.buffer)
      call.buffers[i] = b.buffer->device_address(i) + b.offset;
    else if (b.bytes)
      call.buffers[i] = const_cast<unsigned char*>(b.bytes->data());  // kernels see it as constant
  }
  reserved = 0;
  used = gap;
  for (uint32_t i = 0; i < kMaxThreadgroupArguments; ++i) {
    call.threadgroup_offsets[i] = used;
    reserved += d.threadgroup_bytes[i];
    if (d.threadgroup_bytes[i] != 0) used += d.threadgroup_bytes[i] + gap;
  }
  const Size &t = d.threads_per_threadgroup, &g = d.groups, &n = d.grid;
  const uint32_t sizes[3][3] = {{t.x, t.y, t.z}, {g.x, g.y, g.z}, {n.x, n.y, n.z}};
  std::memcpy(call.threads_per_threadgroup, sizes[0], sizeof sizes[0]);
  std::memcpy(call.threadgroups_per_grid, sizes[1], sizeof sizes[1]);
  std::memcpy(call.threads_per_grid, sizes[2], sizeof sizes[2]);
  call.entry = d.pipeline->function.kernel->entry;
  return call;
}

bool run_group(Worker& worker, const Dispatch& d, uint32_t group, uint32_t shuffle = 0) {
  const Size &t = d.threads_per_threadgroup, &g = d.groups, &n = d.grid;
  const uint32_t position[3] = {group % g.x, group / g.x % g.y, group / g.x / g.y};
  const uint32_t size[3] = {std::min(t.x, n.x - position[0] * t.x), std::min(t.y, n.y - position[1] * t.y),
                            std::min(t.z, n.z - position[2] * t.z)};
  return worker.run(position, size, shuffle);
}

}  // namespace

Result<std::unique_ptr<Executor>> Executor::create(const DeviceOptions& options, std::shared_ptr<ReportLog> log) {
  std::unique_ptr<Executor> e(new Executor(options, std::move(log)));
  for (uint32_t i = 0; i < e->pool_.size(); ++i) {
    e->workers_.push_back(Worker::create(options.check));
    e->reporters_.emplace_back(*e->log_);
    if (!e->workers_.back())
      return Fail(ErrorCode::kOutOfMemory,
                  "no address space for the stacks of the software Metal device; give it fewer threads");
  }
  if (options.check) e->checker_ = std::make_unique<Checker>(*e->log_);
  e->thread_ = std::thread([self = e.get()] { self->serve(); });
  return e;
}

Executor::Executor(const DeviceOptions& options, std::shared_ptr<ReportLog> log)
    : options_(options),
      log_(std::move(log)),
      pool_(options.check     ? 1
            : options.threads ? options.threads
                              : usable_cores()),
      random_(options.seed) {}

Executor::~Executor() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Executor::submit(std::shared_ptr<CommandBuffer> commands) {
  const std::lock_guard lock(mutex_);
  const auto& state = commands->state_;
  state->number = ++commits_;
  for (const auto& encoder : state->encoders) {
    encoder->commit = state->number;
    encoder->completed = completed_;
  }
  if (options_.check) unobserved_.push_back(state);
  queue_.push_back(std::move(commands));
  changed_.notify_all();
}

uint64_t Executor::next_encoder() {
  const std::lock_guard lock(mutex_);
  return ++encoders_;
}

void Executor::observe(const CommandBuffer::State& state) {
  std::vector<std::shared_ptr<CommandBuffer::State>> observed;
  {
    const std::lock_guard lock(mutex_);
    completed_ = std::max(completed_, state.number);
    for (; !unobserved_.empty() && unobserved_.front()->number <= state.number; unobserved_.pop_front())
      observed.push_back(std::move(unobserved_.front()));
  }
  for (const auto& s : observed)
    for (const auto& [weak, written] : s->uses)
      if (const auto buffer = weak.lock()) buffer->end_use(written);
}

void Executor::serve() {
  for (;;) {
    std::shared_ptr<CommandBuffer> commands;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      commands = std::move(queue_.front());
      queue_.pop_front();
    }
    CommandBuffer::State& state = *commands->state_;
    const auto start = std::chrono::steady_clock::now();
    Result<void> result = state.result ? run(state.dispatches) : state.result;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    {
      const std::lock_guard lock(state.mutex);
      state.seconds = seconds;
      state.result = std::move(result);
      state.status = state.result ? Status::kCompleted : Status::kError;
    }
    if (!state.handlers.empty()) commands->observe();
    for (const auto& handler : state.handlers) handler(*commands);
    // Not under the mutex: what they hold may call back as it goes.
    state.dispatches.clear();
    state.handlers.clear();
    {
      const std::lock_guard lock(state.mutex);
      state.finished = true;
      state.changed.notify_all();
    }
  }
}

Result<void> Executor::run(const std::vector<Dispatch>& all) {
  if (checker_) return run_checked(all);
  for (size_t begin = 0, end; begin < all.size(); begin = end) {
    for (end = begin + 1;
         end < all.size() && all[end].encoder == all[begin].encoder && all[end].interval == all[begin].interval;)
      ++end;
    HC_TRY(run_at_once({all.data() + begin, end - begin}));
  }
  return {};
}

Error Executor::abandoned(const Dispatch& d) {
  const std::vector<Report> reports = log_->all();
  std::string why = "a fault that was reported before";
  for (const Report& r : reports)
    if (r.place.kernel == d.pipeline->function.kernel->name) why = to_string(r);
  return {ErrorCode::kInternal, fmt::format("kernel {} was stopped: {}", d.pipeline->function.kernel->name, why)};
}

Result<void> Executor::run_at_once(std::span<const Dispatch> dispatches) {
  struct Work {
    Executor& self;
    std::span<const Dispatch> dispatches;
    std::vector<Invocation> calls;
    std::vector<uint32_t> reserved, used;
    std::vector<uint64_t> first;  // number of each dispatch's first threadgroup; at the end of all
    uint64_t share;               // threadgroups that a thread takes at once
    std::atomic<uint64_t> next{0};
    std::atomic<const Dispatch*> failed{nullptr};

    void run(uint32_t thread) {
      Worker& worker = *self.workers_[thread];
      FaultReporter& reporter = self.reporters_[thread];
      size_t current = SIZE_MAX, i = 0;
      for (uint64_t begin; !failed.load(std::memory_order_relaxed) && (begin = next.fetch_add(share)) < first.back();) {
        for (uint64_t n = begin, end = std::min(begin + share, first.back()); n < end; ++n) {
          while (n >= first[i + 1]) ++i;
          const Dispatch& d = dispatches[i];
          if (i != current) {
            if (current == SIZE_MAX || dispatches[current].pipeline != d.pipeline) d.pipeline->apply_constants();
            reporter.set_dispatch(d);
            worker.begin(calls[i], reserved[i], used[i], 0, reporter);
            current = i;
          }
          if (!run_group(worker, d, uint32_t(n - first[i]))) failed = &d;
        }
      }
    }
  } work{*this, dispatches, {}, {}, {}, {0}, 1};
  for (const Dispatch& d : dispatches) {
    work.calls.push_back(invocation(d, 0, work.reserved.emplace_back(), work.used.emplace_back()));
    work.first.push_back(work.first.back() + count(d.groups));
  }
  work.share = std::max<uint64_t>(1, work.first.back() / (16 * pool_.size()));
  pool_.run([](void* w, uint32_t thread) { static_cast<Work*>(w)->run(thread); }, &work);
  if (const Dispatch* d = work.failed) return tl::unexpected(abandoned(*d));
  return {};
}

Result<void> Executor::run_checked(const std::vector<Dispatch>& all) {
  const cpu::FlushSubnormals flush;
  const auto random = [&] { return random_ = random_ * 1664525u + 1013904223u; };
  const auto shuffle = [&](std::vector<uint32_t>& order) {
    if (options_.seed == 0) return;
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[uint64_t(random()) * i >> 32]);
  };
  for (const Dispatch& d : all)
    for (uint32_t i = 0; i < kMaxBuffers; ++i)
      if (d.bindings[i].buffer && !d.bindings[i].buffer->device_address(i))
        return Fail(ErrorCode::kOutOfMemory,
                    fmt::format("{}: no address space for a mapping of buffer({}), {} bytes",
                                d.pipeline->function.kernel->name, i, d.bindings[i].buffer->length()));
  Result<void> result;
  checker_->begin_commands(all);
  for (size_t begin = 0, end; begin < all.size(); begin = end) {
    for (end = begin + 1;
         end < all.size() && all[end].encoder == all[begin].encoder && all[end].interval == all[begin].interval;)
      ++end;
    std::vector<uint32_t> order(end - begin);
    std::iota(order.begin(), order.end(), uint32_t(begin));
    shuffle(order);
    for (const uint32_t i : order) {
      const Dispatch& d = all[i];
      uint32_t reserved, used;
      const Invocation call = invocation(d, Checker::kGap, reserved, used);
      Worker& worker = *workers_[0];
      d.pipeline->apply_constants();
      checker_->begin_dispatch(d, call, worker.threadgroup_memory());
      worker.begin(call, reserved, used, Checker::kGap, *checker_);
      std::vector<uint32_t> groups(count(d.groups));
      std::iota(groups.begin(), groups.end(), 0u);
      shuffle(groups);
      for (const uint32_t group : groups) {
        checker_->begin_group(group);
        if (!run_group(worker, d, group, options_.seed ? random() | 1 : 0) && result)
          result = tl::unexpected(abandoned(d));
      }
    }
  }
  return result;
}

}  // namespace honeycrisp::backend::metal::soft
