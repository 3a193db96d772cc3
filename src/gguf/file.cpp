// Opens one file, or the set of shards that it belongs to. A set is what `split.no` (0-based), `split.count`,
// `split.tensors.count` (of the whole set) and the file names (1-based) agree on; any contradiction is an error that
// says which name was expected. Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, "Sharded models".
#include "gguf/file.h"

#include "base/text_escape.h"

#include <optional>

namespace honeycrisp::gguf {

struct File::State {
  std::vector<MappedFile> shards;
  Metadata metadata;            // of the first
  uint32_t version = 0;         // of the first
  std::vector<Tensor> tensors;  // of all
  NameIndex names;              // of `tensors`
  uint64_t bytes = 0;           // of all
};

namespace {

constexpr std::string_view kSplitNo = "split.no", kSplitCount = "split.count", kSplitTensors = "split.tensors.count";
constexpr std::string_view kArchitecture = "general.architecture";

/// One file's place in its set, 0-based; a file by itself is number 0 of 1.
struct SplitPlace {
  uint64_t number = 0, count = 1;
  std::optional<uint64_t> total_tensors;
};

struct Shard {
  MappedFile file;
  Header header;
  SplitPlace place;
};

/// A path `<prefix>-00002-of-00003.gguf`.
struct ShardName {
  std::string prefix;
  uint64_t number = 0, count = 1;
};

std::string shard_path(const std::string& prefix, uint64_t number, uint64_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, number + 1, count);
}

std::string shown_file_name(const std::string& path) {
  return escape_for_display(path.substr(path.find_last_of('/') + 1));
}

std::optional<uint64_t> parse_digits(std::string_view text) {
  uint64_t number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + uint64_t(c - '0');
  }
  return number;
}

std::optional<ShardName> parse_shard_name(std::string_view path) {
  constexpr std::string_view kOf = "-of-", kExtension = ".gguf";
  constexpr size_t kDigits = 5, kEnding = 1 + kDigits + kOf.size() + kDigits + kExtension.size();
  if (path.size() < kEnding) return std::nullopt;
  const std::string_view ending = path.substr(path.size() - kEnding);
  const std::optional<uint64_t> number = parse_digits(ending.substr(1, kDigits));
  const std::optional<uint64_t> count = parse_digits(ending.substr(1 + kDigits + kOf.size(), kDigits));
  if (ending.front() != '-' || ending.substr(1 + kDigits, kOf.size()) != kOf || !ending.ends_with(kExtension))
    return std::nullopt;
  if (!number || !count || *number == 0 || *number > *count) return std::nullopt;
  return ShardName{std::string(path.substr(0, path.size() - kEnding)), *number - 1, *count};
}

Result<SplitPlace> read_place(const Metadata& metadata) {
  SplitPlace place;
  HC_ASSIGN(place.count, metadata.get_uint(kSplitCount, 1));
  HC_ASSIGN(place.number, metadata.get_uint(kSplitNo, 0));
  if (metadata.contains(kSplitTensors)) {
    HC_ASSIGN(place.total_tensors, metadata.require_uint(kSplitTensors));
  }
  if (place.count > kMaxSplits)
    return invalid("{}: {} is {}, at most {} are possible", metadata.source(), kSplitCount, place.count, kMaxSplits);
  if (place.count == 0) place.count = 1;  // some writers' way to say "not split"
  if (place.number >= place.count)
    return invalid("{}: {} is {}, but {} is {}", metadata.source(), kSplitNo, place.number, kSplitCount, place.count);
  if (place.count > 1 && !place.total_tensors)
    return invalid("{}: key '{}' is missing, though the model is split into {} files", metadata.source(), kSplitTensors,
                   place.count);
  return place;
}

/// The file's name must say what its keys say: siblings are found by name.
Result<void> check_name(const std::string& path, const SplitPlace& place) {
  const std::optional<ShardName> name = parse_shard_name(path);
  if (!name && place.count == 1) return {};
  if (name && name->number == place.number && name->count == place.count) return {};
  const std::string file = escape_for_display(path);
  if (place.count == 1)
    return invalid("{}: named like file {} of {}, but its keys do not say that it is split", file, name->number + 1,
                   name->count);
  return invalid("{}: holds file {} of {} of a split model and must be named '{}'", file, place.number + 1, place.count,
                 shown_file_name(shard_path(name ? name->prefix : "…", place.number, place.count)));
}

