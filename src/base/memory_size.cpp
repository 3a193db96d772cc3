#include "base/memory_size.h"

#include "base/cgroup.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <unistd.h>

namespace honeycrisp {
namespace {

// A number of bytes; "max" (no limit of version 2) and whatever else is none.
std::optional<uint64_t> read_limit(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  uint64_t bytes = 0;
  if (!std::getline(file, line)) return std::nullopt;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), bytes);
  if (error != std::errc() || end != line.data() + line.size() || bytes == 0) return std::nullopt;
  return bytes;
}

}  // namespace

uint64_t usable_memory(const std::string& root) {
  const long pages = sysconf(_SC_PHYS_PAGES), page_size = sysconf(_SC_PAGESIZE);
  const uint64_t machine = pages > 0 && page_size > 0 ? uint64_t(pages) * uint64_t(page_size) : 0;
  uint64_t least = machine == 0 ? UINT64_MAX : machine;
  for (const CgroupFolder& folder : cgroup_folders(root, "memory")) {
    const auto limit = read_limit(folder.path + (folder.v2 ? "/memory.max" : "/memory.limit_in_bytes"));
    if (limit) least = std::min(least, *limit);
  }
  return least == UINT64_MAX ? 0 : least;
}

}  // namespace honeycrisp
