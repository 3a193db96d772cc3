#include "cli/pull/sha256.h"

#include "base/check.h"
#include "base/mapped_file.h"
#include "cli/term/interrupt.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <openssl/evp.h>

namespace honeycrisp::cli {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  HC_CHECK(state_->context != nullptr && EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1,
           "SHA-256 is missing from OpenSSL");
}
Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) {
  HC_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

std::string Sha256::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  HC_CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), &length) == 1 && length == 32);
  std::string hex;
  for (unsigned i = 0; i < length; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

Result<std::string> sha256_of_file(const std::string& path) {
  constexpr size_t kBlock = size_t(4) << 20;
  HC_ASSIGN(const MappedFile file, MappedFile::open(path));
  Sha256 hash;
  for (size_t at = 0; at < file.bytes().size(); at += kBlock) {
    if (interrupt_requested()) return Fail(ErrorCode::kCancelled, "");
    hash.update(file.bytes().subspan(at, std::min(kBlock, file.bytes().size() - at)));
    file.release(at, kBlock);
  }
  return hash.finish();
}

}  // namespace honeycrisp::cli
