// Attention inside the persistent kernel. An item is (row, KV head, chunk of positions), dealt to the blocks in turn.
// The block norms and rotates the item's queries itself, and the keys and values that rows of this launch append to
// the chunk: several blocks may store the same bytes, and none waits for another's. A row with one chunk ends here;
// chunks of longer rows go to memory and are merged by a block per head.
//
// A row's bits depend on its position and its cache alone: a warp takes 16 positions of the chunk (or a thread one),
// and parts are joined in the order of positions.
#pragma once

#include "backend/cuda/kernels/cache.cuh"
#include "backend/cuda/kernels/ending.cuh"
#include "backend/cuda/kernels/packed.cuh"
#include "backend/cuda/kernels/persistent_block.cuh"

namespace honeycrisp::backend::cuda {

constexpr int kTileHeads = 4;  // query heads whose high and low parts fill the columns of an mma
constexpr int kTilePositions = 16;

struct AttendItem {
  uint32_t row, kv_head, chunk;  // row: of the launch; chunk: absolute
  uint32_t first_chunk, n_chunks;
  Visible visible;
};

struct RowChunks {
  uint32_t first, n;
};
__device__ __forceinline__ RowChunks chunks_of(const StepArgs& a, const StepOp& op, uint32_t row) {
  const uint32_t position = a.position[row];
  const uint32_t first = op.window != 0 && position >= op.window ? (position - op.window + 1) / kChunk : 0;
  return {first, position / kChunk - first + 1};
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

// Keys of the item's head in the page of a position of the chunk.
__device__ __forceinline__ uint8_t* page_of(const StepArgs& a, const StepOp& op, const AttendItem& item,
                                            uint32_t in_chunk) {
  const uint32_t* table = a.tables + a.table_start[size_t(a.row[item.row]) * a.n_pools + op.pool];
  return head_in_page(op.cache, table[item.chunk * (kChunk / kPage) + in_chunk / kPage], item.kv_head);
}

// Rows of this launch whose keys lie in the item's chunk and before its end, as bits.
__device__ __forceinline__ uint32_t appended_rows(const StepArgs& a, const AttendItem& item) {
  uint32_t rows = 0;
  for (uint32_t r = 0; r < a.n_rows; ++r)
    if ((a.earlier[item.row] >> r & 1) != 0 && a.position[r] / kChunk == item.chunk) rows |= 1u << r;
  return rows;
}

// Fetches a vector of `dim` floats of a row's plane, norms and rotates it, into x in shared memory. By one warp.
template <int kMostDim>
__device__ __forceinline__ void prepare_vector(const StepArgs& a, const StepOp& op, BlockMemory& s, uint32_t row,
                                               uint32_t place, uint32_t dim, const NormArgs& norm, bool rotates,
                                               float* x, int lane) {
  constexpr int kEach = kMostDim / 32;
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
template <int kMostDim, bool kAlwaysF16>
__device__ __forceinline__ void prepare_item(const StepArgs& a, const StepOp& op, BlockMemory& s,
                                             const AttendItem& item, uint32_t heads, uint32_t appended, float* queries,
                                             float* scratch, int warp, int lane) {
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
    float* x = is_query ? queries + i * dim : scratch + warp * kMostDim;
    prepare_vector<kMostDim>(a, op, s, row, place, dim,
                             is_query   ? op.q_norm
                             : is_value ? op.v_norm
                                        : op.k_norm,
                             !is_value, x, lane);
    if (is_query) continue;
    const uint32_t in_chunk = a.position[row] % kChunk;
    uint8_t* section = page_of(a, op, item, in_chunk) + (is_value ? c.value_offset : 0);
    store_vector(section, kAlwaysF16 ? kF16 : c.type, in_chunk % kPage, x, dim, lane);
    __syncwarp();
  }
}

__device__ __forceinline__ float gated(const StepArgs& a, const StepOp& op, BlockMemory& s, uint32_t row, uint32_t head,
                                       uint32_t d, float out) {
  if (!op.output_gate) return out;
  const float* gate = a.planes + size_t(row) * a.plane + op.q + (head * 2 + 1) * op.cache.key_dim + d;
  return out / (1 + expf(-await(gate, s.dog)));
}

// Partial results of a row's head: [n_chunks][value_dim + 2].
__device__ __forceinline__ float* partials_of(const StepArgs& a, const StepOp& op, uint32_t row, uint32_t head) {
  return a.partials + op.index % 2 * a.partial_floats +
         (size_t(row) * op.n_heads + head) * a.n_chunks * (op.cache.value_dim + 2);
}

// Element d of a head over the chunk, with the chunk's largest score and sum of weights.
__device__ __forceinline__ void leave_value(const StepArgs& a, const StepOp& op, BlockMemory& s, const AttendItem& item,
                                            uint32_t head, uint32_t d, float value, float largest, float sum) {
  const uint32_t dim = op.cache.value_dim;
  if (item.n_chunks == 1) {
    if (op.sinks != nullptr) {
      const float most = fmaxf(largest, op.sinks[head]), factor = expf(largest - most);
      value *= factor;
      sum = fmaf(sum, factor, expf(op.sinks[head] - most));
    }
    publish(a.planes + size_t(item.row) * a.plane + op.out[0] + head * dim + d,
            gated(a, op, s, item.row, head, d, value / sum));
    return;
  }
  float* to = partials_of(a, op, item.row, head) + size_t(item.chunk - item.first_chunk) * (dim + 2);
  to[d] = value;
  if (d == 0) {
    to[dim] = largest;
    to[dim + 1] = sum;
  }
}

// ---- heads of 64 or 128 in f16, on tensor cores
//
// A warp takes 16 positions. Scores [positions][columns]: columns 0..3 are the high f16 parts of four queries, 4..7
// their low parts; values likewise with the weights. Lanes load 16 bytes of keys (8 elements of positions g and g + 8)
// and of values (8 elements of positions 2t, 2t+1, 2t+8, 2t+9); the order of elements inside a fragment follows from
// that and cancels.

__device__ __forceinline__ uint32_t transposed(uint32_t v) {
  uint32_t r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(v));
  return r;
}
// Two numbers as f16, or what that rounding left of them.
__device__ __forceinline__ uint32_t halves_of(float x, float y, bool low) {
  const uint32_t high = pack_halves(x, y);
  if (!low) return high;
  const float2 h = halves(high);
  return pack_halves(x - h.x, y - h.y);
}

template <int kDim>
__device__ __forceinline__ void load_keys(uint4 (&k)[2][kDim / 32], const uint8_t* tile, int lane) {
  const int g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int j = 0; j < kDim / 32; ++j)
      k[half][j] = __ldcg(reinterpret_cast<const uint4*>(tile + (g + 8 * half) * kDim * 2 + j * 64 + t * 16));
}

