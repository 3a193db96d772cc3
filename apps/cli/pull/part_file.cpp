#include "cli/pull/part_file.h"

#include "base/text_escape.h"
#include "cli/models/paths.h"
#include "cli/term/messages.h"
#include "cli/term/terminal.h"

#include <boost/json.hpp>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <utility>

namespace honeycrisp::cli {
namespace {

namespace json = boost::json;

constexpr uint64_t kDiskReserve = 16 << 20;  // bytes left free beyond the file itself
constexpr size_t kStateLimit = 64 * 1024;

std::string state_path(const std::string& path) { return path + ".json"; }

tl::unexpected<Error> os_error(const std::string& path, const char* what) {
  return fail(ErrorCode::kIo, "{}: {}: {}", escape_for_display(path), what, std::strerror(errno));
}

/// The validator of an earlier try at the same URL; nullopt: there is none that can be trusted.
std::optional<PartFile::Validator> read_state(const std::string& path, const std::string& url) {
  const Result<std::string> text = read_file(state_path(path), kStateLimit);
  if (!text) return std::nullopt;
  boost::system::error_code error;
  const json::value value = json::parse(*text, error);
  if (error || !value.is_object()) return std::nullopt;
  const auto field = [&](std::string_view key) {
    const json::value* v = value.get_object().if_contains(key);
    return v != nullptr && v->is_string() ? std::string(v->get_string()) : std::string();
  };
  const std::string etag = field("etag"), modified = field("last_modified");
  const bool is_one_line = (etag + modified).find_first_of("\r\n") == std::string::npos;
  if (field("url") != url || !is_one_line) return std::nullopt;
  return PartFile::Validator{etag, modified};
}

}  // namespace

Result<void> check_disk_space(const std::string& folder, uint64_t bytes) {
  struct statvfs info{};
  if (::statvfs(folder.c_str(), &info) != 0) return {};  // unknown is not too little: the write will tell
  const uint64_t available = uint64_t(info.f_bavail) * info.f_frsize;
  if (available >= bytes && available - bytes >= kDiskReserve) return {};
  return fail(ErrorCode::kIo, "{}: {} are needed and {} are free on this disk", escape_for_display(folder),
              human_bytes(bytes), human_bytes(available));
}

Result<PartFile> PartFile::open(const std::string& path, const std::string& url) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return os_error(path, "cannot write");
  PartFile part(path, url, fd);
  struct stat info{};
  if (::fstat(fd, &info) != 0) return os_error(path, "cannot stat");
  part.size_ = uint64_t(info.st_size);
  if (part.size_ > 0) {
    if (auto validator = read_state(path, url))
      part.validator_ = std::move(*validator);
    else
      HC_TRY(part.restart({}));
  }
  return part;
}

PartFile::PartFile(PartFile&& other) noexcept
    : path_(std::move(other.path_)),
      url_(std::move(other.url_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      validator_(std::move(other.validator_)) {}

PartFile::~PartFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (size_ > 0) return;
  ::unlink(path_.c_str());
  ::unlink(state_path(path_).c_str());
}

Result<void> PartFile::restart(Validator validator) {
  if (::ftruncate(fd_, 0) != 0) return os_error(path_, "cannot empty it");
  size_ = 0;
  validator_ = std::move(validator);
  return write_state();
}

Result<void> PartFile::write_state() const {
  const json::object state = {{"url", url_}, {"etag", validator_.etag}, {"last_modified", validator_.last_modified}};
  return write_file(state_path(path_), json::serialize(state) + "\n");
}

Result<void> PartFile::append(std::string_view bytes) {
  if (::lseek(fd_, off_t(size_), SEEK_SET) < 0 || !write_all(fd_, bytes)) return os_error(path_, "cannot write");
  size_ += bytes.size();
  return {};
}

Result<void> PartFile::check_space(uint64_t bytes) const {
  const size_t slash = path_.rfind('/');
  return check_disk_space(slash == std::string::npos ? "." : path_.substr(0, slash), bytes);
}

Result<void> PartFile::sync() const {
  if (::fsync(fd_) != 0) return os_error(path_, "cannot write");
  return {};
}

}  // namespace honeycrisp::cli
