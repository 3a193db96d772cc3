#include "base/mapped_file.h"

#include "base/checked.h"
#include "base/text_escape.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace honeycrisp {
namespace {

struct FileDescriptor {
  int fd;
  ~FileDescriptor() {
    if (fd >= 0) ::close(fd);
  }
};

tl::unexpected<Error> os_error(const std::string& path, const char* what) {
  const int code = errno;
  return fail(code == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: {}: {}", escape_for_display(path), what,
              std::strerror(code));
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path, Mode mode) {
  if (path.empty()) return invalid("no file is named: the path is empty");
  if (path.find('\0') != path.npos)  // the system would open what comes before it
    return invalid("{}: a path cannot hold a NUL", escape_for_display(path));
  // O_NONBLOCK: opening a FIFO without a writer must not hang; it has no effect on regular files.
  FileDescriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return os_error(path, "cannot open");
  struct stat info{};
  if (::fstat(file.fd, &info) != 0) return os_error(path, "cannot stat");
  if (S_ISDIR(info.st_mode)) return invalid("{}: is a directory, expected a file", escape_for_display(path));
  if (!S_ISREG(info.st_mode)) return invalid("{}: is not a regular file", escape_for_display(path));

  MappedFile result;
  result.path_ = path;
  result.size_ = size_t(info.st_size);
  if (result.size_ == 0) return result;
  if (mode == Mode::kMap) {
    void* p = ::mmap(nullptr, result.size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (p == MAP_FAILED) return os_error(path, "cannot map (try --no-mmap)");
    result.data_ = static_cast<const std::byte*>(p);
    result.mapped_ = true;
    return result;
  }
  // Pages of its own and not of the heap: Metal wraps nothing else.
  void* pages = ::mmap(nullptr, result.size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED)
    return fail(ErrorCode::kOutOfMemory, "{}: {} bytes of memory are not available", escape_for_display(path),
                result.size_);
  auto* buffer = static_cast<std::byte*>(pages);
  result.data_ = buffer;
  for (size_t done = 0; done < result.size_;) {
    const ssize_t n = ::pread(file.fd, buffer + done, result.size_ - done, off_t(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return os_error(path, "cannot read");
    if (n == 0) return fail(ErrorCode::kIo, "{}: the file shrank while it was read", escape_for_display(path));
    done += size_t(n);
  }
  return result;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release(size_t offset, size_t length) const {
  if (!mapped_ || length == 0 || offset >= size_) return;
  const size_t page = size_t(::sysconf(_SC_PAGESIZE));
  length = std::min(length, size_ - offset);
  const size_t begin = round_up(offset, page), end = (offset + length) / page * page;
  if (end > begin) ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace honeycrisp
