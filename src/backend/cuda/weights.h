// The weights of a program in device memory, each in one layout: packed tiles where the format has them, f32 for what
// routes a mixture, else the file's. Also the program's small vectors.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/args.h"
#include "backend/cuda/device.h"

#include <vector>

namespace honeycrisp::backend::cuda {

/// Whether weight `id` can be kept as packed tiles: its format has them, every use begins at a whole tile of rows, as
/// does every expert, and it routes no mixture.
/// `float_tiles`: of floats too, which serve the persistent kernel alone; graphs read floats quicker as the file has
/// them.
std::vector<bool> packed_weights(const program::Program& program, bool float_tiles);

class Weights {
 public:
  /// Bytes of device memory that load() takes.
  static Result<uint64_t> needed_bytes(const program::Program& program, bool float_tiles);
  /// Streams all weights to the device and repacks them there. Errors: out of memory, with sizes; a failed copy.
  static Result<Weights> load(const program::Program& program, const CompileOptions& options, bool float_tiles,
                              Stream stream);

  /// Of a mixture's experts: the first one's rows.
  DeviceMatrix matrix(const program::Matrix& m) const;
  /// A matrix that routes a mixture: [rows][cols].
  const float* router(const program::Matrix& m) const {
    return memory_.as<float>(weights_[m.weight]) + uint64_t{m.first_row} * program_->weight(m).cols;
  }
  /// Bytes from one expert's tiles to the next.
  uint64_t slice_bytes(const program::Matrix& m) const;
  /// Tiles of a packed matrix, from its first row on.
  const uint8_t* tiles(const program::Matrix& m) const;
  /// Exponents of its rows for products in halves (kernels/halves.cuh).
  const int8_t* exponents(const program::Matrix& m) const {
    return memory_.as<int8_t>(exponents_[m.weight]) + m.first_row;
  }
  const std::vector<bool>& packed() const { return packed_; }
  const float* vector(program::VectorId id) const { return memory_.as<float>(vectors_[id]); }
  NormArgs norm(const std::optional<program::Norm>& norm) const;
  const Memory& memory() const { return memory_; }

 private:
  const program::Program* program_ = nullptr;
  std::vector<bool> packed_, routes_;
  std::vector<uint64_t> weights_, exponents_, vectors_;  // offsets in memory_
  Memory memory_;
};

}  // namespace honeycrisp::backend::cuda
