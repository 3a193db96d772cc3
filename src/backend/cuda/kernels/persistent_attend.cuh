// Attention inside the persistent kernel: heads of any size and cache type on plain arithmetic, the joining of chunks,
// and the op. Heads of 64 and 128 in f16 go through persistent_attend_tiles.cuh.
#pragma once

#include "backend/cuda/kernels/persistent_attend_tiles.cuh"

namespace honeycrisp::backend::cuda {

// Fetches a vector of `dim` floats of a row's plane, norms and rotates it, into x in shared memory. By one warp.
__device__ __forceinline__ void prepare_vector(const StepArgs& a, const StepOp& op, BlockMemory& s, uint32_t row,
                                               uint32_t place, uint32_t dim, const NormArgs& norm, bool rotates,
                                               float* x, int lane) {
  constexpr int kEach = int(kMostStepHeadDim) / 32;
  const float* from = a.planes + size_t(row) * a.plane + place;
  float v[kEach], weight[kEach];
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const uint32_t d = lane + e * 32;
    weight[e] = norm.weight != nullptr && d < dim ? __ldg(norm.weight + d) : 1.0f;
    v[e] = d < dim ? look(from + d) : 0.0f;
  }
  for (uint32_t polls = 1;; ++polls) {
    bool waits = false;
#pragma unroll
    for (int e = 0; e < kEach; ++e)
      if (is_poison(v[e])) {
        v[e] = look(from + lane + e * 32);
        waits = true;
      }
    if (!waits || (polls % kPollsBetweenLooks == 0 && s.dog.gives_up())) break;
  }
  __syncwarp();
  float squares = 0;
#pragma unroll
  for (int e = 0; e < kEach; ++e) squares = fmaf(v[e], v[e], squares);
  const float scale = norm.present ? 1 / sqrtf(warp_sum(squares) / float(dim) + norm.eps) : 1.0f;
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const uint32_t d = lane + e * 32;
    if (d < dim) x[d] = norm.present ? v[e] * scale * weight[e] : v[e];
  }
  __syncwarp();
  if (rotates && op.rope >= 0)
    rotate(a.ropes[op.rope] + size_t(a.position[row]) * op.n_pairs * 2, op.n_pairs, op.interleaved, op.pair_distance, x,
           lane);
}

// Queries [heads][key_dim] of the item into shared memory, and what is new of keys and values into the cache.
__device__ __forceinline__ void prepare_item(const StepArgs& a, const StepOp& op, BlockMemory& s,
                                             const FoundItem& found, uint32_t heads, uint32_t appended, float* queries,
                                             float* scratch, int warp, int lane) {
  const AttendItem& item = found.item;
  const CacheView& c = op.cache;
  const uint32_t n = heads + 2 * __popc(appended);
#pragma unroll 1
  for (uint32_t i = warp; i < n; i += kWarps) {
    const bool is_query = i < heads, is_value = !is_query && (i - heads) % 2 != 0;
    uint32_t rows = appended;
    for (uint32_t skip = is_query ? 0 : (i - heads) / 2; skip != 0; --skip) rows &= rows - 1;
    const uint32_t row = is_query ? item.row : __ffs(int(rows)) - 1, dim = is_value ? c.value_dim : c.key_dim;
    const uint32_t place = is_query ? op.q + (item.kv_head * heads + i) * dim * (op.output_gate ? 2 : 1)
                                    : (is_value && !op.v_is_k ? op.v : op.k) + item.kv_head * dim;
    float* x = is_query ? queries + i * dim : scratch + warp * kMostStepHeadDim;
    prepare_vector(a, op, s, row, place, dim,
                   is_query   ? op.q_norm
                   : is_value ? op.v_norm
                              : op.k_norm,
                   !is_value, x, lane);
    if (is_query) continue;
    const uint32_t in_chunk = a.position[row] % kChunk;
    uint8_t* section = page_of(op, found, in_chunk) + (is_value ? c.value_offset : 0);
    store_vector(section, c.type, in_chunk % kPage, x, dim, lane);
    __syncwarp();
  }
}

// ---- any head and cache type, on plain arithmetic

