#include "gguf/writer.h"

#include "base/check.h"
#include "base/checked.h"
#include "base/text_escape.h"

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace honeycrisp::gguf {
namespace {

void append(std::vector<std::byte>& out, std::span<const std::byte> bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}
template <class T>
void append_scalar(std::vector<std::byte>& out, T v) {
  append(out, std::as_bytes(std::span(&v, 1)));
}
void append_string(std::vector<std::byte>& out, std::string_view text) {
  append_scalar(out, uint64_t(text.size()));
  append(out, std::as_bytes(std::span(text)));
}

/// A file under a temporary name in the folder of `path`: takes that name on commit(), vanishes otherwise.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path) : path_(std::move(path)) {}
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(temporary_.c_str());
  }

  Result<void> open() {
    struct stat info{};
    if (::stat(path_.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
      return invalid("{}: exists and is not a regular file, it is not replaced", escape_for_display(path_));
    static std::atomic<uint32_t> counter{0};
    temporary_ = fmt::format("{}.{}-{}.tmp", path_, ::getpid(), counter++);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0) return os_error("cannot create");
    return {};
  }

  Result<void> write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return os_error("cannot write");
      bytes = bytes.subspan(size_t(n));
    }
    return {};
  }

  Result<void> commit() {
    // Without this, a crash of the system soon after the rename could leave an empty file under the final name.
    if (::fsync(fd_) != 0) return os_error("cannot write");
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) return os_error("cannot rename the finished file");
    ::close(std::exchange(fd_, -1));
    return {};
  }

 private:
  tl::unexpected<Error> os_error(const char* what) const {
    const int code = errno;
    return fail(ErrorCode::kIo, "{}: {}: {}", escape_for_display(path_), what, std::strerror(code));
  }

  std::string path_, temporary_;
  int fd_ = -1;
};

}  // namespace

Writer::Writer(uint32_t alignment) : alignment_(alignment) {
  HC_CHECK(std::has_single_bit(alignment) && alignment >= kMinAlignment && alignment <= kMaxAlignment, "{}", alignment);
  if (alignment != kDefaultAlignment) add_uint32(kAlignmentKey, alignment);
}

void Writer::add_key(std::string_view key, ValueType type) {
  HC_CHECK(!key.empty() && key.size() <= kMaxNameBytes, "{} bytes", key.size());
  append_string(entries_, key);
  append_scalar(entries_, uint32_t(type));
  ++n_entries_;
}

void Writer::add_array_key(std::string_view key, ValueType element_type, size_t count) {
  add_key(key, ValueType::kArray);
  append_scalar(entries_, uint32_t(element_type));
  append_scalar(entries_, uint64_t(count));
}

void Writer::add_uint16(std::string_view key, uint16_t v) {
  add_key(key, ValueType::kUint16);
  append_scalar(entries_, v);
}
void Writer::add_uint32(std::string_view key, uint32_t v) {
  add_key(key, ValueType::kUint32);
  append_scalar(entries_, v);
}
void Writer::add_int32(std::string_view key, int32_t v) {
  add_key(key, ValueType::kInt32);
  append_scalar(entries_, v);
}
void Writer::add_uint64(std::string_view key, uint64_t v) {
  add_key(key, ValueType::kUint64);
  append_scalar(entries_, v);
}
void Writer::add_float32(std::string_view key, float v) {
  add_key(key, ValueType::kFloat32);
  append_scalar(entries_, v);
}
void Writer::add_bool(std::string_view key, bool v) {
  add_key(key, ValueType::kBool);
  append_scalar(entries_, uint8_t(v));
}
void Writer::add_string(std::string_view key, std::string_view v) {
  add_key(key, ValueType::kString);
  append_string(entries_, v);
}
void Writer::add_uint32s(std::string_view key, std::span<const uint32_t> v) {
  add_array_key(key, ValueType::kUint32, v.size());
  append(entries_, std::as_bytes(v));
}
void Writer::add_int32s(std::string_view key, std::span<const int32_t> v) {
  add_array_key(key, ValueType::kInt32, v.size());
  append(entries_, std::as_bytes(v));
}
void Writer::add_float32s(std::string_view key, std::span<const float> v) {
  add_array_key(key, ValueType::kFloat32, v.size());
  append(entries_, std::as_bytes(v));
}
void Writer::add_bools(std::string_view key, std::span<const bool> v) {
  add_array_key(key, ValueType::kBool, v.size());
  append(entries_, std::as_bytes(v));
}
void Writer::add_strings(std::string_view key, std::span<const std::string> v) {
  add_array_key(key, ValueType::kString, v.size());
  for (const std::string& text : v) append_string(entries_, text);
}

