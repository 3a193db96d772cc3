#include "backend/metal/apple/kernel_text.h"

#include <algorithm>
#include <filesystem>
#include <set>

namespace honeycrisp::backend::metal {
namespace {

// A product and a sum stay two roundings unless the kernel says fma: the safe math mode alone leaves the compiler that
// choice. The first spelling is Metal's; compilers that do not know it pass over it, and clang's says the same.
constexpr std::string_view kExact = "#pragma METAL fp contract(off)\n#pragma clang fp contract(off)\n";

class Flattener {
 public:
  explicit Flattener(std::span<const EmbeddedFile> files) : files_(files), text_(kExact) {}

  Result<void> append(const EmbeddedFile& file) {
    seen_.insert(file.path);
    text_ += fmt::format("#line 1 \"{}\"\n", file.path);
    size_t line = 0;
    for (size_t begin = 0; begin < file.text.size();) {
      const size_t end = std::min(file.text.find('\n', begin), file.text.size());
      const std::string_view content = file.text.substr(begin, end - begin);
      begin = end + 1;
      ++line;
      if (content.starts_with("#pragma once")) {
        text_ += '\n';
      } else if (constexpr std::string_view kInclude = "#include \""; content.starts_with(kInclude)) {
        const std::string_view rest = content.substr(kInclude.size());
        const std::string path = (std::filesystem::path(file.path).parent_path() / rest.substr(0, rest.find('"')))
                                     .lexically_normal()
                                     .string();
        const auto included = std::find_if(files_.begin(), files_.end(), [&](const auto& f) { return f.path == path; });
        if (included == files_.end())
          return fail(ErrorCode::kInternal, "{}:{} includes {}, which this build does not embed", file.path, line,
                      path);
        if (!seen_.contains(included->path)) HC_TRY(append(*included));
        text_ += fmt::format("#line {} \"{}\"\n", line + 1, file.path);
      } else {
        text_ += content;
        text_ += '\n';
      }
    }
    return {};
  }
  std::string take() { return std::move(text_); }

 private:
  std::span<const EmbeddedFile> files_;
  std::set<std::string_view> seen_;
  std::string text_;
};

}  // namespace

Result<std::string> kernel_text(std::string_view stem, std::span<const EmbeddedFile> files) {
  const std::string name = fmt::format("{}.metal", stem);
  for (const EmbeddedFile& file : files)
    if (std::filesystem::path(file.path).filename() == name) {
      Flattener flattener(files);
      HC_TRY(flattener.append(file));
      return flattener.take();
    }
  return fail(ErrorCode::kNotFound, "no kernel file {}: this build embeds {} files", name, files.size());
}

}  // namespace honeycrisp::backend::metal
