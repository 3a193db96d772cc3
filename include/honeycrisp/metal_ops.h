// Single operations of the Metal backend, for people who bring their own model code: products of weights, in any format
// that the kernels read, with a few rows of input, one launch each. No tensor, program or file type leaks through here.
// Thread rule: a Device may be shared by threads; Commands belong to one thread at a time; buffers are the caller's to
// order. Nothing throws.
//
// Weights lie as in a GGUF file: output_size rows of hidden_size elements in whole blocks, one after the other. Inputs
// [rows][hidden_size] and outputs [rows][output_size] are f32 without gaps. A row of a product has the same bits
// however many rows there are, by itself or fused with others.
//
//   namespace metal = honeycrisp::metal;
//   auto device = metal::Device::system();  // or metal::Device::software()
//   if (!device) return complain(device.error());
//   metal::Buffer x = device->allocate(4 * rows * hidden, "x").value(), keys = ...;  // fill x.data()
//   metal::Commands commands = device->new_commands("keys and values").value();
//   auto done = commands.project_dual({.args = {rows, kv_size, hidden},
//                                      .input = {x},
//                                      .first_weights = {metal::Format::kQ4_0, {layer, k_offset}},
//                                      .second_weights = {metal::Format::kQ6_K, {layer, v_offset}},
//                                      .first_output = {keys},
//                                      .second_output = {values}});
//   if (done) done = commands.run();
//   if (!done) return complain(done.error());  // e.g. "project_dual: first_output needs 4096 bytes, has 2048"
//   // keys.data(): f32 [rows][kv_size]
#pragma once

#include "honeycrisp/result.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace honeycrisp::metal {

/// Formats of weights that have kernels, by GGUF's ids.
enum class Format : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
};

/// Memory that the host and the device share; copies are the same memory. The host may touch it whenever no Commands
/// that use it run.
class Buffer {
 public:
  Buffer() = default;  // of 0 bytes, of no device
  uint64_t bytes() const;
  std::byte* data() const;

 private:
  friend class Device;
  friend class Commands;
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

/// From a byte of a buffer on. f32 begin at a multiple of 4; weights of F32 too, of MXFP4 anywhere, the others at an
/// even byte.
struct View {
  Buffer buffer;
  uint64_t offset = 0;
};

struct Weights {
  Format format = Format::kF32;
  View view;
};

struct ProjectionArgs {
  uint32_t rows = 0;         // m: meant are 1 to 8; the weights are read once for each 8 of them
  uint32_t output_size = 0;  // rows of each matrix
  uint32_t hidden_size = 0;  // columns: whole blocks of the format
};

/// output = W · input
struct Projection {
  ProjectionArgs args;
  View input;
  Weights weights;
  View output;
};

/// Two products of one input.
struct DualProjection {
  ProjectionArgs args;
  View input;
  Weights first_weights, second_weights;
  View first_output, second_output;
};

enum class Activation { kSilu, kGeluTanh };

/// output = activation(W_gate · input) · (W_up · input), element by element
struct GatedProjection {
  ProjectionArgs args;
  View input;
  Weights gate_weights, up_weights;
  Activation activation = Activation::kSilu;
  View output;
};

/// Projections that run together, in the order of the calls wherever one reads or overwrites what another writes.
/// An argument that will not do is told at once, and the others stay as they are: a size of 0, hidden_size that is not
/// whole blocks, a view that is too short (with the bytes it needs and has) or begins in between, a format without
/// kernel, a buffer of another device, an output that overlaps another argument.
class Commands {
 public:
  Commands(Commands&&) noexcept;
  Commands& operator=(Commands&&) noexcept;
  ~Commands();

  Result<void> project(const Projection& projection);
  Result<void> project_dual(const DualProjection& projection);
  Result<void> project_gated(const GatedProjection& projection);
  /// One for each projection so far.
  uint32_t launches() const;
  /// Runs them and waits. Once.
  Result<void> run();

 private:
  friend class Device;
  struct Impl;
  explicit Commands(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct SoftwareOptions {
  bool check = false;    // every access to memory; a fault is an error of run() that names the kernel's line
  uint32_t threads = 0;  // 0: one per core
};

/// Where kernels run; each is compiled at first use and kept. A handle: copies are the same device.
class Device {
 public:
  /// The system's GPU. Error: there is none, with the reason.
  static Result<Device> system();
  /// The same kernels on the processor, to try and check them without a Mac: slow. Needs metal/backend_kernels.so
  /// beside the running binary; Linux on x86-64.
  static Result<Device> software(const SoftwareOptions& options = {});

  /// One line, for people.
  std::string describe() const;
  uint64_t most_buffer_bytes() const;

  Result<Buffer> allocate(uint64_t bytes, std::string_view label) const;
  /// The caller's memory without a copy, from the beginning of a page on; the pages' rest belongs to it. `release` (may
  /// be empty) is called when nothing uses it any more, and not if wrapping fails. Wrapping the same memory twice would
  /// hide from Commands that one projection reads what another writes.
  Result<Buffer> wrap(std::byte* memory, uint64_t bytes, std::function<void()> release, std::string_view label) const;
  Result<Commands> new_commands(std::string_view label) const;

 private:
  friend class Buffer;
  friend class Commands;
  struct Impl;
  explicit Device(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace honeycrisp::metal
