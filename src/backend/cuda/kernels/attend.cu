// Attention over the paged cache, for rows of either role: prepare (norms, rope, appending), one block per chunk of
// positions, and the merge of the chunks from left to right. The blocks of a step of one row prepare for themselves.
//
// A row's bits depend on its position and its cache alone: chunks start at absolute multiples of kAttentionChunk, work
// inside a chunk is split by the head's size only, and a chunk that the row cannot see is not merged.
#include "backend/cuda/kernels/cache.cuh"
#include "backend/cuda/kernels/ending.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace honeycrisp::backend::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kHeadGroup = 4;      // query heads of a KV head that share one pass over keys and values
constexpr int kQueryExponent = 4;  // of a query in f16: scores stay finite, low parts do not vanish
constexpr int kTogether = 8;       // elements of a vector that a thread loads together
constexpr int kKeyLanes = 8;       // threads that share a position's key: a line of 128 bytes for an f16 cache
constexpr int kKeyLoads = kChunk / (kThreads / kKeyLanes), kValueLoads = 8;  // loads in flight of a thread

// ---- where things lie

__device__ __forceinline__ const uint32_t* page_table(const AttendArgs& a, uint32_t row) {
  return a.tables + a.table_start[size_t(row) * a.n_pools + a.pool];
}
// ---- prepare

// 1 / rms over all heads of a projection, for norms of the whole; by the block.
__device__ float whole_scale(const float* x, uint32_t n, float eps, float* shared) {
  float squares = 0;
  for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
    const float v = __ldcg(x + i);
    squares = fmaf(v, v, squares);
  }
  return 1 / sqrtf(block_sum<kThreads>(squares, shared) / float(n) + eps);
}

// Brings a line into L1 without waiting for it.
__device__ __forceinline__ void load_ahead(const float* p) {
  [[maybe_unused]] float unused;
  asm volatile("ld.global.ca.f32 %0, [%1];" : "=f"(unused) : "l"(p));
}

// A query in two parts, [2][key_dim] in the place of its f32: f16 after scaling by a power of two for an f16 cache,
// else bf16.
__device__ __forceinline__ void store_in_parts(const AttendArgs& a, uint32_t row, uint32_t head, const float* x,
                                               int lane) {
  const uint32_t dim = a.cache.key_dim;
  const bool halves = a.cache.type == kF16;
  float largest = 0;
  for (uint32_t d = lane; d < dim; d += 32) largest = fmaxf(largest, fabsf(x[d]));
  largest = warp_max(largest);
  const int exponent =
      halves && largest > 0 && largest < INFINITY ? max(-100, min(100, kQueryExponent - ilogbf(largest))) : 0;
  const float factor = ldexpf(1, exponent);
  const size_t at = size_t(row) * a.n_heads + head;
  if (lane == 0) a.query_scales[at] = ldexpf(1, -exponent);
  auto* to = reinterpret_cast<uint16_t*>(a.queries + at * dim);
  for (uint32_t d = lane; d < dim; d += 32) {
    const TwoParts parts = halves ? two_parts<false>(x[d] * factor) : two_parts<true>(x[d]);
    to[d] = parts.high;
    to[dim + d] = parts.low;
  }
}

enum class HeadKind : uint8_t { kQuery, kKey, kValue };

