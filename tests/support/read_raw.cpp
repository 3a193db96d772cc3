#include "support/read_raw.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace honeycrisp::test_support {
namespace {

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "read_raw: %s\n", what);
  std::abort();
}

constexpr uint64_t scalar_size(uint32_t type) {
  constexpr uint64_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return type < std::size(kSizes) ? kSizes[type] : 0;
}

class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : bytes_(bytes) {}

  std::string_view take(uint64_t n) {
    if (n > bytes_.size() - at_) die("past the end");
    at_ += n;
    return bytes_.substr(at_ - n, n);
  }
  template <class T>
  T number() {
    T v;
    std::memcpy(&v, take(sizeof v).data(), sizeof v);
    return v;
  }
  std::string_view string() { return take(number<uint64_t>()); }
  uint64_t position() const { return at_; }

  RawValue value() {
    const uint32_t type = number<uint32_t>();
    const uint64_t begin = at_;
    if (type == kTypeArray) {
      const uint32_t element = number<uint32_t>();
      const uint64_t count = number<uint64_t>();
      if (element != kTypeString && scalar_size(element) == 0) die("an array of an unknown type");
      for (uint64_t i = 0; i < count; ++i) skip(element);
    } else {
      skip(type);
    }
    return {type, std::string(bytes_.substr(begin, at_ - begin))};
  }

 private:
  void skip(uint32_t type) {
    if (type == kTypeString)
      string();
    else
      take(scalar_size(type));
  }

  std::string_view bytes_;
  uint64_t at_ = 0;
};

}  // namespace

RawGguf read_raw(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) die(path.c_str());
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  Cursor cursor(bytes);
  RawGguf file;
  if (cursor.take(4) != "GGUF" || cursor.number<uint32_t>() != 3) die("not a file of version 3");
  const uint64_t n_tensors = cursor.number<uint64_t>(), n_entries = cursor.number<uint64_t>();
  for (uint64_t i = 0; i < n_entries; ++i) {
    const std::string key(cursor.string());
    file.entries.push_back({key, cursor.value()});
  }
  std::vector<uint64_t> offsets;
  for (uint64_t i = 0; i < n_tensors; ++i) {
    RawTensor tensor;
    tensor.name = cursor.string();
    const uint32_t n_dims = cursor.number<uint32_t>();
    for (uint32_t d = 0; d < n_dims; ++d) tensor.dims.push_back(cursor.number<uint64_t>());
    tensor.type = cursor.number<uint32_t>();
    offsets.push_back(cursor.number<uint64_t>());
    file.tensors.push_back(std::move(tensor));
  }
  const uint64_t data = (cursor.position() + file.alignment - 1) / file.alignment * file.alignment;
  for (uint64_t i = 0; i < n_tensors; ++i) {
    RawTensor& tensor = file.tensors[i];
    constexpr uint32_t kF32 = 0, kMxfp4 = 39;
    if (tensor.type != kF32 && tensor.type != kMxfp4) die("a tensor that is neither F32 nor MXFP4");
    uint64_t size = 1;
    for (const uint64_t dim : tensor.dims) size *= dim;
    size = tensor.type == kF32 ? size * sizeof(float) : size / 32 * 17;
    if (data + offsets[i] > bytes.size() || size > bytes.size() - data - offsets[i]) die("a tensor past the end");
    tensor.data = bytes.substr(data + offsets[i], size);
  }
  return file;
}

}  // namespace honeycrisp::test_support
