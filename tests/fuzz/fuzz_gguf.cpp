// Any bytes at all must be refused, or give a file of which everything can be read and whose copy through the writer
// is read as the same.
#include "base/text_escape.h"
#include "gguf/writer.h"
#include "support/read_everything.h"

#include <cstdint>
#include <cstdlib>
#include <string>

namespace {
using namespace honeycrisp;

gguf::Writer copy_of(const gguf::Header& header) {
  gguf::Writer writer{uint32_t(header.alignment)};
  for (const gguf::Metadata::Entry& entry : header.metadata.entries()) writer.add_entry(entry);
  for (const gguf::Tensor& t : header.tensors)
    writer.add_tensor(t.name, t.format, std::span(t.dims).first(t.n_dims), {t.data, size_t(t.bytes)});
  return writer;
}

void require(bool condition) {
  if (!condition) std::abort();
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto header = gguf::parse(bytes, "fuzz");
  if (!header) {
    require(header.error().message == escape_for_display(header.error().message));
    return 0;
  }
  test_support::read_everything(*header);
  const std::vector<std::byte> copied = copy_of(*header).to_bytes();
  const auto copy = gguf::parse(copied, "copy");
  require(copy.has_value());
  require(copy->tensors.size() == header->tensors.size());
  // the second copy starts from the same layout, so nothing may move any more
  require(copy_of(*copy).to_bytes() == copied);
  return 0;
}