// The head's vector, normed and rotated, into x in shared memory. By one warp. whole: the scale of norms of the whole
// projection.
__device__ __forceinline__ void prepare_head(const AttendArgs& a, uint32_t row, uint32_t position, HeadKind kind,
                                             uint32_t head, float whole_norm, float* x, int lane) {
  const CacheView& c = a.cache;
  const bool is_query = kind == HeadKind::kQuery, is_value = kind == HeadKind::kValue;
  const uint32_t dim = is_value ? c.value_dim : c.key_dim;
  const Rows& rows = is_query ? a.q : is_value && !a.v_is_k ? a.v : a.k;
  const float* from = rows.data + size_t(row) * rows.stride + size_t(head) * dim * (is_query && a.output_gate ? 2 : 1);
  const NormArgs& norm = is_query ? a.q_norm : is_value ? a.v_norm : a.k_norm;

  // Dimensions are a multiple of four; places in buffers need not be.
  const bool aligned = reinterpret_cast<uintptr_t>(from) % 16 == 0;
  float squares = 0;
  for (uint32_t d = 4 * lane; d < dim; d += 128) {
    float4 v;
    if (aligned)
      v = __ldcg(reinterpret_cast<const float4*>(from + d));
    else
      v = {__ldcg(from + d), __ldcg(from + d + 1), __ldcg(from + d + 2), __ldcg(from + d + 3)};
    *reinterpret_cast<float4*>(x + d) = v;
    squares = fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, squares))));
  }
  if (norm.present) {
    const bool whole = a.norm_whole && !is_value;
    const float scale = whole ? whole_norm : 1 / sqrtf(warp_sum(squares) / float(dim) + norm.eps);
    const float* weight = norm.weight == nullptr ? nullptr : norm.weight + (whole ? size_t(head) * dim : 0);
    for (uint32_t d = 4 * lane; d < dim; d += 128) {
      float4 w{1, 1, 1, 1};
      if (weight != nullptr) w = *reinterpret_cast<const float4*>(weight + d);
      float4& v = *reinterpret_cast<float4*>(x + d);
      v = {v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w};
    }
  }
  __syncwarp();
  if (!is_value && a.rope != nullptr)
    rotate(a.rope + size_t(position) * a.n_pairs * 2, a.n_pairs, a.interleaved, a.pair_distance, x, lane);
}

// Constants that the heads need are brought ahead of them.
__device__ __forceinline__ void load_constants_ahead(const AttendArgs& a, uint32_t position, int lane) {
  for (const float* weight : {a.q_norm.weight, a.k_norm.weight})
    if (weight != nullptr && !a.norm_whole && 4 * lane < int(a.cache.key_dim)) load_ahead(weight + 4 * lane);
  if (a.rope != nullptr && 2 * lane < int(a.n_pairs))
    load_ahead(a.rope + (size_t(position) * a.n_pairs + 2 * lane) * 2);
}

// The scales of norms of whole projections; by the block.
struct WholeScales {
  float q = 1, k = 1;
};
__device__ __forceinline__ WholeScales whole_scales(const AttendArgs& a, uint32_t row, float* reduction) {
  WholeScales s;
  const CacheView& c = a.cache;
  if (a.norm_whole && a.q_norm.present)
    s.q = whole_scale(a.q.data + size_t(row) * a.q.stride, a.n_heads * c.key_dim, a.q_norm.eps, reduction);
  if (a.norm_whole && a.k_norm.present && a.appends)
    s.k = whole_scale(a.k.data + size_t(row) * a.k.stride, c.n_kv_heads * c.key_dim, a.k_norm.eps, reduction);
  return s;
}

// A warp per head: query heads, then keys, then values. blockIdx.y is the row.
__global__ void __launch_bounds__(kThreads) prepare(const __grid_constant__ AttendArgs a, uint32_t head_floats) {
  extern __shared__ __align__(16) float heads[];
  __shared__ float reduction[kWarps];
  let_next_begin();
  const uint32_t row = blockIdx.y, position = a.positions[row];
  const uint32_t page = page_table(a, row)[position / kPage];
  const CacheView& c = a.cache;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  load_constants_ahead(a, position, lane);
  wait_for_previous();
  const WholeScales whole = whole_scales(a, row, reduction);
  uint32_t head = blockIdx.x * kWarps + warp;
  const uint32_t n_appended = a.appends ? c.n_kv_heads : 0;
  if (head >= a.n_heads + 2 * n_appended) return;
  const HeadKind kind = head < a.n_heads                ? HeadKind::kQuery
                        : head < a.n_heads + n_appended ? HeadKind::kKey
                                                        : HeadKind::kValue;
  if (kind != HeadKind::kQuery) head -= a.n_heads + (kind == HeadKind::kValue ? n_appended : 0);
  float* x = heads + size_t(warp) * head_floats;
  prepare_head(a, row, position, kind, head, kind == HeadKind::kQuery ? whole.q : whole.k, x, lane);
  if (kind != HeadKind::kQuery) {
    const bool is_value = kind == HeadKind::kValue;
    store_vector(head_in_page(c, page, head) + (is_value ? c.value_offset : 0), c.type, position % kPage, x,
                 is_value ? c.value_dim : c.key_dim, lane);
  } else if (a.query_scales != nullptr) {
    store_in_parts(a, row, head, x, lane);
  } else {
    float* to = a.queries + (size_t(row) * a.n_heads + head) * c.key_dim;
    for (uint32_t d = lane; d < c.key_dim; d += 32) to[d] = x[d];
  }
}

