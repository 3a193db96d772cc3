// The software Metal device behind the interface of device.h. Kernels come from a library beside the running
// binary, metal/backend_kernels.so or metal/backend_kernels.checked.so.
#pragma once

#include "backend/metal/device.h"

#include <memory>

namespace honeycrisp::backend::metal {

struct SoftDeviceOptions {
  bool check = false;    // a fault that it finds fails the command buffer and is told as its error
  uint32_t threads = 0;  // 0: one per core
  uint32_t seed = 0;     // checking: ≠ 0 shuffles what may run in any order
};

/// Error: kUnsupported where this build has no software device or the processor cannot run it, with the reason.
Result<std::shared_ptr<Device>> soft_device(const SoftDeviceOptions& options);
/// Whether it is there, with its kernels (`check`: those that report each access); makes nothing.
Result<void> soft_device_available(bool check = false);

}  // namespace honeycrisp::backend::metal
