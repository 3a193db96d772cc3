// The bounds that a GGUF file must keep. Where the format leaves a thing open, the choice is made and explained here.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace honeycrisp::gguf {

inline constexpr uint32_t kMinVersion = 2, kMaxVersion = 3;

inline constexpr std::string_view kAlignmentKey = "general.alignment";
inline constexpr uint32_t kDefaultAlignment = 32;
/// The format asks for a multiple of 8, which also keeps f64 elements aligned; here it must be a power of two too.
inline constexpr uint32_t kMinAlignment = 8;
/// The size of a huge page: no mapping gains from more, and a larger value only serves to overflow a sum.
inline constexpr uint32_t kMaxAlignment = 2u << 20;

inline constexpr size_t kMaxDims = 4;
inline constexpr uint64_t kMaxDim = uint64_t{1} << 40;

/// The format's limit for keys. Tensor names get the same one: ggml's 64 bytes are a limit of its structs.
inline constexpr uint64_t kMaxNameBytes = 65535;

/// Least bytes that a record takes in a file: what bounds a count before anything is allocated for it.
inline constexpr uint64_t kMinKeyValueBytes = 8 + 1 + 4 + 1;    // length, one byte of key, type, a one-byte scalar
inline constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 4 + 8;  // length, one byte of name, n_dims, type, offset
inline constexpr uint64_t kMinStringBytes = 8;                  // length

/// Far above any model's (some dozens, some thousands): they keep a large file of tiny records from taking many times
/// its size in memory.
inline constexpr uint64_t kMaxKeyValues = 1u << 16, kMaxTensors = 1u << 20;

/// split.no and split.count are uint16.
inline constexpr uint64_t kMaxSplits = 65535;

}  // namespace honeycrisp::gguf
