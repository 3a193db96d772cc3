// The file in which compiled pipelines are kept between runs: its name, its folder, and how it is replaced. Knows
// nothing of Apple's framework, nor of what is inside.
#pragma once

#include "backend/metal/apple/kernel_text.h"

#include <functional>

namespace honeycrisp::backend::metal {

class ArchiveFile {
 public:
  /// In `folder`, which is made when something is stored. The name is another for other kernels, another GPU and
  /// another version of the system: what is compiled for one is of no use to another.
  ArchiveFile(const std::string& folder, std::string_view gpu, std::string_view system,
              std::span<const EmbeddedFile> kernels = embedded_files());

  const std::string& path() const { return path_; }
  bool exists() const;
  /// `write` makes a file at the path that it is given, which then takes this one's place: readers see the old file or
  /// the new one. Error: what went wrong; the old file is as it was.
  Result<void> replace(const std::function<Result<void>(const std::string& path)>& write) const;

 private:
  std::string path_;
};

}  // namespace honeycrisp::backend::metal
