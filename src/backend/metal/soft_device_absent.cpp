// The software Metal device of a build without it: it says so.
#include "backend/metal/soft_device.h"

namespace honeycrisp::backend::metal {

Result<void> soft_device_available(bool) {
  return unsupported("this honeycrisp was built without the software Metal device, which needs Linux on x86-64");
}

Result<std::shared_ptr<Device>> soft_device(const SoftDeviceOptions&) {
  return tl::unexpected<Error>(soft_device_available().error());
}

}  // namespace honeycrisp::backend::metal