template <uint8_t kType>
__device__ __forceinline__ void attend_plain(const StepArgs& a, const StepOp& op, BlockMemory& s,
                                             const FoundItem& found, uint8_t* work) {
  const int warp = this_thread() / 32, lane = this_thread() % 32;
  const AttendItem& item = found.item;
  const CacheView& c = op.cache;
  const uint32_t heads = op.heads_per_kv, appended = found.appended;
  float* queries = reinterpret_cast<float*>(work);                   // [heads][key_dim]
  float* scores = queries + kMostStepHeadsPerKv * kMostStepHeadDim;  // [heads][kChunk]
  float* sums = scores + kMostStepHeadsPerKv * kChunk;               // [parts][heads][value_dim]
  prepare_item(a, op, s, found, heads, appended, queries, sums, warp, lane);
  sync_warps();
  const uint32_t j = this_thread();
  if (j < kChunk) {
    const bool seen = j >= item.visible.begin && j < item.visible.end;
    float score[kMostStepHeadsPerKv] = {};
    if (seen) {
      uint8_t* keys = page_of(op, found, j);
      for (uint32_t d0 = 0; d0 < c.key_dim; d0 += 8) {
        float key[8];
        load8<kType>(keys, c.key_dim, j % kPage, d0, key);
#pragma unroll
        for (uint32_t h = 0; h < kMostStepHeadsPerKv; ++h) {
          if (h >= heads) break;
#pragma unroll
          for (int i = 0; i < 8; ++i) score[h] = fmaf(queries[h * c.key_dim + d0 + i], key[i], score[h]);
        }
      }
    }
#pragma unroll
    for (uint32_t h = 0; h < kMostStepHeadsPerKv; ++h)
      if (h < heads) scores[h * kChunk + j] = seen ? softcap(op.softcap, score[h] * op.scale) : -INFINITY;
  }
  sync_warps();
  if (warp < int(heads)) {
    float* mine = scores + warp * kChunk;
    float largest = -INFINITY, sum = 0;
    for (uint32_t i = lane; i < kChunk; i += 32) largest = fmaxf(largest, mine[i]);
    largest = warp_max(largest);
    for (uint32_t i = lane; i < kChunk; i += 32) {
      mine[i] = expf(mine[i] - largest);
      sum += mine[i];
    }
    sum = warp_sum(sum);
    if (lane == 0) s.whole[warp] = {largest, sum};
  }
  sync_warps();
  // Positions are dealt to the parts in turn; two elements a thread.
  const uint32_t lanes = c.value_dim / 2, parts = kThreads / lanes, part = this_thread() / lanes;
  if (part < parts) {
    const uint32_t d = this_thread() % lanes * 2;
    float2 acc[kMostStepHeadsPerKv] = {};
    for (uint32_t i = part; i < item.visible.end; i += parts) {
      if (i < item.visible.begin) continue;
      const float2 value = load2<kType>(page_of(op, found, i) + c.value_offset, c.value_dim, i % kPage, d);
#pragma unroll
      for (uint32_t h = 0; h < kMostStepHeadsPerKv; ++h) {
        if (h >= heads) break;
        const float weight = scores[h * kChunk + i];
        acc[h] = {fmaf(weight, value.x, acc[h].x), fmaf(weight, value.y, acc[h].y)};
      }
    }
#pragma unroll
    for (uint32_t h = 0; h < kMostStepHeadsPerKv; ++h)
      if (h < heads) *reinterpret_cast<float2*>(sums + (part * heads + h) * c.value_dim + d) = acc[h];
  }
  sync_warps();
  const uint32_t n_outputs = heads * c.value_dim;
  for (uint32_t o = this_thread(); o - lane < n_outputs; o += kThreads) {
    const bool exists = o < n_outputs;
    const uint32_t h = exists ? o / c.value_dim : 0, d = exists ? o % c.value_dim : 0;
    float value = 0;
    for (uint32_t p = 0; p < parts; ++p) value += sums[(p * heads + h) * c.value_dim + d];
    leave_value(a, op, s, item, item.kv_head * heads + h, d, value, s.whole[h].x, s.whole[h].y, exists);
  }
  sync_warps();
}

