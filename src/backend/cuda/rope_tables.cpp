#include "backend/cuda/rope_tables.h"

#include "backend/rope_table.h"

#include <algorithm>
#include <bit>
#include <cuda_runtime_api.h>

namespace honeycrisp::backend::cuda {
namespace {

constexpr uint32_t kFirstPositions = 1024;

}  // namespace

Result<bool> RopeTables::reserve(uint32_t n_positions) {
  if (n_positions <= n_positions_) return false;
  const uint32_t grown = std::max(kFirstPositions, std::bit_ceil(n_positions));
  std::vector<Memory> tables;
  for (const program::Rope& rope : ropes_) {
    const std::vector<float> table = make_rope_table(rope, grown);
    HC_ASSIGN(Memory memory, Memory::allocate(table.size() * sizeof(float), "rope table"));
    HC_TRY(check_cuda(cudaMemcpy(memory.as(), table.data(), table.size() * sizeof(float), cudaMemcpyHostToDevice),
                      "uploading a rope table"));
    tables.push_back(std::move(memory));
  }
  tables_ = std::move(tables);  // all or none: graphs hold the old pointers
  for (size_t id = 0; id < ropes_.size(); ++id) pointers_[id] = tables_[id].as<float>();
  n_positions_ = grown;
  return true;
}

uint64_t RopeTables::memory_bytes() const {
  uint64_t bytes = 0;
  for (const Memory& table : tables_) bytes += table.bytes();
  return bytes;
}

}  // namespace honeycrisp::backend::cuda
