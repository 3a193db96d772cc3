// Weights as the kernels take them: panels of 16 outputs side by side, the bits of the file rearranged (isa/kernels.h
// describes the layout). Owns the packed copies of a program's matrices and how they are made while the
// model loads; knows nothing of how they are multiplied.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/thread_pool.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

namespace honeycrisp::backend::cpu {

/// Whether the format is multiplied from panels.
bool is_packed(quant::Format format);
/// Bytes of a panel of 16 rows × cols; cols is a multiple of the format's block.
uint64_t panel_bytes(quant::Format format, uint32_t cols);
/// One panel from n_rows ≤ 16 rows of blocks that lie row_bytes apart. Rows that are missing become zeros.
void pack_panel(quant::Format format, const std::byte* rows, uint64_t row_bytes, uint32_t n_rows, uint32_t cols,
                uint8_t* panel);

/// A packed matrix: [slices][panels], the last panel of a slice filled up with zeros.
struct PackedMatrix {
  const uint8_t* data = nullptr;
  uint64_t panel_bytes = 0;
  uint64_t slice_bytes = 0;
};

class PackedWeights {
 public:
  PackedWeights() = default;
  PackedWeights(PackedWeights&&) = default;
  PackedWeights& operator=(PackedWeights&&) = default;

  /// Packs every matrix of the program that a Project, MixExperts or Logits multiplies with, on all threads of the
  /// pool, piece by piece, and gives back the pages of the file that it has read. `options` for progress and
  /// release_source. Error: out of memory, with the sizes; before anything is packed if it cannot fit memory_limit.
  static Result<PackedWeights> make(const program::Program& program, const CompileOptions& options, ThreadPool& pool);

  /// Whether the memory suffices, as far as make() can tell beforehand.
  static Result<void> check_memory(const program::Program& program, uint64_t memory_limit);

  /// Null if the matrix is not one of those that are packed.
  const PackedMatrix* find(const program::Matrix& matrix) const;
  uint64_t memory_bytes() const { return memory_bytes_; }
  /// All of them, a piece of memory per matrix.
  std::vector<std::span<const uint8_t>> memory(const program::Program& program) const;

 private:
  using Key = std::tuple<program::WeightId, uint32_t, uint32_t>;  // weight, first row, rows
  static Key key(const program::Matrix& m) { return {m.weight, m.first_row, m.rows}; }

  struct Place {
    uint64_t offset, panel_bytes, slice_bytes;
  };
  struct Layout {
    std::map<Key, Place> places;
    uint64_t bytes = 0;
  };
  /// Where each matrix lies in the memory of all. Errors as of make().
  static Result<Layout> lay_out(const program::Program& program, uint64_t memory_limit);
  /// `done` is told of the file's bytes that are no longer needed.
  void pack(const program::Program& program, const program::Matrix& matrix, const PackedMatrix& packed,
            ThreadPool& pool, const std::function<void(const std::byte*, uint64_t)>& done);

  std::map<Key, PackedMatrix> matrices_;
  Memory<uint8_t> memory_;
  uint64_t memory_bytes_ = 0;
};

}  // namespace honeycrisp::backend::cpu
