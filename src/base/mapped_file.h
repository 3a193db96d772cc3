// Read-only bytes of a file, memory-mapped or read into memory. Knows nothing of what the bytes mean.
// Hostile paths (directories, FIFOs, devices) are refused by name instead of hanging or crashing.
#pragma once

#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace honeycrisp {

class MappedFile {
 public:
  enum class Mode { kMap, kRead };

  /// Opens a regular file. kMap maps it (pages are read on demand and may be dropped); kRead copies it to memory.
  /// Either way the bytes begin at a page, and the rest of the last one is the file's too: whole pages can be wrapped
  /// for a GPU.
  static Result<MappedFile> open(const std::string& path, Mode mode = Mode::kMap);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  bool mapped() const { return mapped_; }

  /// Tells the system that these bytes will not be read again soon, so that their pages can be dropped.
  void release(size_t offset, size_t length) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  bool mapped_ = false;
  std::string path_;
};

}  // namespace honeycrisp
