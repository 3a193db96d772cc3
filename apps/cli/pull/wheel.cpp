#include "cli/pull/wheel.h"

#include "base/text_escape.h"
#include "cli/term/interrupt.h"

#include <memory>
#include <vector>
#include <zip.h>

namespace honeycrisp::cli {
namespace {

constexpr size_t kBlock = 1 << 20;  // bytes

struct ArchiveDeleter {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
struct MemberDeleter {
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};

}  // namespace

Result<void> extract_member(const std::string& path, const std::string& member, uint64_t bytes,
                            const std::function<Result<void>(std::span<const std::byte>)>& sink) {
  const std::string shown = escape_for_display(path);
  int code = 0;
  const std::unique_ptr<zip_t, ArchiveDeleter> archive(zip_open(path.c_str(), ZIP_RDONLY | ZIP_CHECKCONS, &code));
  if (!archive) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    auto result = invalid("{}: not a readable zip archive: {}", shown, zip_error_strerror(&error));
    zip_error_fini(&error);
    return result;
  }
  zip_stat_t info;
  zip_stat_init(&info);
  if (zip_stat(archive.get(), member.c_str(), 0, &info) != 0) return invalid("{}: holds no {}", shown, member);
  if ((info.valid & ZIP_STAT_SIZE) == 0 || info.size != bytes)
    return invalid("{}: {} should have {} bytes, the archive declares {}", shown, member, bytes, info.size);
  const std::unique_ptr<zip_file_t, MemberDeleter> file(zip_fopen_index(archive.get(), info.index, 0));
  if (!file) return invalid("{}: cannot read {}: {}", shown, member, zip_strerror(archive.get()));

  std::vector<std::byte> block(kBlock);
  for (uint64_t done = 0;;) {
    if (interrupt_requested()) return Fail(ErrorCode::kCancelled, "");
    const zip_int64_t n = zip_fread(file.get(), block.data(), block.size());
    if (n < 0) return invalid("{}: {} is damaged: {}", shown, member, zip_file_strerror(file.get()));
    if (n == 0 && done == bytes) return {};
    if (n == 0 || uint64_t(n) > bytes - done)
      return invalid("{}: {} does not unpack to the {} bytes that are declared", shown, member, bytes);
    HC_TRY(sink(std::span(block).first(size_t(n))));
    done += uint64_t(n);
  }
}

}  // namespace honeycrisp::cli