// ---- one chunk

// Threads that share one position's value.
__host__ __device__ __forceinline__ uint32_t value_lanes(uint32_t dim) { return dim / kTogether; }

// What merge_chunks() makes of a single chunk, to the bit.
__device__ __forceinline__ void finish_head(const AttendArgs& a, uint32_t row, uint32_t head, uint32_t d, float value,
                                            float2 whole) {
  const float largest = a.sinks != nullptr ? fmaxf(a.sinks[head], whole.x) : whole.x;
  const float weight = expf(whole.x - largest);
  const float sum = fmaf(weight, whole.y, a.sinks != nullptr ? expf(a.sinks[head] - largest) : 0.0f);
  write_output(a, row, head, d, fmaf(weight, value, 0.0f) * (1 / sum));
}

// What a block has in shared memory, in floats.
template <int kHeads>
struct ChunkShared {
  uint32_t queries, scores, sums;  // [kHeads][key_dim], [kHeads][kChunk], [parts][kHeads][value_dim]
  __host__ __device__ explicit ChunkShared(const CacheView& c)
      : queries(kHeads * c.key_dim),
        scores(kHeads * kChunk),
        sums(kThreads / value_lanes(c.value_dim) * kHeads * c.value_dim) {}
};

template <uint8_t kType>
__device__ __forceinline__ uint32_t vector_bytes(uint32_t dim) {
  return kType == kF32 ? 4 * dim : kType == kF16 ? 2 * dim : dim;
}