Result<Shard> open_shard(const std::string& path, MappedFile::Mode mode) {
  Shard shard;
  HC_ASSIGN(shard.file, MappedFile::open(path, mode));
  HC_ASSIGN(shard.header, parse(shard.file.bytes(), path));
  HC_ASSIGN(shard.place, read_place(shard.header.metadata));
  HC_TRY(check_name(path, shard.place));
  return shard;
}

/// File `number` of the set that the file which the user named, at `given_path`, says that it belongs to.
Result<Shard> open_sibling(const std::string& given_path, const SplitPlace& given, uint64_t number,
                           MappedFile::Mode mode) {
  const std::string path = shard_path(parse_shard_name(given_path)->prefix, number, given.count);
  Result<Shard> sibling = open_shard(path, mode);
  if (!sibling)
    return fail(sibling.error().code, "{} (file {} of the {} that '{}' belongs to)", sibling.error().message,
                number + 1, given.count, shown_file_name(given_path));
  if (sibling->place.total_tensors != given.total_tensors)
    return invalid("{}: {} is {}, but {} in '{}': files of different models", escape_for_display(path), kSplitTensors,
                   *sibling->place.total_tensors, *given.total_tensors, shown_file_name(given_path));
  return sibling;
}

/// Files after the first need not repeat the architecture, but must not name another.
Result<void> check_same_model(const Metadata& first, const Metadata& other) {
  if (!other.contains(kArchitecture)) return {};
  HC_ASSIGN(const std::string_view expected, first.get_string(kArchitecture, ""));
  HC_ASSIGN(const std::string_view found, other.require_string(kArchitecture));
  if (found == expected) return {};
  return invalid("{}: {} is '{}', but '{}' in the first file: files of different models", other.source(), kArchitecture,
                 escape_for_display(found), escape_for_display(expected));
}

Result<void> check_tensors(const std::string& path, const File& file, const NameIndex& names, const SplitPlace& place) {
  const std::span<const Tensor> tensors = file.tensors();
  if (const auto twice = names.find_duplicate())
    return invalid("{}: tensor '{}' occurs in files {} and {} of the set", escape_for_display(path),
                   escape_for_display(tensors[twice->first].name), tensors[twice->first].shard + 1,
                   tensors[twice->second].shard + 1);
  if (place.total_tensors && *place.total_tensors != tensors.size())
    return invalid("{}: {} is {}, but there are {} tensors in all", escape_for_display(path), kSplitTensors,
                   *place.total_tensors, tensors.size());
  return {};
}

}  // namespace

Result<File> File::open(const std::string& path, Options options) {
  const MappedFile::Mode mode = options.mmap ? MappedFile::Mode::kMap : MappedFile::Mode::kRead;
  HC_ASSIGN(Shard given, open_shard(path, mode));
  const SplitPlace place = given.place;
  auto state = std::make_shared<State>();
  for (uint64_t i = 0; i < place.count; ++i) {
    Shard shard;
    if (i == place.number) {
      shard = std::move(given);
    } else {
      HC_ASSIGN(shard, open_sibling(path, place, i, mode));
    }
    for (Tensor& tensor : shard.header.tensors) {
      tensor.shard = uint32_t(i);
      state->names.add(tensor.name);
      state->tensors.push_back(tensor);
    }
    state->bytes += shard.file.bytes().size();
    state->shards.push_back(std::move(shard.file));
    if (i == 0) {
      state->metadata = std::move(shard.header.metadata);
      state->version = shard.header.version;
    } else {
      HC_TRY(check_same_model(state->metadata, shard.header.metadata));
    }
  }
  state->names.sort();
  File file(state);
  HC_TRY(check_tensors(path, file, state->names, place));
  return file;
}

const Metadata& File::metadata() const { return state_->metadata; }
std::span<const Tensor> File::tensors() const { return state_->tensors; }
uint32_t File::version() const { return state_->version; }
std::span<const MappedFile> File::shards() const { return state_->shards; }
uint64_t File::file_bytes() const { return state_->bytes; }

const Tensor* File::find_tensor(std::string_view name) const {
  const std::optional<size_t> position = state_->names.find(name);
  return position ? &state_->tensors[*position] : nullptr;
}

void File::release(const std::byte* data, uint64_t bytes) const {
  for (const MappedFile& shard : state_->shards) {
    const std::span<const std::byte> all = shard.bytes();
    const std::less_equal<> up_to;  // of pointers into different shards
    if (up_to(all.data(), data) && up_to(data + bytes, all.data() + all.size()))
      return shard.release(size_t(data - all.data()), size_t(bytes));
  }
}

}  // namespace honeycrisp::gguf
