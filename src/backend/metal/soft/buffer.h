// A buffer of the device. Checking, its memory is mapped once for the host and once for each binding index, so that an
// access tells by its address which binding it came through, and the host's mapping can be closed while the device may
// be using the memory. Not checking, or where the memory is the caller's, all are one mapping.
#pragma once

#include "backend/metal/soft/abi.h"
#include "backend/metal/soft/report.h"
#include "base/result.h"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace honeycrisp::backend::metal::soft {

/// Whether the device orders encoders that use a buffer by itself, as Metal does unless told that it is untracked.
enum class Hazards : uint8_t { kTracked, kUntracked };

class Buffer {
 public:
  /// Zeros, or, checking, NaN of every floating-point type: nothing may rely on what is not written.
  static Result<std::shared_ptr<Buffer>> allocate(size_t bytes, Hazards, std::shared_ptr<ReportLog> checking);
  /// The caller's memory, without a copy; page-aligned, whole pages. `release` is called when nothing uses it any more.
  /// Neither filled nor closed to the host.
  static Result<std::shared_ptr<Buffer>> wrap(void* memory, size_t bytes, std::function<void()> release, Hazards);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  size_t length() const { return length_; }
  void* contents() { return host_; }
  Hazards hazards() const { return hazards_; }
  const std::string& label() const { return label_; }
  void set_label(std::string label) { label_ = std::move(label); }

  // For the device:
  /// Where the memory is seen through a binding index. Null if the address space is exhausted.
  unsigned char* device_address(uint32_t index);
  /// A command buffer that reads or writes the memory was committed, or is known to have completed. Checking, the host
  /// may not touch what is written, nor write what is read, in between.
  void begin_use(bool written);
  void end_use(bool written);

 private:
  Buffer() = default;
  void protect();
  friend bool handle_fault(void* address, bool write, const void* pc);

  size_t length_ = 0, mapped_ = 0;
  unsigned char* host_ = nullptr;
  int file_ = -1;  // of shared memory that can be mapped again; -1: host_ is the only mapping
  bool owned_ = false;
  std::array<unsigned char*, kMaxBuffers> device_{};
  std::function<void()> release_;
  Hazards hazards_ = Hazards::kTracked;
  std::string label_;
  std::shared_ptr<ReportLog> checking_;  // buffers may outlive their device
  uint32_t readers_ = 0, writers_ = 0;   // command buffers not known to have completed; under the registry's mutex
  int protection_ = 3;                   // PROT_READ | PROT_WRITE; of the host's mapping
};

}  // namespace honeycrisp::backend::metal::soft