// Block (chunk, KV head and group of its query heads, row): scores, eight threads to a position, then values by threads
// over (part of the chunk, eight elements of the head). kHeads: the most query heads of a group; no bit depends on it.
// kPrepares: for a step of one row, whose queries, key and value the block norms, rotates and appends itself; blocks of
// one KV head store the same bits.
template <uint8_t kType, int kHeads, bool kPrepares>
__global__ void __launch_bounds__(kThreads, 2) attend_chunk(const __grid_constant__ AttendArgs a) {
  extern __shared__ __align__(16) float shared[];
  __shared__ uint8_t* pages[kChunk / kPage];
  __shared__ float2 whole[kHeads];  // largest score and sum of each query head
  __shared__ float reduction[kWarps];
  let_next_begin();
  const CacheView& c = a.cache;
  const uint32_t heads_per_kv = a.n_heads / c.n_kv_heads, groups = (heads_per_kv + kHeads - 1) / kHeads;
  const uint32_t chunk = blockIdx.x, kv_head = blockIdx.y / groups, row = a.first_row + blockIdx.z;
  const uint32_t position = a.positions[row];
  const Visible visible = visible_part(position, a.window, chunk);
  if (visible.begin >= visible.end) {
    wait_for_previous();  // completion is transitive only if every block waits
    return;
  }
  const uint32_t* table = page_table(a, row) + chunk * (kChunk / kPage);
  if (threadIdx.x < kChunk / kPage && threadIdx.x >= visible.begin / kPage && threadIdx.x * kPage < visible.end)
    pages[threadIdx.x] = head_in_page(c, table[threadIdx.x], kv_head);
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (kPrepares) load_constants_ahead(a, position, int(lane));
  __syncthreads();
  // Earlier positions come from memory while the previous kernel ends; the blocks of a KV head share them out.
  if (const uint32_t j = threadIdx.x; j >= visible.begin && j < visible.end && j % groups == blockIdx.y % groups) {
    const uint32_t key_bytes = vector_bytes<kType>(c.key_dim), value_bytes = vector_bytes<kType>(c.value_dim);
    const uint8_t* keys = pages[j / kPage] + j % kPage * key_bytes;
    const uint8_t* values = pages[j / kPage] + c.value_offset + j % kPage * value_bytes;
    for (uint32_t at = 0; at < key_bytes; at += 128) asm volatile("prefetch.global.L2 [%0];" ::"l"(keys + at));
    for (uint32_t at = 0; at < value_bytes; at += 128) asm volatile("prefetch.global.L2 [%0];" ::"l"(values + at));
  }
  const float scale = score_scale(a, position);
  const ChunkShared<kHeads> sizes(c);
  float *queries = shared, *scores = queries + sizes.queries, *sums = scores + sizes.scores;
  const uint32_t group = blockIdx.y % groups * kHeads;
  const uint32_t n = min(uint32_t(kHeads), heads_per_kv - group), head0 = kv_head * heads_per_kv + group;

  wait_for_previous();
  if constexpr (kPrepares) {
    const WholeScales norms = whole_scales(a, row, reduction);
    const bool appends = a.appends && chunk == position / kChunk;
    for (uint32_t i = warp; i < n + (appends ? 2 : 0); i += kWarps) {
      const HeadKind kind = i < n ? HeadKind::kQuery : i == n ? HeadKind::kKey : HeadKind::kValue;
      float* x = i < n ? queries + i * c.key_dim : sums + (i - n) * c.key_dim;
      prepare_head(a, row, position, kind, i < n ? head0 + i : kv_head, i < n ? norms.q : norms.k, x, int(lane));
      if (i >= n)
        store_vector(pages[position % kChunk / kPage] + (i == n ? 0 : c.value_offset), kType, position % kPage, x,
                     i == n ? c.key_dim : c.value_dim, int(lane));
    }
  } else {
    const float* q = a.queries + (size_t(row) * a.n_heads + head0) * c.key_dim;
    for (uint32_t i = threadIdx.x; i < n * c.key_dim; i += kThreads) queries[i] = __ldcg(q + i);
  }
  __syncthreads();

  // Position slot + 32 u of the chunk, and elements 8 sub + 64 i of its key.
  constexpr uint32_t kSlots = kThreads / kKeyLanes;
  const uint32_t slot = threadIdx.x / kKeyLanes, sub = threadIdx.x % kKeyLanes;
  float score[kKeyLoads][kHeads] = {};
  for (uint32_t d = sub * kTogether; d < c.key_dim; d += kKeyLanes * kTogether) {
    float key[kKeyLoads][kTogether];
#pragma unroll
    for (int u = 0; u < kKeyLoads; ++u) {  // all on their way before the first is used
      if (const uint32_t j = slot + u * kSlots; j >= visible.begin && j < visible.end)
        load8<kType>(pages[j / kPage], c.key_dim, j % kPage, d, key[u]);
      else
        for (float& k : key[u]) k = 0;
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (h >= n) break;
      const float4* q4 = reinterpret_cast<const float4*>(queries + h * c.key_dim + d);
      const float4 q0 = q4[0], q1 = q4[1];
      const float query[kTogether] = {q0.x, q0.y, q0.z, q0.w, q1.x, q1.y, q1.z, q1.w};
#pragma unroll
      for (int u = 0; u < kKeyLoads; ++u)
#pragma unroll
        for (int i = 0; i < kTogether; ++i) score[u][h] = fmaf(query[i], key[u][i], score[u][h]);
    }
  }
#pragma unroll
  for (int u = 0; u < kKeyLoads; ++u) {
    const uint32_t j = slot + u * kSlots;
    const bool seen = j >= visible.begin && j < visible.end;
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (h >= n) break;
      float sum = score[u][h];
#pragma unroll
      for (int distance = 1; distance < kKeyLanes; distance *= 2) sum += __shfl_xor_sync(~0u, sum, distance);
      if (sub == 0) scores[h * kChunk + j] = seen ? softcap(a.softcap, sum * scale) : -INFINITY;
    }
  }
  __syncthreads();

  if (warp < n) {  // a warp per query head: kWarps >= kHeads
    float* s = scores + warp * kChunk;
    float largest = -INFINITY, sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < kChunk; i += 32) largest = fmaxf(largest, s[i + lane]);
    largest = warp_max(largest);
