// Uses all that the GGUF reader hands out, so that a wrong length or extent is caught by a sanitizer.
#pragma once

#include "gguf/file.h"

#include <cstdint>
#include <numeric>

namespace honeycrisp::test_support {

/// A checksum of every key, value, name and tensor byte.
inline uint64_t read_everything(const gguf::Header& header) {
  uint64_t sum = header.version + header.alignment;
  const auto add_text = [&sum](std::string_view text) {
    for (const char c : text) sum = sum * 31 + static_cast<unsigned char>(c);
  };
  for (const auto& [key, value] : header.metadata.entries()) {
    add_text(key);
    sum += header.metadata.find(key) == &value;
    for (size_t i = 0; i < value.size(); ++i) {
      add_text(value.string_at(i).value_or(""));
      sum += uint64_t(value.int_at(i).value_or(0)) + value.uint_at(i).value_or(0) + value.float_at(i).has_value();
    }
    sum += value.as_bool().value_or(false);
  }
  for (const gguf::Tensor& tensor : header.tensors) {
    add_text(tensor.name);
    sum += tensor.elements() + tensor.rows();
    for (uint64_t i = 0; i < tensor.bytes; ++i) sum += uint64_t(tensor.data[i]);
  }
  return sum;
}

}  // namespace honeycrisp::test_support
