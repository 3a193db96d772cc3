#include "base/cgroup.h"

#include <fstream>
#include <sstream>

namespace honeycrisp {
namespace {

bool names_controller(const std::string& controllers, std::string_view wanted) {
  std::stringstream list(controllers);
  for (std::string name; std::getline(list, name, ',');)
    if (name == wanted) return true;
  return false;
}

}  // namespace

// Inside a container the path may be that of the host: then only the mount's root exists, which is the container's own
// group.
std::vector<CgroupFolder> cgroup_folders(const std::string& root, std::string_view controller) {
  std::vector<CgroupFolder> folders;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "hierarchy:controllers:path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    if (!v2 && !names_controller(controllers, controller)) continue;
    std::vector<std::string> mounts;
    if (v2) {
      mounts = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    } else {
      mounts = {"/sys/fs/cgroup/" + std::string(controller), "/sys/fs/cgroup/" + controllers};
    }
    for (std::string path = line.substr(second + 1);; path.resize(path.find_last_of('/'))) {
      while (!path.empty() && path.back() == '/') path.pop_back();
      for (const std::string& mount : mounts) folders.push_back({root + mount + path, v2});
      if (path.find('/') == std::string::npos) break;
    }
  }
  return folders;
}

}  // namespace honeycrisp
