// A compiled program of the cuda backend: weights, cache and scratch on the device, and steps of it.
// Generated rows run in one persistent kernel where the program and the device allow it (persistent_step.h). Else a
// step of few generated rows is a CUDA graph, captured once per shape (rows, rows that want logits, size class of the
// context) and replayed; every other step is issued launch by launch. Both run the same kernels in the same order.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/device.h"

#include <memory>
#include <string>

namespace honeycrisp::backend::cuda {

/// Whether it can run here at all. Errors: an op or a head without a kernel.
Result<void> check_program(const program::Program& program, const CompileOptions& options);
/// Of a checked program.
Plan make_plan(const program::Program& program, const CompileOptions& options, const DeviceInfo& device);
std::string description(const DeviceInfo& device);

/// Errors: heads without a kernel; more device memory than is free, with both numbers.
Result<std::unique_ptr<Executor>> make_executor(const program::Program& program, const CompileOptions& options,
                                                const DeviceInfo& device);

}  // namespace honeycrisp::backend::cuda
