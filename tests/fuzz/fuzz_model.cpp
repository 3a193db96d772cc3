// The beginning of a model file, with plausible weights behind it, must be refused with a message, or give a model that
// is planned and computes: the same bits in one batch and token by token, and again after a rewind.
#include "base/text_escape.h"
#include "support/temporary_folder.h"
#include <honeycrisp/engine.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>
#include <vector>

namespace {
using namespace honeycrisp;

constexpr size_t kFileBytes = size_t{3} << 20;
constexpr char kWeightByte = 0x3d;  // F32, F16 and BF16 values of a sensible size
constexpr uint32_t kContext = 64;
constexpr uint64_t kCacheBytes = uint64_t{64} << 20;

void require(bool condition) {
  if (!condition) std::abort();
}

// A file of weights whose beginning changes.
class ModelFile {
 public:
  ModelFile() : path_(folder_.write("fuzz.gguf", std::string(kFileBytes, kWeightByte))) {}

  const std::string& with(const std::string& beginning) {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file << beginning;
    if (beginning.size() < written_) file << std::string(written_ - beginning.size(), kWeightByte);
    require(bool(file.flush()));
    written_ = beginning.size();
    return path_;
  }

 private:
  test_support::TemporaryFolder folder_;
  std::string path_;
  size_t written_ = 0;
};

bool same(std::span<const float> a, std::span<const float> b) {
  const auto equal = [](float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), equal);
}

void compute(Engine& engine) {
  const uint32_t vocabulary = engine.info().vocabulary;
  std::vector<Token> tokens;
  for (uint32_t i = 0; i < 6; ++i) tokens.push_back(Token(i * 7 % vocabulary));
  auto session = engine.new_session();
  require(session.has_value());
  if (!session->append(tokens)) return;  // memory
  const std::vector<float> together(session->logits().begin(), session->logits().end());
  for (const uint32_t kept : {0u, 3u}) {
    require(session->rewind(kept).has_value());
    for (size_t i = kept; i < tokens.size(); ++i)
      if (!session->append({&tokens[i], 1})) return;
    require(same(together, session->logits()));
  }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static ModelFile file;
  if (size > kFileBytes) return 0;
  const EngineOptions options{.backend = "cpu",
                              .context = kContext,
                              .kv_type = KvType::kF32,
                              .threads = 1,
                              .chunk = 4,
                              .kv_memory_limit = kCacheBytes,
                              .max_sessions = 1};
  const auto engine = Engine::load(file.with({reinterpret_cast<const char*>(data), size}), options);
  if (engine)
    compute(**engine);
  else
    require(engine.error().message == escape_for_display(engine.error().message));
  return 0;
}
