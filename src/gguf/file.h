// A GGUF model on disk, one file or a set of shards, opened and checked. Format:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
// Every byte is hostile until checked: after open() succeeds, all counts, lengths, types, names, extents and
// alignments hold, and no reader below needs to look again. Knows nothing of architectures.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "gguf/metadata.h"
#include "quant/formats.h"

namespace honeycrisp::gguf {

inline constexpr uint32_t kDefaultAlignment = 32;
inline constexpr size_t kMaxDims = 4;

struct Tensor {
  std::string_view name;
  quant::Format format = quant::Format::kF32;
  uint32_t n_dims = 1;
  std::array<uint64_t, kMaxDims> dims = {1, 1, 1, 1};  // innermost first: dims[0] is the row length (columns)
  const std::byte* data = nullptr;                     // aligned to the file's alignment within its shard
  uint64_t bytes = 0;
  uint32_t shard = 0;
  uint64_t file_offset = 0;  // of data in its shard

  uint64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  uint64_t rows() const { return dims[1] * dims[2] * dims[3]; }
};

/// One parsed file, without looking at sibling shards. `bytes` must outlive the result.
struct Header {
  uint32_t version = 0;
  uint64_t alignment = kDefaultAlignment;
  uint64_t data_offset = 0;
  Metadata metadata;
  std::vector<Tensor> tensors;  // data pointers into `bytes`
};
/// The parser by itself, for tests and fuzzing. `name` is used in messages.
Result<Header> parse(std::span<const std::byte> bytes, const std::string& name);

class File {
 public:
  struct Options {
    bool mmap = true;
  };
  /// Opens a model by any of its shards; the metadata is that of the first shard.
  static Result<File> open(const std::string& path, Options options);
  static Result<File> open(const std::string& path) { return open(path, Options{}); }

  const Metadata& metadata() const;                 // of the first shard
  std::span<const Tensor> tensors() const;          // of all shards
  const Tensor* find_tensor(std::string_view name) const;
  uint32_t version() const;
  std::span<const MappedFile> shards() const;
  uint64_t file_bytes() const;                      // of all shards
  /// The pages of this tensor's file data will not be read again soon.
  void release(const Tensor& tensor) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace honeycrisp::gguf