template <int kDim>
__device__ __forceinline__ void attend_tiles(const StepArgs& a, const StepOp& op, BlockMemory& s,
                                             const AttendItem& item, uint8_t* work, int warp, int lane) {
  constexpr int kGroups = kDim / 32, kParts = kDim / 64;
  const CacheView& c = op.cache;
  const uint32_t heads = op.heads_per_kv, appended = appended_rows(a, item);
  float* queries = reinterpret_cast<float*>(work);     // [heads][kDim]
  float* sums = queries + kMostStepHeadsPerKv * kDim;  // [warps][4][kDim]
  const int g = lane >> 2, t = lane & 3;
  const uint32_t first = warp * kTilePositions;
  const bool any = first < item.visible.end && first + kTilePositions > item.visible.begin;

  uint32_t fresh = kChunk;  // first position that this launch appends
  for (uint32_t r = 0; r < a.n_rows; ++r)
    if (appended >> r & 1) fresh = min(fresh, a.position[r] % kChunk);
  const uint8_t *keys = nullptr, *values = nullptr;
  uint4 k[2][kGroups];
  if (any) {
    const uint8_t* page = page_of(a, op, item, first);
    keys = page + first % kPage * kDim * 2;
    values = page + c.value_offset + first % kPage * kDim * 2;
    asm volatile("prefetch.global.L2 [%0];" ::"l"(values + lane * (kTilePositions * kDim * 2 / 32)));
    if (first + kTilePositions <= fresh) load_keys<kDim>(k, keys, lane);
  }
  prepare_item<kDim, true>(a, op, s, item, heads, appended, queries, sums, warp, lane);
  __syncthreads();

  for (uint32_t group = 0; group < heads; group += kTileHeads) {
    const uint32_t n = min(uint32_t(kTileHeads), heads - group);
    float2 largest = {-INFINITY, -INFINITY}, sum = {0, 0};
    if (any) {
      if (group != 0 || first + kTilePositions > fresh) load_keys<kDim>(k, keys, lane);
      float score[4] = {};
      const float* q = queries + (group + min(uint32_t(g & 3), n - 1)) * kDim;
#pragma unroll
      for (int j = 0; j < kGroups; ++j) {
        const float4 q0 = *reinterpret_cast<const float4*>(q + 32 * j + 8 * t);
        const float4 q1 = *reinterpret_cast<const float4*>(q + 32 * j + 8 * t + 4);
        const bool low = g >= 4;
        mma_f16(score, k[0][j].x, k[1][j].x, k[0][j].y, k[1][j].y, halves_of(q0.x, q0.y, low),
                halves_of(q0.z, q0.w, low), score);
        mma_f16(score, k[0][j].z, k[1][j].z, k[0][j].w, k[1][j].w, halves_of(q1.x, q1.y, low),
                halves_of(q1.z, q1.w, low), score);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        score[i] += __shfl_xor_sync(~0u, score[i], 2);
        const uint32_t position = first + g + (i >> 1) * 8;
        const bool seen = position >= item.visible.begin && position < item.visible.end;
        score[i] = seen ? softcap(op.softcap, score[i] * op.scale) : -INFINITY;
      }
      largest = {fmaxf(score[0], score[2]), fmaxf(score[1], score[3])};
#pragma unroll
      for (int d = 4; d < 32; d *= 2) {
        largest.x = fmaxf(largest.x, __shfl_xor_sync(~0u, largest.x, d));
        largest.y = fmaxf(largest.y, __shfl_xor_sync(~0u, largest.y, d));
      }
      const float weight[4] = {expf(score[0] - largest.x), expf(score[1] - largest.y), expf(score[2] - largest.x),
                               expf(score[3] - largest.y)};
      sum = {weight[0] + weight[2], weight[1] + weight[3]};
#pragma unroll
      for (int d = 4; d < 32; d *= 2) {
        sum.x += __shfl_xor_sync(~0u, sum.x, d);
        sum.y += __shfl_xor_sync(~0u, sum.y, d);
      }
      const uint32_t p0 = transposed(halves_of(weight[0], weight[1], t >= 2));
      const uint32_t p1 = transposed(halves_of(weight[2], weight[3], t >= 2));
      float* to = sums + warp * kTileHeads * kDim;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        uint4 v[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {  // what is not seen may be anything, and its weight is 0
          const uint32_t in_tile = 2 * t + (i & 1) + (i >> 1) * 8, position = first + in_tile;
          v[i] = position >= item.visible.begin && position < item.visible.end
                     ? __ldcg(reinterpret_cast<const uint4*>(values + in_tile * kDim * 2 + part * 128 + g * 16))
                     : make_uint4(0, 0, 0, 0);
        }
        float out[4][4] = {};
#define HC_VALUES(i, w)                                                                     \
  mma_f16(out[i], __byte_perm(v[0].w, v[1].w, 0x5410), __byte_perm(v[0].w, v[1].w, 0x7632), \
          __byte_perm(v[2].w, v[3].w, 0x5410), __byte_perm(v[2].w, v[3].w, 0x7632), p0, p1, out[i])
        HC_VALUES(0, x);
        HC_VALUES(1, y);
        HC_VALUES(2, z);
        HC_VALUES(3, w);
#undef HC_VALUES
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) out[i][j] += __shfl_xor_sync(~0u, out[i][j], 2);
        if (t < 2) {  // columns 2t and 2t + 1; elements 8g .. 8g + 7 of the part
#pragma unroll
          for (int column = 0; column < 2; ++column) {
            auto* o = reinterpret_cast<float4*>(to + (2 * t + column) * kDim + part * 64 + g * 8);
            o[0] = {out[0][column], out[0][column + 2], out[1][column], out[1][column + 2]};
            o[1] = {out[2][column], out[2][column + 2], out[3][column], out[3][column + 2]};
          }
        }
      }
    }
    if (g == 0 && t < 2) {
      s.whole[warp * kTileHeads + 2 * t] = {largest.x, sum.x};
      s.whole[warp * kTileHeads + 2 * t + 1] = {largest.y, sum.y};
    }
    __syncthreads();
    const uint32_t begin = item.visible.begin / kTilePositions,
                   end = (item.visible.end + kTilePositions - 1) / kTilePositions;
    for (uint32_t o = threadIdx.x; o < n * kDim; o += kThreads) {  // a warp stays in one head
      const uint32_t h = o / kDim, d = o % kDim;
      const bool takes_part = lane >= begin && lane < end;
      const float2 mine = takes_part ? s.whole[lane * kTileHeads + h] : float2{-INFINITY, 0};
      const float most = warp_max(mine.x), factor = takes_part ? expf(mine.x - most) : 0.0f;
      const float total = warp_sum(factor * mine.y);
      float value = 0;
#pragma unroll 4
      for (uint32_t w = begin; w < end; ++w)
        value = fmaf(__shfl_sync(~0u, factor, int(w)), sums[(w * kTileHeads + h) * kDim + d], value);
      leave_value(a, op, s, item, item.kv_head * heads + group + h, d, value, most, total);
    }
    __syncthreads();
  }
}

