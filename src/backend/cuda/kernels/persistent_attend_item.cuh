// What both ways of attending in the persistent kernel share. An item is (row, KV head, chunk of positions), dealt to
// the blocks in turn. The block norms and rotates the item's queries itself, and the keys and values that rows of this
// launch append to the chunk: several blocks may store the same bytes, and none waits for another's. A row with one
// chunk ends there; chunks of longer rows go to memory and are merged by a block per head.
//
// A row's bits depend on its position and its cache alone: a warp takes 16 positions of the chunk (or a thread one),
// and parts are joined in the order of positions.
#pragma once

#include "backend/cuda/kernels/ending.cuh"
#include "backend/cuda/kernels/fragments.cuh"

namespace honeycrisp::backend::cuda {

__device__ __forceinline__ RowChunks chunks_of(const StepArgs& a, const StepOp& op, uint32_t row) {
  return chunks_of(a.position[row], op.window);
}

/// The item, or n_chunks = 0 past the last.
__device__ __forceinline__ AttendItem item_of(const StepArgs& a, const StepOp& op, uint32_t index) {
  AttendItem item{};
  for (uint32_t row = 0; row < a.n_rows; ++row) {
    const RowChunks chunks = chunks_of(a, op, row);
    const uint32_t n = chunks.n * op.cache.n_kv_heads;
    if (index >= n) {
      index -= n;
      continue;
    }
    item.row = row;
    const uint32_t chunk = index / op.cache.n_kv_heads;
    item.kv_head = index - chunk * op.cache.n_kv_heads;
    item.chunk = chunks.first + chunk;
    item.first_chunk = chunks.first;
    item.n_chunks = chunks.n;
    item.visible = visible_part(a.position[row], op.window, item.chunk);
    break;
  }
  return item;
}

// Rows of this launch whose keys lie in the item's chunk and before its end, as bits.
__device__ __forceinline__ uint32_t appended_rows(const StepArgs& a, const AttendItem& item) {
  uint32_t rows = 0;
  for (uint32_t r = 0; r < a.n_rows; ++r)
    if ((a.earlier[item.row] >> r & 1) != 0 && a.position[r] / kChunk == item.chunk) rows |= 1u << r;
  return rows;
}

/// The block's item `ordinal` of an op. Finding its pages takes three loads after one another, so it is kept for the
/// next layers, whose items are the same. By the whole block; ends with the block in step where something was to be
/// found.
__device__ __forceinline__ const FoundItem& find_item(const StepArgs& a, const StepOp& op, BlockMemory& s,
                                                      uint32_t ordinal) {
  FoundItem& found = s.items[(ordinal % kFoundItems) * 2 + op.pool % 2];
  if (found.ordinal == ordinal && found.window == op.window && found.pool == op.pool &&
      found.kv_heads == op.cache.n_kv_heads)
    return found;
  sync_warps();
  const uint32_t i = this_thread();
  if (i < kPagesPerChunk) {
    const AttendItem item = item_of(a, op, blockIdx.x + ordinal * gridDim.x);
    const uint32_t page = item.chunk * kPagesPerChunk + i;
    // Pages that a window has passed may not be there.
    if (item.n_chunks != 0 && page * kPage <= a.position[item.row] &&
        (page + 1) * kPage > item.chunk * kChunk + item.visible.begin) {
      const uint32_t* table = a.tables + a.table_start[size_t(a.row[item.row]) * a.n_pools + op.pool];
      found.pages[i] = page_memory(op.cache, table[page]);
    }
    if (i == 0) {
      found.item = item;
      found.owns = a.position[item.row] / kChunk == item.chunk;
      found.appended = appended_rows(a, item);
      found.fresh = 0;
      for (uint32_t r = 0; r < a.n_rows; ++r)
        if (r != item.row && (found.appended >> r & 1) != 0) found.fresh |= 1u << a.position[r] % kChunk / 16;
      found.window = op.window;
      found.pool = op.pool;
      found.kv_heads = op.cache.n_kv_heads;
      found.ordinal = ordinal;
    }
  }
  sync_warps();
  return found;
}
// Keys of the item's head in the page of a position of the chunk.
__device__ __forceinline__ uint8_t* page_of(const StepOp& op, const FoundItem& found, uint32_t in_chunk) {
  return found.pages[in_chunk / kPage] + op.cache.layer_offset + found.item.kv_head * op.cache.head_bytes;
}

__device__ __forceinline__ float gated(const StepArgs& a, const StepOp& op, BlockMemory& s, uint32_t row, uint32_t head,
                                       uint32_t d, float out) {
  if (!op.output_gate) return out;
  const float* gate = a.planes + size_t(row) * a.plane + op.q + (head * 2 + 1) * op.cache.key_dim + d;
  return out / (1 + expf(-await(gate, s.dog)));
}

// An element of a row's output, where it exists, by a whole warp: neighbouring lanes have neighbouring elements.
__device__ __forceinline__ void publish_attended(const StepArgs& a, const StepOp& op, BlockMemory& s, uint32_t row,
                                                 uint32_t head, uint32_t d, float value, bool exists) {
  float* plane = a.planes + size_t(row) * a.plane;
  const uint32_t column = head * op.cache.value_dim + d;
  value = gated(a, op, s, row, head, d, value);
  if (op.floats_out && exists) publish(plane + op.out[0] + column, value);
  if (op.fragments_out != kNoPlace)
    publish_block(plane + op.fragments_out, op.halves_out, op.rows[0], column, value, 1, exists);
}

// Partial results of a row's head: [n_chunks][value_dim + 2].
__device__ __forceinline__ float* partials_of(const StepArgs& a, const StepOp& op, uint32_t row, uint32_t head) {
  return a.partials + op.index % 2 * a.partial_floats +
         (size_t(row) * op.n_heads + head) * a.n_chunks * (op.cache.value_dim + 2);
}

// Element d of a head over the chunk, where it exists, with the chunk's largest score and sum of weights. By a whole
// warp.
__device__ __forceinline__ void leave_value(const StepArgs& a, const StepOp& op, BlockMemory& s, const AttendItem& item,
                                            uint32_t head, uint32_t d, float value, float largest, float sum,
                                            bool exists) {
  const uint32_t dim = op.cache.value_dim;
  if (item.n_chunks == 1) {
    if (op.sinks != nullptr) {
      const float most = fmaxf(largest, op.sinks[head]), factor = expf(largest - most);
      value *= factor;
      sum = fmaf(sum, factor, expf(op.sinks[head] - most));
    }
    return publish_attended(a, op, s, item.row, head, d, value / sum, exists);
  }
  if (!exists) return;
  float* to = partials_of(a, op, item.row, head) + size_t(item.chunk - item.first_chunk) * (dim + 2);
  to[d] = value;
  if (d == 0) {
    to[dim] = largest;
    to[dim + 1] = sum;
  }
}

__device__ __forceinline__ uint32_t* arrivals_of(const StepArgs& a, const StepOp& op, uint32_t row, uint32_t kv_head) {
  return a.arrivals + (size_t(op.index) * kStepRows + row) * a.arrival_heads + kv_head;
}
// Once the block has left all values of the item; after a barrier.
__device__ __forceinline__ void leave_item(const StepArgs& a, const StepOp& op, const AttendItem& item) {
  if (item.n_chunks > 1 && this_thread() == 0)
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrivals_of(a, op, item.row, item.kv_head))
                 : "memory");
}

}  // namespace honeycrisp::backend::cuda
