// Encodes the dispatches of a step and puts a barrier exactly where data flows: each binding says how the kernel uses
// it, and a dispatch that meets what an unordered one wrote (or would write what it reads) gets a barrier before it.
// Counts launches, barriers and bytes. Knows nothing of ops.
#pragma once

#include "backend/metal/device.h"

#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace honeycrisp::backend::metal {

enum class Access : uint8_t { kRead, kWrite };  // kWrite: or both

class StepEncoder {
 public:
  explicit StepEncoder(Encoder& encoder) : encoder_(encoder) {}

  void pipeline(const Pipeline& pipeline);  // which Pipelines has compared with the threads of dispatch()
  void read(uint32_t index, const View& view);
  void write(uint32_t index, const View& view);
  /// Bytes that never change while the step runs (weights, tables): read, and left out of the bookkeeping.
  void constant(uint32_t index, const View& view);
  template <class T>
  void args(uint32_t index, const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 4096);
    encoder_.set_bytes(index, std::as_bytes(std::span(&value, 1)));
  }
  /// Of the next dispatch; an encoder would keep it for later ones, which may not have the argument.
  void threadgroup_memory(uint32_t index, uint32_t bytes);
  void dispatch(Size threadgroups, Size threads_per_threadgroup);

  uint32_t launches() const { return launches_; }
  uint32_t barriers() const { return barriers_; }

 private:
  struct Use {
    View view;
    Access access;
  };
  Encoder& encoder_;
  const Pipeline* pipeline_ = nullptr;
  std::vector<Use> next_;                      // of the dispatch being put together
  uint32_t memory_next_ = 0, memory_set_ = 0;  // bit i: threadgroup argument i has memory, next and in the encoder
  std::vector<Use> unordered_;                 // of the dispatches since the last barrier
  uint32_t launches_ = 0, barriers_ = 0;
};

}  // namespace honeycrisp::backend::metal
