// What the backend needs of Metal, as a C++ interface: buffers, pipelines, command buffers with one concurrent compute
// encoder each. Two implementations: apple/device.mm over Apple's framework, soft_device.cpp over the software device.
// Knows nothing of programs, ops or weights' formats.
#pragma once

#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace honeycrisp::backend::metal {

inline constexpr uint32_t kSimdWidth = 32;
inline constexpr uint32_t kMostThreadgroupMemory = 32 * 1024;  // bytes
inline constexpr uint32_t kMostBindings = 31;                  // buffers of a kernel

/// Threadgroups, or threads of one.
struct Size {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual uint64_t bytes() const = 0;
  /// Shared with the device: only between a wait and the next commit that uses the buffer.
  virtual std::byte* contents() = 0;
};

/// Bytes [offset, offset + bytes) of a buffer, as a kernel may touch them.
struct View {
  Buffer* buffer = nullptr;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  explicit operator bool() const { return buffer != nullptr; }
};

class Pipeline {
 public:
  virtual ~Pipeline() = default;
  virtual uint32_t most_threads() const = 0;  // of a threadgroup
  virtual std::string_view name() const = 0;  // kernel and constants, for people
};

/// One value of a function constant. Kernels of the project have constants of these types only.
struct Constant {
  enum class Type : uint8_t { kBool, kUint, kFloat } type = Type::kUint;
  uint32_t index = 0;
  uint32_t bits = 0;
  bool operator==(const Constant&) const = default;
  auto operator<=>(const Constant&) const = default;
};
inline Constant constant(uint32_t index, bool value) { return {Constant::Type::kBool, index, value ? 1u : 0u}; }
inline Constant constant(uint32_t index, uint32_t value) { return {Constant::Type::kUint, index, value}; }
inline Constant constant(uint32_t index, float value) {
  Constant c{Constant::Type::kFloat, index, 0};
  std::memcpy(&c.bits, &value, sizeof value);
  return c;
}

/// Records dispatches, which the device may run at the same time and in any order between two barriers.
class Encoder {
 public:
  virtual ~Encoder() = default;
  virtual void set_pipeline(const Pipeline& pipeline) = 0;
  virtual void set_buffer(uint32_t index, const View& view) = 0;
  virtual void set_bytes(uint32_t index, std::span<const std::byte> bytes) = 0;  // at most 4 KiB
  virtual void set_threadgroup_memory(uint32_t index, uint32_t bytes) = 0;       // a multiple of 16
  virtual void dispatch(Size threadgroups, Size threads_per_threadgroup) = 0;
  virtual void barrier() = 0;  // orders all before it before all after it
};

class CommandBuffer {
 public:
  virtual ~CommandBuffer() = default;
  virtual Encoder& encoder() = 0;
  virtual void commit() = 0;  // nothing can be encoded afterwards
  /// Until completed. Error: what the device says of a command buffer that failed.
  virtual Result<void> wait() = 0;
  virtual double gpu_seconds() const = 0;  // after wait(); 0 where the device does not tell
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string describe() const = 0;               // one line, for people
  virtual uint64_t most_buffer_bytes() const = 0;         // of one buffer
  virtual uint64_t recommended_memory_bytes() const = 0;  // that all buffers together should stay below; 0: not known
  /// Multiply-adds of a command buffer, after which a step goes on in another: the system ends those that keep a GPU
  /// from drawing for seconds, and between two of them a step can be stopped. A small GPU does so many in about a
  /// second; a few generated rows never reach it.
  virtual uint64_t most_work() const { return uint64_t{1} << 40; }
  virtual Result<std::shared_ptr<Buffer>> allocate(uint64_t bytes, std::string label) = 0;
  /// The caller's pages, without a copy; page-aligned. `release` is called when nothing uses them any more.
  virtual Result<std::shared_ptr<Buffer>> wrap(std::byte* memory, uint64_t bytes, std::function<void()> release,
                                               std::string label) = 0;
  /// `file`: stem of the .metal file that holds the kernel. Constants that are not given are undefined in the kernel.
  virtual Result<std::shared_ptr<const Pipeline>> pipeline(std::string_view file, std::string_view kernel,
                                                           std::span<const Constant> constants) = 0;
  virtual Result<std::unique_ptr<CommandBuffer>> command_buffer(std::string label) = 0;

  /// From now on pipelines are taken from what earlier runs kept in this folder, and store_pipelines() keeps those that
  /// had to be compiled. What cannot be read or written is told once and done without. Nothing where nothing is
  /// compiled.
  virtual void keep_pipelines_in(const std::string& folder) { (void)folder; }
  /// Quick if nothing was compiled since the last time.
  virtual void store_pipelines() {}
};

}  // namespace honeycrisp::backend::metal
