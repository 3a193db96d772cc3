// What tests tell the look-alike Metal framework, and ask of it. The framework routes to the software device one to
// one; only the compiler is not there: a library's functions are found, by name, in those that the build compiled.
#pragma once

#include "backend/metal/soft/device.h"

namespace honeycrisp::backend::metal::framework {

struct System {
  std::shared_ptr<soft::Device> device;  // none: the system has no Metal device
  std::vector<std::shared_ptr<const soft::Library>> libraries;
  bool apple7 = true;
  uint32_t most_threads = 1024;  // of a threadgroup, of every pipeline
  uint64_t most_buffer_bytes = uint64_t{1} << 32;
  bool wraps_heap = false;  // which Apple's does not: for tests whose weights lie in vectors
};
/// What MTLCreateSystemDefaultDevice() gives from now on.
void set_system(System);

/// Objective-C objects that have not been deallocated; selectors that have no method end the process with a message.
long live_objects();
/// Pipelines that were compiled, not found in an archive, since the process began.
long compiled_pipelines();
/// Allocations in residency sets that took effect, over all sets.
long resident_allocations();

}  // namespace honeycrisp::backend::metal::framework
