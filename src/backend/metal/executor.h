// Compiles a program for a Metal device and steps it: the whole step is one command buffer, with one wait, unless an op
// has to go to the reference backend.
#pragma once

#include "backend/backend.h"
#include "backend/metal/debug.h"
#include "backend/metal/device.h"

#include <memory>

namespace honeycrisp::backend::metal {

/// Error: what no Metal device can run of the program. An op without state that has no kernel goes to `reference`.
Result<void> check_program(const program::Program& program, const CompileOptions& options);

/// What would run, as found by encoding one generated row, and two of a prompt, without a device. `device_bytes` as in
/// Plan.
Result<Plan> make_plan(const program::Program& program, const CompileOptions& options, std::string backend,
                       uint64_t device_bytes);

Result<std::unique_ptr<Executor>> make_executor(std::shared_ptr<Device> device, const program::Program& program,
                                                const CompileOptions& options, DebugSwitches debug = {});

}  // namespace honeycrisp::backend::metal
