// The CUDA runtime as values: errors that name the call's purpose, and memory that frees itself.
// Everything is on the current device (the first that CUDA_VISIBLE_DEVICES leaves).
#pragma once

#include "base/result.h"

#include <cstdint>
#include <string>
#include <utility>

namespace honeycrisp::backend::cuda {

/// An error "CUDA: <what>: <the runtime's text> (<number>)" unless `status` is 0; clears the runtime's sticky copy.
Result<void> check_cuda(int status, const std::string& what);

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  uint32_t multiprocessors = 0;
  uint64_t memory_bytes = 0;
  uint32_t shared_bytes = 0;  // dynamic shared memory that a block may have, some static one put aside
};
/// Errors: no driver, no device, a device for which this build has no kernels. Looked up once.
const Result<DeviceInfo>& device();

/// Free and total bytes of the device now.
Result<std::pair<uint64_t, uint64_t>> free_memory();

/// An allocation of device memory, or of pinned host memory.
class Memory {
 public:
  enum class Place : uint8_t { kDevice, kHost };
  /// Error: out of memory, with what for, the size, and what is free.
  static Result<Memory> allocate(uint64_t bytes, const std::string& what, Place place = Place::kDevice);

  Memory() = default;
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    Memory taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~Memory();

  template <class T = uint8_t>
  T* as(uint64_t offset = 0) const {
    return reinterpret_cast<T*>(data_ + offset);
  }
  uint64_t bytes() const { return bytes_; }

 private:
  void swap(Memory& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(place_, other.place_);
  }
  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
  Place place_ = Place::kDevice;
};

/// Places regions one after another in one allocation, each aligned to 256 bytes; an overflow makes total() useless and
/// is reported by overflow().
class Layout {
 public:
  uint64_t add(uint64_t count, uint64_t size);
  uint64_t total() const { return total_; }
  bool overflow() const { return overflow_; }

 private:
  uint64_t total_ = 0;
  bool overflow_ = false;
};

}  // namespace honeycrisp::backend::cuda
