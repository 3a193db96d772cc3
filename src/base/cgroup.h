// Where the control groups of this process keep their limits. Knows Linux's files, not what the limits mean.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace honeycrisp {

struct CgroupFolder {
  std::string path;
  bool v2 = false;  // else version 1
};

/// Folders that may hold limits of a controller ("cpu", "memory"): of the process's group and every ancestor. Not all
/// of them need exist. `root` is put before every path (for tests).
std::vector<CgroupFolder> cgroup_folders(const std::string& root, std::string_view controller);

}  // namespace honeycrisp
