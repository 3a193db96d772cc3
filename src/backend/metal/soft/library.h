// Kernel modules: shared objects that hc_metal_kernels() makes of .metal files. Owns the loaded object; says which
// kernels it has. Libraries are read-only and may be used by several devices.
#pragma once

#include "backend/metal/soft/abi.h"
#include "base/result.h"

#include <memory>
#include <string>
#include <vector>

namespace honeycrisp::backend::metal::soft {

struct Function {
  const Unit* unit = nullptr;
  const KernelInfo* kernel = nullptr;
};

class Library {
 public:
  static Result<std::shared_ptr<const Library>> open(const std::string& path);
  /// The library `name` beside the running binary (metal/NAME.so, or metal/NAME.checked.so), where CMake puts it.
  static std::string default_path(const std::string& name, bool checked);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  bool checked() const { return module_->checked; }
  const std::string& path() const { return path_; }
  std::vector<std::string> function_names() const;
  Result<Function> function(const std::string& name) const;
  /// Whether the address lies in the library's image: its tables of constants, its code.
  bool contains(const void* p) const { return p >= begin_ && p < end_; }
  const void* begin() const { return begin_; }

 private:
  Library() = default;

  std::string path_;
  void* handle_ = nullptr;
  const Module* module_ = nullptr;
  const void *begin_ = nullptr, *end_ = nullptr;
};

}  // namespace honeycrisp::backend::metal::soft
