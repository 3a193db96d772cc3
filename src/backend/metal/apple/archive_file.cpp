#include "backend/metal/apple/archive_file.h"

#include "base/text_escape.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace honeycrisp::backend::metal {
namespace {

/// FNV-1a, a zero after each text, so that texts cannot run into each other.
class Hash {
 public:
  void add(std::string_view text) {
    for (const char c : text) add(uint8_t(c));
    add(uint8_t{0});
  }
  uint64_t value() const { return value_; }

 private:
  void add(uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001b3; }
  uint64_t value_ = 0xcbf29ce484222325;
};

Result<void> make_folder(const std::string& folder) {
  std::error_code error;
  if (std::filesystem::is_directory(folder, error)) return {};
  const std::filesystem::path parent = std::filesystem::path(folder).parent_path();
  if (!parent.empty() && parent != folder) HC_TRY(make_folder(parent.string()));
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return fail(ErrorCode::kIo, "cannot create the folder {}: {}", escape_for_display(folder), std::strerror(errno));
  return {};
}

}  // namespace

ArchiveFile::ArchiveFile(const std::string& folder, std::string_view gpu, std::string_view system,
                         std::span<const EmbeddedFile> kernels) {
  Hash hash;
  hash.add(gpu);
  hash.add(system);
  for (const EmbeddedFile& file : kernels) {
    hash.add(file.path);
    hash.add(file.text);
  }
  path_ = fmt::format("{}/metal-{:016x}.archive", folder, hash.value());
}

bool ArchiveFile::exists() const {
  std::error_code error;
  return std::filesystem::exists(path_, error);
}

Result<void> ArchiveFile::replace(const std::function<Result<void>(const std::string& path)>& write) const {
  HC_TRY(make_folder(std::filesystem::path(path_).parent_path().string()));
  const std::string beside = fmt::format("{}.{}", path_, ::getpid());
  std::remove(beside.c_str());  // of an earlier process with this number
  Result<void> written = write(beside);
  if (written && std::rename(beside.c_str(), path_.c_str()) != 0)
    written = fail(ErrorCode::kIo, "{}: cannot rename: {}", escape_for_display(beside), std::strerror(errno));
  if (!written) std::remove(beside.c_str());
  return written;
}

}  // namespace honeycrisp::backend::metal
