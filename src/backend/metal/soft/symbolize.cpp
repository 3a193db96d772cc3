#include "backend/metal/soft/symbolize.h"

#include <cerrno>
#include <cstdlib>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace honeycrisp::backend::metal::soft {
namespace {

std::string output_of(const char* const* arguments) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, arguments[0], &actions, nullptr, const_cast<char**>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string out;
  if (failed == 0) {
    char chunk[4096];
    for (ssize_t n; (n = read(ends[0], chunk, sizeof chunk)) > 0 || (n < 0 && errno == EINTR);)
      if (n > 0) out.append(chunk, size_t(n));
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
  }
  close(ends[0]);
  return out;
}

}  // namespace

SourceLine source_line(const std::string& binary, uint64_t address) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, uint64_t>, SourceLine> known;
  const std::lock_guard lock(mutex);
  const auto key = std::pair(binary, address);
  if (const auto it = known.find(key); it != known.end()) return it->second;
  const std::string hex = fmt::format("0x{:x}", address);
  const char* arguments[] = {"addr2line", "-i", "-e", binary.c_str(), hex.c_str(), nullptr};
  std::istringstream lines(output_of(arguments));
  SourceLine best;
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.rfind(':');
    if (colon == std::string::npos || std::atoi(line.c_str() + colon + 1) <= 0) continue;  // "??:0", "file.cpp:?"
    const bool metal = line.compare(0, colon, "") != 0 && line.substr(0, colon).ends_with(".metal");
    if (!best.file.empty() && !metal) continue;
    const size_t slash = line.rfind('/', colon);
    best = {
        line.substr(slash == std::string::npos ? 0 : slash + 1, colon - (slash == std::string::npos ? 0 : slash + 1)),
        std::atoi(line.c_str() + colon + 1)};
    if (metal) break;
  }
  return known[key] = best;
}

SourceLine source_line_of_return(const void* pc) {
  Dl_info info;
  if (!pc || dladdr(pc, &info) == 0 || !info.dli_fname) return {};
  return source_line(info.dli_fname,
                     uint64_t(static_cast<const char*>(pc) - static_cast<const char*>(info.dli_fbase)) - 1);
}

}  // namespace honeycrisp::backend::metal::soft
