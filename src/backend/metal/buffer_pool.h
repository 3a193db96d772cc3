// Scratch memory of a step, by power-of-two classes of at least 4 KiB; what was given back last is given out first, so
// that it is still in the caches. Once a step's needs have been met it allocates no more.
#pragma once

#include "backend/metal/device.h"

#include <map>
#include <vector>

namespace honeycrisp::backend::metal {

class BufferPool {
 public:
  explicit BufferPool(Device& device) : device_(device) {}

  /// A view of `bytes` bytes. Error: no memory, with the size.
  Result<View> take(uint64_t bytes);
  void give_back(const View& view);
  /// All that is still out comes back: after a step, ended or not.
  void take_all_back();
  uint64_t memory_bytes() const { return bytes_; }

 private:
  struct Entry {
    std::shared_ptr<Buffer> buffer;
    bool out = false;
  };
  Device& device_;
  std::map<uint64_t, std::vector<Entry>> classes_;  // by bytes; the last free entry is the next
  uint64_t bytes_ = 0;
};

}  // namespace honeycrisp::backend::metal
