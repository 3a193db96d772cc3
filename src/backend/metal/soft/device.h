// The software Metal device: the part of Metal's compute API that the project's host needs, with Metal's meaning, in
// C++. A look-alike of Apple's framework routes here one to one.
//
// Everything is thread-safe as Metal's is: devices, buffers and pipelines from any thread, an encoder or command buffer
// from one at a time. Command buffers run in the order of their commit, on the device's own thread and pool.
//
// Checking (DeviceOptions::check), the device takes checked libraries, runs one threadgroup at a time, and reports what
// it finds (report.h); docs/metal.md says what that is and what it cannot be.
#pragma once

#include "backend/metal/soft/buffer.h"
#include "backend/metal/soft/commands.h"
#include "backend/metal/soft/library.h"
#include "backend/metal/soft/report.h"
#include "base/result.h"

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace honeycrisp::backend::metal::soft {

struct DeviceOptions {
  bool check = false;
  uint32_t threads = 0;  // of the pool; 0: one per core. Checking uses one
  uint32_t seed = 0;     // checking: ≠ 0 shuffles what may run in any order
  size_t report_limit = 100;
};

class CommandBuffer;
class Encoder;
class Executor;

/// Values of function constants by index.
class FunctionConstants {
 public:
  template <class T>
  FunctionConstants& set(uint32_t index, T value) {
    const auto* p = reinterpret_cast<const unsigned char*>(&value);
    values_[index].assign(p, p + sizeof value);
    return *this;
  }
  const std::map<uint32_t, std::vector<unsigned char>>& values() const { return values_; }

 private:
  std::map<uint32_t, std::vector<unsigned char>> values_;
};

/// Orders the encoder that waits for it after the one that updated it.
struct Fence {
  std::vector<uint64_t> known;
};

class Device : public std::enable_shared_from_this<Device> {
 public:
  static Result<std::shared_ptr<Device>> create(const DeviceOptions& = {});
  ~Device();  // waits for what was committed
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceOptions& options() const { return options_; }
  Result<std::shared_ptr<Buffer>> new_buffer(size_t bytes, Hazards = Hazards::kTracked);
  Result<std::shared_ptr<Buffer>> wrap_memory(void* memory, size_t bytes, std::function<void()> release,
                                              Hazards = Hazards::kTracked);
  /// By path, or, without a slash, by the name that hc_metal_kernels() gave it.
  Result<std::shared_ptr<const Library>> open_library(const std::string& name_or_path);
  /// Every function constant that the kernel's file declares and `constants` does not give is zero and undefined.
  Result<std::shared_ptr<const Pipeline>> new_pipeline(const std::shared_ptr<const Library>&,
                                                       const std::string& function,
                                                       const FunctionConstants& constants = {});
  std::shared_ptr<CommandBuffer> new_command_buffer();
  std::shared_ptr<Fence> new_fence() { return std::make_shared<Fence>(); }

  std::vector<Report> reports() const { return log_->all(); }
  /// All that was met, repetitions and what exceeds the limit included.
  uint64_t faults_met() const { return log_->met(); }
  void clear_reports() { log_->clear(); }

 private:
  friend class CommandBuffer;
  friend class Encoder;
  explicit Device(const DeviceOptions&);

  DeviceOptions options_;
  std::shared_ptr<ReportLog> log_;
  std::unique_ptr<Executor> executor_;
};

enum class DispatchType : uint8_t { kSerial, kConcurrent };

enum class Status : uint8_t { kEncoding, kCommitted, kCompleted, kError };

class CommandBuffer : public std::enable_shared_from_this<CommandBuffer> {
 public:
  std::shared_ptr<Encoder> new_encoder(DispatchType);
  /// Called on the device's thread after the last dispatch, in order of adding. Before commit only; later ones are
  /// reported and not called.
  void on_completed(std::function<void(CommandBuffer&)>);
  /// Every encoder must have been ended. Nothing can be encoded afterwards: what is tried is reported.
  void commit();
  /// Until completed and all handlers have returned; from then on the host may touch what this and the command buffers
  /// committed before it wrote. A handler does not wait for itself.
  void wait();
  Status status();
  /// What went wrong while encoding or running; the dispatches after it did not run.
  Result<void> result();
  /// Time that the dispatches took, in seconds; 0 before completion.
  double seconds();

 private:
  friend class Device;
  friend class Encoder;
  friend class Executor;
  explicit CommandBuffer(std::shared_ptr<Device>);
  void observe();  // the host knows of the completion
  void fail(Error);
  bool encoding(const char* what);  // else what is tried is reported

  std::shared_ptr<Device> device_;
  struct State;
  std::shared_ptr<State> state_;
};

class Encoder {
 public:
  void set_pipeline(std::shared_ptr<const Pipeline>);
  /// `length` bytes from `offset` are what kernels may touch; kToEnd: all the rest. Only the software device can be
  /// told so: a view inside a large buffer is then guarded as a buffer is.
  static constexpr size_t kToEnd = SIZE_MAX;
  void set_buffer(std::shared_ptr<Buffer>, size_t offset, uint32_t index, size_t length = kToEnd);
  void set_bytes(std::span<const unsigned char> bytes, uint32_t index);
  template <class T>
  void set_value(const T& value, uint32_t index) {
    set_bytes({reinterpret_cast<const unsigned char*>(&value), sizeof value}, index);
  }
  void set_threadgroup_memory(uint32_t bytes, uint32_t index);  // a multiple of 16
  void dispatch_threadgroups(Size groups, Size threads_per_threadgroup);
  void dispatch_threads(Size grid, Size threads_per_threadgroup);
  /// Orders what was dispatched before after it, for all buffers or for these.
  void memory_barrier();
  void memory_barrier(std::span<const std::shared_ptr<Buffer>> buffers);
  void update_fence(Fence&);  // what this encoder does, for those who wait for the fence
  void wait_for_fence(const Fence&);
  void end();

 private:
  friend class CommandBuffer;
  Encoder(std::shared_ptr<CommandBuffer>, DispatchType, std::shared_ptr<EncoderOrder>);
  void record(Size groups, Size grid, Size threads);
  bool usable(const char* what);

  std::shared_ptr<CommandBuffer> commands_;
  const DispatchType type_;
  std::shared_ptr<EncoderOrder> order_;
  Dispatch next_;
  uint32_t barriers_ = 0, intervals_ = 0;  // for all buffers; of any kind
  std::map<Buffer*, uint32_t> buffer_barriers_;
  bool ended_ = false;
};

}  // namespace honeycrisp::backend::metal::soft
