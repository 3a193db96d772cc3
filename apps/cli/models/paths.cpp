#include "cli/models/paths.h"

#include "base/mapped_file.h"
#include "base/text_escape.h"
#include "cli/term/terminal.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace honeycrisp::cli {
namespace {

/// The variable's value if it is set, not empty and (as XDG demands) an absolute path.
std::string absolute_path_from(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && value[0] == '/' ? value : "";
}

Result<std::string> folder_under(const char* xdg_variable, const char* below_home) {
  if (const std::string xdg = absolute_path_from(xdg_variable); !xdg.empty()) return xdg + "/honeycrisp";
  if (const std::string home = absolute_path_from("HOME"); !home.empty())
    return home + "/" + below_home + "/honeycrisp";
  return invalid("neither HOME nor {} is set: set HONEYCRISP_CACHE to a folder for models", xdg_variable);
}

#ifdef __APPLE__
constexpr const char* kCacheBelowHome = "Library/Caches";
#else
constexpr const char* kCacheBelowHome = ".cache";
#endif

}  // namespace

Result<std::string> cache_folder() {
  if (const char* own = std::getenv("HONEYCRISP_CACHE"); own != nullptr && *own != '\0') return std::string(own);
  return folder_under("XDG_CACHE_HOME", kCacheBelowHome);
}

Result<std::string> models_folder() {
  HC_ASSIGN(const std::string cache, cache_folder());
  return cache + "/models";
}

Result<std::string> kernel_folder() {
  HC_ASSIGN(const std::string cache, cache_folder());
  return cache + "/kernels";
}

Result<std::string> state_folder() { return folder_under("XDG_STATE_HOME", ".local/state"); }

Result<void> create_folders(const std::string& path) {
  for (size_t end = 1; end != std::string::npos;) {
    end = path.find('/', end);
    const std::string part = path.substr(0, end);
    if (end != std::string::npos) ++end;
    if (::mkdir(part.c_str(), 0700) == 0 || errno == EEXIST || errno == EISDIR) continue;
    return fail(ErrorCode::kIo, "cannot create the folder {}: {}", escape_for_display(part), std::strerror(errno));
  }
  if (std::error_code ignored; !std::filesystem::is_directory(path, ignored))
    return invalid("{} is not a folder", escape_for_display(path));
  return {};
}

Result<std::string> read_file(const std::string& path, size_t limit) {
  HC_ASSIGN(const MappedFile file, MappedFile::open(path, MappedFile::Mode::kRead));
  if (file.bytes().size() > limit) return invalid("{}: is longer than {} bytes", escape_for_display(path), limit);
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

Result<std::string> read_user_file(const std::string& path, size_t limit) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) return read_file(path, limit);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail(ErrorCode::kIo, "{}: cannot open: {}", escape_for_display(path), std::strerror(errno));
  Result<std::string> text = read_to_end(fd, escape_for_display(path), limit);
  ::close(fd);
  return text;
}

Result<void> write_file(const std::string& path, std::string_view bytes) {
  const std::string temporary = path + ".new";
  const auto failed = [&](const char* what) {
    const int code = errno;
    ::unlink(temporary.c_str());
    return fail(ErrorCode::kIo, "{}: cannot {}: {}", escape_for_display(path), what, std::strerror(code));
  };
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return failed("create it");
  const bool written = write_all(fd, bytes);
  if (::close(fd) != 0 || !written) return failed("write");
  if (std::rename(temporary.c_str(), path.c_str()) != 0) return failed("rename");
  return {};
}

}  // namespace honeycrisp::cli
