// The Metal device of the system, behind the interface of device.h.
#pragma once

#include "backend/metal/device.h"

#include <chrono>
#include <memory>

namespace honeycrisp::backend::metal {

struct SystemDeviceOptions {
  std::chrono::milliseconds idle{
      60'000};  // without work, until memory is kept resident no longer; the next step asks again
};

/// The same one as long as somebody holds it, with the options of whoever came first. Error: kUnsupported where there
/// is none, with the reason.
Result<std::shared_ptr<Device>> system_device(const SystemDeviceOptions& options = {});

}  // namespace honeycrisp::backend::metal
