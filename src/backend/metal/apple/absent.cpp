// Systems without Metal: they say so.
#include "backend/metal/apple/device.h"

namespace honeycrisp::backend::metal {

Result<std::shared_ptr<Device>> system_device(const SystemDeviceOptions&) {
  return unsupported("Metal is there on Apple systems only");
}

}  // namespace honeycrisp::backend::metal
