// The Metal device of the system, behind the interface of device.h.
#pragma once

#include "backend/metal/device.h"

#include <memory>

namespace honeycrisp::backend::metal {

/// The same one as long as somebody holds it. Error: kUnsupported where there is none, with the reason.
Result<std::shared_ptr<Device>> system_device();

}  // namespace honeycrisp::backend::metal
