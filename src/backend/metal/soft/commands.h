// What an encoder records: dispatches with their bindings and what orders them. Data, no behaviour.
#pragma once

#include "backend/metal/soft/buffer.h"
#include "backend/metal/soft/library.h"

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace honeycrisp::backend::metal::soft {

struct Size {
  uint32_t x = 1, y = 1, z = 1;
};

/// A kernel with its function constants: what a compute pipeline state is.
struct Pipeline {
  std::shared_ptr<const Library> library;
  Function function;
  std::vector<std::pair<const FunctionConstant*, std::vector<unsigned char>>> constants;  // of those that were given
  uint64_t required = 0;  // bit i: parameter i is there with these constants

  /// Gives the unit's function constants their values, on the calling thread.
  void apply_constants() const;
};

struct Binding {
  std::shared_ptr<Buffer> buffer;  // or none: then `bytes`, if there are any, are the argument
  size_t offset = 0, length = 0;   // of the view
  std::shared_ptr<const std::vector<unsigned char>> bytes;
  uint32_t interval = 0;  // barriers of the encoder so far that order this buffer
  bool bound() const { return buffer || bytes; }
};

/// The encoders that an encoder comes after, for buffers that the device does not track.
struct EncoderOrder {
  uint64_t id = 0;
  uint64_t commit = 0;          // number of its command buffer's commit
  uint64_t completed = 0;       // commits up to this one were known to have completed then
  std::vector<uint64_t> known;  // sorted: those that fences order before it
};

struct Dispatch {
  std::shared_ptr<const Pipeline> pipeline;
  std::array<Binding, kMaxBuffers> bindings;
  std::array<uint32_t, kMaxThreadgroupArguments> threadgroup_bytes{};
  Size groups, threads_per_threadgroup;
  Size grid;  // threads; edge threadgroups are smaller where it is no multiple
  std::shared_ptr<EncoderOrder> encoder;
  uint32_t interval =
      0;  // barriers of any kind before it in its encoder; one serial encoder's dispatch each has its own
};

}  // namespace honeycrisp::backend::metal::soft
