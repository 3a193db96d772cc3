#include "backend/metal/soft/library.h"

#include <algorithm>
#include <climits>
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

namespace honeycrisp::backend::metal::soft {
namespace {

struct Image {
  const void* inside;
  const char *begin = nullptr, *end = nullptr;
};

int find_image(dl_phdr_info* info, size_t, void* data) {
  auto& image = *static_cast<Image*>(data);
  const char *low = nullptr, *high = nullptr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
    const char* at = reinterpret_cast<const char*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    low = low ? std::min(low, at) : at;
    high = std::max(high, at + info->dlpi_phdr[i].p_memsz);
  }
  if (image.inside < low || image.inside >= high) return 0;
  image.begin = low;
  image.end = high;
  return 1;
}

}  // namespace

Result<std::shared_ptr<const Library>> Library::open(const std::string& path) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c"))
    return unsupported("the software Metal device needs a processor with AVX2, FMA and F16C");
  std::shared_ptr<Library> library(new Library);
  library->path_ = path;
  library->handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library->handle_) return Fail(ErrorCode::kNotFound, fmt::format("Metal library {}: {}", path, dlerror()));
  auto* table = reinterpret_cast<const Module* (*)()>(dlsym(library->handle_, kModuleSymbol));
  if (!table) return invalid("{}: not a Metal kernel library: it lacks {}", path, kModuleSymbol);
  library->module_ = table();
  if (library->module_->abi != kAbiVersion)
    return invalid("{}: built for version {} of the software device, this is {}; build it anew", path,
                   library->module_->abi, kAbiVersion);
  Image image{library->module_};
  dl_iterate_phdr(find_image, &image);
  library->begin_ = image.begin;
  library->end_ = image.end;
  *library->module_->armed = true;
  return std::shared_ptr<const Library>(std::move(library));
}

std::string Library::default_path(const std::string& name, bool checked) {
  char self[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof self);
  const std::string binary(self, n > 0 ? size_t(n) : 0);
  return binary.substr(0, binary.rfind('/') + 1) + "metal/" + name + (checked ? ".checked.so" : ".so");
}

Library::~Library() {
  if (handle_) dlclose(handle_);
}

std::vector<std::string> Library::function_names() const {
  std::vector<std::string> names;
  for (uint32_t u = 0; u < module_->unit_count; ++u)
    for (uint32_t k = 0; k < module_->units[u]->kernel_count; ++k)
      names.emplace_back(module_->units[u]->kernels[k].name);
  std::sort(names.begin(), names.end());
  return names;
}

Result<Function> Library::function(const std::string& name) const {
  for (uint32_t u = 0; u < module_->unit_count; ++u)
    for (uint32_t k = 0; k < module_->units[u]->kernel_count; ++k)
      if (name == module_->units[u]->kernels[k].name)
        return Function{module_->units[u], &module_->units[u]->kernels[k]};
  return Fail(ErrorCode::kNotFound, fmt::format("{}: no kernel named {}", path_, name));
}

}  // namespace honeycrisp::backend::metal::soft