// ---- any head and cache type, on plain arithmetic

template <uint8_t kType>
__device__ __forceinline__ void attend_plain(const StepArgs& a, const StepOp& op, BlockMemory& s,
                                             const AttendItem& item, uint8_t* work) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const CacheView& c = op.cache;
  const uint32_t heads = op.heads_per_kv, appended = appended_rows(a, item);
  float* queries = reinterpret_cast<float*>(work);                   // [heads][key_dim]
  float* scores = queries + kMostStepHeadsPerKv * kMostStepHeadDim;  // [heads][kChunk]
  float* sums = scores + kMostStepHeadsPerKv * kChunk;               // [parts][heads][value_dim]
  prepare_item<int(kMostStepHeadDim), false>(a, op, s, item, heads, appended, queries, sums, warp, lane);
  __syncthreads();
  const uint32_t j = threadIdx.x;
  if (j < kChunk) {
    const bool seen = j >= item.visible.begin && j < item.visible.end;
    float score[kMostStepHeadsPerKv] = {};
    if (seen) {
      uint8_t* keys = page_of(a, op, item, j);
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
  __syncthreads();
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
  __syncthreads();
  // Positions are dealt to the parts in turn; two elements a thread.
  const uint32_t lanes = c.value_dim / 2, parts = kThreads / lanes, part = threadIdx.x / lanes;
  if (part < parts) {
    const uint32_t d = threadIdx.x % lanes * 2;
    float2 acc[kMostStepHeadsPerKv] = {};
    for (uint32_t i = part; i < item.visible.end; i += parts) {
      if (i < item.visible.begin) continue;
      const float2 value = load2<kType>(page_of(a, op, item, i) + c.value_offset, c.value_dim, i % kPage, d);
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
  __syncthreads();
  for (uint32_t o = threadIdx.x; o < heads * c.value_dim; o += kThreads) {
    const uint32_t h = o / c.value_dim, d = o % c.value_dim;
    float value = 0;
    for (uint32_t p = 0; p < parts; ++p) value += sums[(p * heads + h) * c.value_dim + d];
    leave_value(a, op, s, item, item.kv_head * heads + h, d, value, s.whole[h].x, s.whole[h].y);
  }
  __syncthreads();
}

// ---- the op

__device__ __forceinline__ uint32_t* arrivals_of(const StepArgs& a, const StepOp& op, uint32_t row, uint32_t kv_head) {
  return a.arrivals + (size_t(op.index) * kStepRows + row) * a.arrival_heads + kv_head;
}

// Joins the chunks of one head of one row: group `i` of threads takes chunks i, i + groups, …
__device__ __forceinline__ void merge_head(const StepArgs& a, const StepOp& op, BlockMemory& s, uint32_t row,
                                           uint32_t head, uint32_t n_chunks, uint8_t* work) {
  const uint32_t dim = op.cache.value_dim, kv_head = head / op.heads_per_kv;
  const int lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {  // pairs with the release of the blocks that left the chunks
    const uint32_t* arrivals = arrivals_of(a, op, row, kv_head);
    uint32_t seen;
    for (uint32_t polls = 1;; ++polls) {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrivals) : "memory");
      if (seen >= n_chunks || (polls % kPollsBetweenLooks == 0 && s.dog.gives_up())) break;
    }
  }
  __syncthreads();
  const float* from = partials_of(a, op, row, head);
  if (threadIdx.x < 32) {
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
  __syncthreads();
  float* sums = reinterpret_cast<float*>(work);  // [groups][dim]
  const float2 whole = s.whole[0];
  const uint32_t groups = kThreads / dim, group = threadIdx.x / dim, d = threadIdx.x % dim;
  if (group < groups) {
    float value = 0;
#pragma unroll 8
    for (uint32_t c = group; c < n_chunks; c += groups) {
      const float* p = from + size_t(c) * (dim + 2);
      value = fmaf(expf(__ldcg(p + dim) - whole.x), __ldcg(p + d), value);
    }
    sums[group * dim + d] = value;
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < dim; i += kThreads) {
    float value = 0;
    for (uint32_t other = 0; other < groups; ++other) value += sums[other * dim + i];
    publish(a.planes + size_t(row) * a.plane + op.out[0] + head * dim + i,
            gated(a, op, s, row, head, i, value / whole.y));
  }
  __syncthreads();
}

template <int kHeadDim>
__device__ __forceinline__ void attend_op(const StepArgs& a, const StepOp& op, BlockMemory& s, uint8_t* work) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const CacheView& c = op.cache;
  for (uint32_t index = blockIdx.x;; index += gridDim.x) {
    const AttendItem item = item_of(a, op, index);
    if (item.n_chunks == 0) break;
    if constexpr (kHeadDim != 0) {
      attend_tiles<kHeadDim>(a, op, s, item, work, warp, lane);
    } else {
      if (c.type == kF16)
        attend_plain<kF16>(a, op, s, item, work);
      else if (c.type == kF32)
        attend_plain<kF32>(a, op, s, item, work);
      else
        attend_plain<kQ8>(a, op, s, item, work);
    }
    if (item.n_chunks > 1 && threadIdx.x == 0)  // the block's partial results come before, by the last barrier
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrivals_of(a, op, item.row, item.kv_head))
                   : "memory");
  }
  uint32_t index = 0;
  for (uint32_t row = 0; row < a.n_rows; ++row) {
    const RowChunks chunks = chunks_of(a, op, row);
    if (chunks.n == 1) continue;
    for (uint32_t head = 0; head < op.n_heads; ++head)
      if (index++ % gridDim.x == blockIdx.x) merge_head(a, op, s, row, head, chunks.n, work);
  }
}

}  // namespace honeycrisp::backend::cuda
