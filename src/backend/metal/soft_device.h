// The software Metal device behind the interface of device.h. Kernels come from a library beside the running
// binary, metal/backend_kernels.so or metal/backend_kernels.checked.so.
#pragma once

#include "backend/metal/device.h"

#include <memory>
#include <vector>

namespace honeycrisp::backend::metal {

namespace soft {
class Device;
class Library;
}  // namespace soft
using SoftLibraries = std::vector<std::shared_ptr<const soft::Library>>;

struct SoftDeviceOptions {
  bool check = false;    // a fault that it finds fails the command buffer and is told as its error
  uint32_t threads = 0;  // 0: one per core
  uint32_t seed = 0;     // checking: ≠ 0 shuffles what may run in any order
};

/// Error: kUnsupported where this build has no software device or the processor cannot run it, with the reason.
Result<std::shared_ptr<Device>> soft_device(const SoftDeviceOptions& options);
/// Around a device of the caller's, who reads its reports: they fail nothing. A kernel is that of the first library
/// that has it.
std::shared_ptr<Device> soft_device_around(std::shared_ptr<soft::Device> device, SoftLibraries libraries);
/// Whether it is there, with its kernels (`check`: those that report each access); makes nothing.
Result<void> soft_device_available(bool check = false);

}  // namespace honeycrisp::backend::metal
