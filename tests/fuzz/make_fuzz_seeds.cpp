// make_fuzz_seeds FOLDER MODELS: writes small files for each fuzzer to start from into FOLDER/<fuzzer's name without
// fuzz_>. MODELS: a folder of GGUF files of all families.
#include "gguf/file.h"
#include "support/hostile_gguf.h"
#include "support/tiny_gguf.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

namespace {
using namespace honeycrisp::test_support;

/// Larger inputs slow the fuzzer down and add nothing to what a header can hold.
constexpr size_t kMaxSeedBytes = 64 << 10;

bool write(const std::string& folder, std::string_view name, const std::string& bytes) {
  std::ofstream out(folder + "/" + std::string(name), std::ios::binary);
  out << bytes;
  return bool(out.flush());
}

bool write_gguf_seeds(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const TinyOptions small = {.layers = 1, .width = 32, .heads = 2, .kv_heads = 1, .feed_forward = 32, .tied = true};
  RawGguf version_2 = one_of_each();
  version_2.version = 2;
  bool good = write(folder, "one_of_each", one_of_each().bytes()) && write(folder, "version_2", version_2.bytes()) &&
              write(folder, "vocabulary", tiny_vocabulary(small).bytes()) &&
              write(folder, "model", tiny_llama(small).bytes()) &&
              write(folder, "shard", split(one_of_each(), 2)[0].bytes());
  for (const HostileCase& c : hostile_cases()) {
    const std::string bytes = c.make();
    if (bytes.size() <= kMaxSeedBytes) good = good && write(folder, c.name, bytes);
  }
  return good;
}

/// The beginnings of model files, without the weights.
bool write_model_seeds(const std::string& folder, const std::string& models) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  bool good = true;
  for (const auto& entry : std::filesystem::directory_iterator(models, error)) {
    if (entry.path().extension() != ".gguf") continue;
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    const auto header = honeycrisp::gguf::parse(std::as_bytes(std::span(bytes)), entry.path().string());
    good = good && header && write(folder, entry.path().stem().string(), bytes.substr(0, header->data_offset));
  }
  return good && !error;
}
}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s FOLDER MODELS\n", argv[0]);
    return 2;
  }
  const std::string folder = argv[1];
  if (write_gguf_seeds(folder + "/gguf") && write_model_seeds(folder + "/model", argv[2])) return 0;
  std::fprintf(stderr, "cannot write seeds to %s\n", argv[1]);
  return 1;
}