// Joins the chunks of one head of one row: group `i` of threads takes chunks i, i + groups, …
__device__ __forceinline__ void merge_head(const StepArgs& a, const StepOp& op, BlockMemory& s, uint32_t row,
                                           uint32_t head, uint32_t n_chunks, uint8_t* work) {
  const uint32_t dim = op.cache.value_dim, kv_head = head / op.heads_per_kv;
  const int lane = this_thread() % 32;
  // Pairs with the release of the blocks that left the chunks.
  if (this_thread() == 0) await_count(arrivals_of(a, op, row, kv_head), n_chunks, s.dog);
  sync_warps();
  const float* from = partials_of(a, op, row, head);
  if (this_thread() < 32) {
    float largest = op.sinks != nullptr ? op.sinks[head] : -INFINITY;
    for (uint32_t c = lane; c < n_chunks; c += 32) largest = fmaxf(largest, __ldcg(from + size_t(c) * (dim + 2) + dim));
    largest = warp_max(largest);
    float sum = 0;
    for (uint32_t c = lane; c < n_chunks; c += 32) {
      const float* p = from + size_t(c) * (dim + 2) + dim;
      sum = fmaf(expf(__ldcg(p) - largest), __ldcg(p + 1), sum);
    }
    sum = warp_sum(sum);
    if (op.sinks != nullptr) sum += expf(op.sinks[head] - largest);
    if (lane == 0) s.whole[0] = {largest, sum};
  }
  sync_warps();
  float* sums = reinterpret_cast<float*>(work);  // [groups][dim]
  const float2 whole = s.whole[0];
  const uint32_t groups = kThreads / dim, group = this_thread() / dim, d = this_thread() % dim;
  if (group < groups) {
    float value = 0;
#pragma unroll 8
    for (uint32_t c = group; c < n_chunks; c += groups) {
      const float* p = from + size_t(c) * (dim + 2);
      value = fmaf(expf(__ldcg(p + dim) - whole.x), __ldcg(p + d), value);
    }
    sums[group * dim + d] = value;
  }
  sync_warps();
  for (uint32_t i = this_thread(); i - lane < dim; i += kThreads) {
    const uint32_t element = min(i, dim - 1);
    float value = 0;
    for (uint32_t other = 0; other < groups; ++other) value += sums[other * dim + element];
    publish_attended(a, op, s, row, head, element, value / whole.y, i < dim);
  }
  sync_warps();
}

// ---- the op

/// All of the block's items of an op: their outputs, or their chunks' parts.
template <int kHeadDim>
__device__ __forceinline__ void attend_items(const StepArgs& a, const StepOp& op, BlockMemory& s, uint8_t* work) {
  if constexpr (kHeadDim != 0) {
    attend_tiles<kHeadDim>(a, op, s, work, this_thread() / 32, this_thread() % 32);
  } else {
    for (uint32_t ordinal = 0;; ++ordinal) {
      const FoundItem& found = find_item(a, op, s, ordinal);
      const AttendItem item = found.item;
      if (item.n_chunks == 0) break;
      if (op.cache.type == kF16)
        attend_plain<kF16>(a, op, s, found, work);
      else if (op.cache.type == kF32)
        attend_plain<kF32>(a, op, s, found, work);
      else
        attend_plain<kQ8>(a, op, s, found, work);
      leave_item(a, op, item);
    }
  }
}

/// Joins the chunks of rows that have several.
__device__ __forceinline__ void merge_heads(const StepArgs& a, const StepOp& op, BlockMemory& s, uint8_t* work) {
  uint32_t before = 0;  // heads of the rows before, dealt to the blocks in turn
  for (uint32_t row = 0; row < a.n_rows; ++row) {
    const RowChunks chunks = chunks_of(a, op, row);
    if (chunks.n == 1) continue;
    for (uint32_t head = (blockIdx.x + gridDim.x - before % gridDim.x) % gridDim.x; head < op.n_heads;
         head += gridDim.x)
      merge_head(a, op, s, row, head, chunks.n, work);
    before += op.n_heads;
  }
}

template <int kHeadDim>
__device__ __forceinline__ void attend_op(const StepArgs& a, const StepOp& op, BlockMemory& s, uint8_t* work) {
  attend_items<kHeadDim>(a, op, s, work);
  merge_heads(a, op, s, work);
}

}  // namespace honeycrisp::backend::cuda