#pragma unroll
    for (uint32_t i = 0; i < kChunk; i += 32) {
      const float weight = expf(s[i + lane] - largest);
      s[i + lane] = weight;
      sum += weight;
    }
    sum = warp_sum(sum);
    if (lane == 0) whole[warp] = {largest, sum};
    if (lane == 0 && a.n_chunks != 1) {
      float* out =
          a.partials + ((size_t(blockIdx.z) * a.n_heads + head0 + warp) * a.n_chunks + chunk) * (c.value_dim + 2);
      out[c.value_dim] = largest;
      out[c.value_dim + 1] = sum;
    }
  }
  __syncthreads();

  // Positions are dealt to the parts in turn. Those that the row cannot see would add exactly zero.
  const uint32_t lanes = value_lanes(c.value_dim), parts = kThreads / lanes, part = threadIdx.x / lanes;
  const uint32_t part_begin = part + (visible.begin > part ? (visible.begin - part + parts - 1) / parts * parts : 0);
  if (part < parts) {
    const uint32_t d = threadIdx.x % lanes * kTogether;
    float acc[kHeads][kTogether] = {};
    for (uint32_t i0 = part_begin; i0 < visible.end; i0 += parts * kValueLoads) {
      float value[kValueLoads][kTogether];
#pragma unroll
      for (int u = 0; u < kValueLoads; ++u) {
        const uint32_t i = min(i0 + u * parts, visible.end - 1);  // repeated past the end, and not used
        load8<kType>(pages[i / kPage] + c.value_offset, c.value_dim, i % kPage, d, value[u]);
      }
#pragma unroll
      for (int u = 0; u < kValueLoads; ++u) {
        const uint32_t i = i0 + u * parts;
        if (i >= visible.end) break;
#pragma unroll
        for (int h = 0; h < kHeads; ++h) {
          if (h >= n) break;
          const float weight = scores[h * kChunk + i];
#pragma unroll
          for (int e = 0; e < kTogether; ++e) acc[h][e] = fmaf(weight, value[u][e], acc[h][e]);
        }
      }
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h)
      if (h < n) {
        auto* to = reinterpret_cast<float4*>(sums + (part * kHeads + h) * c.value_dim + d);
        to[0] = {acc[h][0], acc[h][1], acc[h][2], acc[h][3]};
        to[1] = {acc[h][4], acc[h][5], acc[h][6], acc[h][7]};
      }
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < n * c.value_dim; i += kThreads) {
    const uint32_t h = i / c.value_dim, d = i % c.value_dim;
    float total = sums[h * c.value_dim + d];
#pragma unroll 4
    for (uint32_t p = 1; p < parts; ++p) total += sums[(p * kHeads + h) * c.value_dim + d];
    if (a.n_chunks == 1) {
      finish_head(a, row, head0 + h, d, total, whole[h]);
      continue;
    }
    a.partials[((size_t(blockIdx.z) * a.n_heads + head0 + h) * a.n_chunks + chunk) * (c.value_dim + 2) + d] = total;
  }
}

template <uint8_t kType, int kHeads>
int launch_groups(const AttendArgs& a, Stream stream) {
  const uint32_t heads_per_kv = a.n_heads / a.cache.n_kv_heads;
  const dim3 grid(a.n_chunks, a.cache.n_kv_heads * ((heads_per_kv + kHeads - 1) / kHeads), a.n_rows);
  const ChunkShared<kHeads> sizes(a.cache);
  const size_t bytes = (size_t(sizes.queries) + sizes.scores + sizes.sums) * sizeof(float);
  return launch(a.prepares ? attend_chunk<kType, kHeads, true> : attend_chunk<kType, kHeads, false>, grid, kThreads,
                bytes, stream, a);
}

template <uint8_t kType>
int launch_chunks(const AttendArgs& a, Stream stream) {
  constexpr uint32_t kEnoughBlocks = 128;  // fewer leave multiprocessors idle: then heads share nothing
  const uint64_t heads = a.n_heads / a.cache.n_kv_heads, groups = (heads + kHeadGroup - 1) / kHeadGroup;
  return groups * a.cache.n_kv_heads * a.n_chunks * a.n_rows < kEnoughBlocks
             ? launch_groups<kType, 1>(a, stream)
             : launch_groups<kType, kHeadGroup>(a, stream);
}

}  // namespace

int launch_attend_prepare(const AttendArgs& a, Stream stream) {
  const uint32_t n_heads = a.n_heads + (a.appends ? 2 * a.cache.n_kv_heads : 0);
  const uint32_t head_floats = max(a.cache.key_dim, a.cache.value_dim);
  return launch(prepare, dim3((n_heads + kWarps - 1) / kWarps, a.n_rows), kThreads,
                kWarps * head_floats * sizeof(float), stream, a, head_floats);
}

int launch_attend(const AttendArgs& a, Stream stream) {
  int status = a.cache.type == kF16   ? launch_chunks<kF16>(a, stream)
               : a.cache.type == kF32 ? launch_chunks<kF32>(a, stream)
                                      : launch_chunks<kQ8>(a, stream);
  if (status != cudaSuccess || a.n_chunks == 1) return status;
  return launch(merge_partials<kChunk>, dim3(a.n_heads, a.n_rows), 128, 0, stream, a);
}

}  // namespace honeycrisp::backend::cuda