void Writer::add_entry(const Metadata::Entry& entry) {
  if (entry.key == kAlignmentKey || entry.key.starts_with("split.")) return;
  const Value& value = entry.value;
  if (value.is_array())
    add_array_key(entry.key, value.element_type(), value.size());
  else
    add_key(entry.key, value.type());
  append(entries_, value.payload());
  for (const std::string_view text : value.strings()) append_string(entries_, text);
}

void Writer::add_tensor(std::string_view name, quant::Format format, std::span<const uint64_t> dims,
                        std::span<const std::byte> data) {
  add_tensor(name, format, dims, [data] { return Result<std::span<const std::byte>>(data); });
}

void Writer::add_tensor(std::string_view name, quant::Format format, std::span<const uint64_t> dims, Source source) {
  HC_CHECK(!name.empty() && name.size() <= kMaxNameBytes, "{} bytes", name.size());
  HC_CHECK(dims.size() <= kMaxDims, "{}", dims.size());
  const uint64_t row = dims.empty() ? 1 : dims[0];
  HC_CHECK(row % quant::info(format).block_elements == 0, "{}: row of {} in {}", name, row, quant::to_string(format));
  uint64_t bytes = quant::row_bytes(format, row);
  for (size_t d = 1; d < dims.size(); ++d) bytes *= dims[d];
  HC_CHECK(bytes > 0, "{}", name);
  tensors_.push_back({std::string(name), format, {dims.begin(), dims.end()}, bytes, std::move(source)});
}

std::vector<std::byte> Writer::header() const {
  std::vector<std::byte> out;
  append(out, std::as_bytes(std::span(std::string_view("GGUF"))));
  append_scalar(out, kMaxVersion);
  append_scalar(out, uint64_t(tensors_.size()));
  append_scalar(out, n_entries_);
  append(out, entries_);
  uint64_t offset = 0;
  for (const PendingTensor& tensor : tensors_) {
    append_string(out, tensor.name);
    append_scalar(out, uint32_t(tensor.dims.size()));
    for (const uint64_t dim : tensor.dims) append_scalar(out, dim);
    append_scalar(out, uint32_t(tensor.format));
    append_scalar(out, offset);
    offset = round_up<uint64_t>(offset + tensor.bytes, alignment_);
  }
  out.resize(round_up<size_t>(out.size(), alignment_));
  return out;
}

Result<void> Writer::emit(const Sink& sink) const {
  const std::vector<std::byte> padding(alignment_);
  HC_TRY(sink(header()));
  for (const PendingTensor& tensor : tensors_) {
    HC_ASSIGN(const std::span<const std::byte> data, tensor.source());
    HC_CHECK(data.size() == tensor.bytes, "{}: {} bytes instead of {}", tensor.name, data.size(), tensor.bytes);
    HC_TRY(sink(data));
    HC_TRY(sink(std::span(padding).first(round_up<uint64_t>(tensor.bytes, alignment_) - tensor.bytes)));
  }
  return {};
}

std::vector<std::byte> Writer::to_bytes() const {
  std::vector<std::byte> out;
  const Result<void> emitted = emit([&out](std::span<const std::byte> bytes) {
    append(out, bytes);
    return Result<void>();
  });
  HC_CHECK(emitted.has_value(), "{}", emitted.error().message);
  return out;
}

Result<void> Writer::write(const std::string& path) const {
  AtomicFile file(path);
  HC_TRY(file.open());
  HC_TRY(emit([&file](std::span<const std::byte> bytes) { return file.write(bytes); }));
  return file.commit();
}

}  // namespace honeycrisp::gguf
