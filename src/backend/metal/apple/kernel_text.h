// The kernels' text, which travels in the binary and is compiled by the system at first use. Owns how quoted includes
// are put in; knows nothing of Apple's framework.
#pragma once

#include "base/result.h"

#include <span>
#include <string>
#include <string_view>

namespace honeycrisp::backend::metal {

struct EmbeddedFile {
  std::string_view path;  // from the project's folder
  std::string_view text;
};

/// What the build embedded (cmake/embed_kernels.cmake).
std::span<const EmbeddedFile> embedded_files();

/// The whole text of the file `stem`.metal, after what forbids contraction: each quoted include is replaced by the
/// file's text where it is met first, whatever the conditions around it, and by nothing afterwards. #line directives
/// keep the names and lines of the files, for the compiler's messages.
Result<std::string> kernel_text(std::string_view stem, std::span<const EmbeddedFile> files = embedded_files());

}  // namespace honeycrisp::backend::metal
