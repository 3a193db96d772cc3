// A device around another: counts what is asked of it, keeps what each dispatch was given, and can make one edit of
// what is encoded, as a fault of the host would. Knows nothing of ops.
#pragma once

#include "backend/metal/device.h"

#include <algorithm>
#include <map>
#include <set>

namespace honeycrisp::backend::metal::testing {

/// One fault in what a step encodes. Dispatches and barriers are counted from 0 since Trace::clear().
struct Edit {
  enum class Kind : uint8_t { kNone, kDropBarrier, kSwap, kShorten, kAdvance } kind = Kind::kNone;
  uint32_t at = 0;                // barrier or dispatch
  uint32_t index = 0, other = 0;  // bindings
  uint64_t bytes = 0;             // kShorten: what is left of the view; kAdvance: by which it begins too late
};

struct Trace {
  struct Dispatch {
    std::string kernel;
    std::map<uint32_t, View> views;  // by binding, as set for this dispatch
  };
  uint64_t allocations = 0;
  std::set<const Buffer*> wrapped;  // buffers around the caller's memory: weights
  std::vector<Dispatch> dispatches;
  uint32_t barriers = 0;
  Edit edit;

  void clear() {
    dispatches.clear();
    barriers = 0;
  }
};

class TracedDevice final : public Device {
 public:
  explicit TracedDevice(std::shared_ptr<Device> inner) : inner_(std::move(inner)) {}
  Trace trace;
  uint64_t work = UINT64_MAX;  // most_work()

  std::string describe() const override { return inner_->describe(); }
  uint64_t most_buffer_bytes() const override { return inner_->most_buffer_bytes(); }
  uint64_t recommended_memory_bytes() const override { return inner_->recommended_memory_bytes(); }
  uint64_t most_work() const override { return work; }
  Result<std::shared_ptr<Buffer>> allocate(uint64_t bytes, std::string label) override {
    ++trace.allocations;
    return inner_->allocate(bytes, std::move(label));
  }
  Result<std::shared_ptr<Buffer>> wrap(std::byte* memory, uint64_t bytes, std::function<void()> release,
                                       std::string label) override {
    HC_ASSIGN(auto buffer, inner_->wrap(memory, bytes, std::move(release), std::move(label)));
    trace.wrapped.insert(buffer.get());
    return buffer;
  }
  Result<std::shared_ptr<const Pipeline>> pipeline(std::string_view file, std::string_view kernel,
                                                   std::span<const Constant> constants) override {
    return inner_->pipeline(file, kernel, constants);
  }
  Result<std::unique_ptr<CommandBuffer>> command_buffer(std::string label) override {
    HC_ASSIGN(auto commands, inner_->command_buffer(std::move(label)));
    return std::make_unique<Commands>(std::move(commands), trace);
  }

 private:
  class TracedEncoder final : public Encoder {
   public:
    TracedEncoder(Encoder& inner, Trace& trace) : inner_(inner), trace_(trace) {}
    void set_pipeline(const Pipeline& pipeline) override {
      next_.kernel = pipeline.name();
      inner_.set_pipeline(pipeline);
    }
    void set_buffer(uint32_t index, const View& view) override { next_.views[index] = view; }
    void set_bytes(uint32_t index, std::span<const std::byte> bytes) override { inner_.set_bytes(index, bytes); }
    void set_threadgroup_memory(uint32_t index, uint32_t bytes) override {
      inner_.set_threadgroup_memory(index, bytes);
    }
    void dispatch(Size threadgroups, Size threads) override {
      std::map<uint32_t, View> views = next_.views;
      const Edit& e = trace_.edit;
      if (e.at == trace_.dispatches.size()) {
        if (e.kind == Edit::Kind::kSwap) std::swap(views.at(e.index), views.at(e.other));
        // Wherever it is bound: the checking device lets a kernel touch what any binding shows.
        if (e.kind == Edit::Kind::kShorten) {
          const View cut = views.at(e.index);
          for (auto& [index, view] : views)
            if (view.buffer == cut.buffer && view.offset == cut.offset && view.bytes == cut.bytes) view.bytes = e.bytes;
        }
        if (e.kind == Edit::Kind::kAdvance) {
          View& late = views.at(e.index);
          late.offset += e.bytes;
          late.bytes -= e.bytes;
        }
      }
      for (const auto& [index, view] : views) inner_.set_buffer(index, view);
      inner_.dispatch(threadgroups, threads);
      trace_.dispatches.push_back(std::exchange(next_, {}));
    }
    void barrier() override {
      const bool dropped = trace_.edit.kind == Edit::Kind::kDropBarrier && trace_.edit.at == trace_.barriers;
      ++trace_.barriers;
      if (!dropped) inner_.barrier();
    }

   private:
    Encoder& inner_;
    Trace& trace_;
    Trace::Dispatch next_;
  };

  class Commands final : public CommandBuffer {
   public:
    Commands(std::unique_ptr<CommandBuffer> inner, Trace& trace)
        : inner_(std::move(inner)), encoder_(inner_->encoder(), trace) {}
    Encoder& encoder() override { return encoder_; }
    void commit() override { inner_->commit(); }
    Result<void> wait() override { return inner_->wait(); }
    double gpu_seconds() const override { return inner_->gpu_seconds(); }

   private:
    std::unique_ptr<CommandBuffer> inner_;
    TracedEncoder encoder_;
  };

  std::shared_ptr<Device> inner_;
};

}  // namespace honeycrisp::backend::metal::testing
