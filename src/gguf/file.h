// A GGUF model on disk, one file or a set of shards, opened and checked. Format:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
// Every byte is hostile until checked: after open() succeeds, all counts, lengths, types, names, extents and
// alignments hold, and no reader below needs to look again. Beyond the format (and limits.h):
//  - names of tensors and keys are unique, not empty, valid UTF-8 and free of NUL, but may hold control characters:
//    show them through escape_for_display;
//  - extents of tensors do not overlap, so that all tensors together never take more bytes than the files have;
//  - a file without tensors is legal (a vocabulary, or the first shard of some sets).
// Knows nothing of architectures.
#pragma once

#include "base/mapped_file.h"
#include "base/result.h"
#include "gguf/limits.h"
#include "gguf/metadata.h"
#include "quant/formats.h"

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace honeycrisp::gguf {

struct Tensor {
  std::string_view name;
  quant::Format format = quant::Format::kF32;
  uint32_t n_dims = 1;                                 // as declared, 0..4; a scalar has none
  std::array<uint64_t, kMaxDims> dims = {1, 1, 1, 1};  // innermost first: dims[0] is the row length (columns)
  const std::byte* data = nullptr;                     // aligned to the file's alignment, or to a page if that is less
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
/// The parser by itself, for tests and fuzzing. `name` is what messages begin with. A shard of a set is parsed like any
/// other file. Fails with kUnsupported for versions, byte orders and element types that we do not read, else with
/// kInvalidInput.
Result<Header> parse(std::span<const std::byte> bytes, const std::string& name);

class File {
 public:
  struct Options {
    bool mmap = true;
  };
  /// Opens a model by any of its shards, which must be named `…-00001-of-00003.gguf` and lie in one folder; the
  /// metadata is that of the first. Errors name the file, and the tensor, key or missing shard. The File is cheap to
  /// copy; copies share the mapping.
  static Result<File> open(const std::string& path, Options options);
  static Result<File> open(const std::string& path) { return open(path, Options{}); }

  const Metadata& metadata() const;         // of the first shard
  std::span<const Tensor> tensors() const;  // of all shards
  const Tensor* find_tensor(std::string_view name) const;
  uint32_t version() const;  // of the first shard
  std::span<const MappedFile> shards() const;
  uint64_t file_bytes() const;  // of all shards
  /// These bytes, a part of a tensor's data, will not be read again soon: their pages need not stay in memory.
  void release(const std::byte* data, uint64_t bytes) const;

 private:
  struct State;
  explicit File(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace honeycrisp::gguf
