// A compiled program of the cpu backend: its kernels, its memory and the threads that run a whole step together.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/op_kernel.h"

#include <memory>
#include <string>
#include <vector>

namespace honeycrisp::backend::cpu {

using Kernels = std::vector<std::unique_ptr<OpKernel>>;  // parallel to Program::steps

Result<Kernels> make_kernels(const program::Program& program, const Target& target);

/// Launches and barriers are those of a step of one row that wants logits, within the first attention chunk.
Plan make_plan(const program::Program& program, const Kernels& kernels, const CompileOptions& options, const Isa& isa,
               uint32_t threads, std::string backend);

/// Errors: a format without a kernel; options that ask for nothing; not enough memory, with the size.
Result<std::unique_ptr<Executor>> make_executor(const program::Program& program, const CompileOptions& options,
                                                const Isa& isa, uint32_t threads, std::string backend);

}  // namespace honeycrisp::backend::cpu
