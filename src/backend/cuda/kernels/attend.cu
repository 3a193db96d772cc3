// Attention over the paged cache, for rows of either role: prepare (norms, rope, appending), one block per chunk of
// positions, and the merge of the chunks from left to right.
//
// A row's bits depend on its position and its cache alone: chunks start at absolute multiples of kAttentionChunk, work
// inside a chunk is split by the head's size only, and a chunk that the row cannot see is not merged.
#include "backend/cuda/kernels/cache.cuh"
#include "backend/cuda/kernels/ending.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace honeycrisp::backend::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kHeadGroup = 8;                  // query heads of a KV head that share one pass over keys and values
constexpr int kQueryExponent = 4;              // of a query in f16: scores stay finite, low parts do not vanish
constexpr int kKeyLoads = 4, kValueLoads = 8;  // loads in flight of a thread
static_assert(kChunk == kThreads, "a thread per position");

// ---- where things lie

__device__ __forceinline__ const uint32_t* page_table(const AttendArgs& a, uint32_t row) {
  return a.tables + a.table_start[size_t(row) * a.n_pools + a.pool];
}
// ---- prepare

// 1 / rms over all heads of a projection, for norms of the whole; by the block.
__device__ float whole_scale(const float* x, uint32_t n, float eps, float* shared) {
  float squares = 0;
  for (uint32_t i = threadIdx.x; i < n; i += kThreads) squares = fmaf(x[i], x[i], squares);
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

// A warp per head: query heads, then keys, then values. blockIdx.y is the row.
__global__ void __launch_bounds__(kThreads) prepare(const __grid_constant__ AttendArgs a, uint32_t head_floats) {
  extern __shared__ __align__(16) float heads[];
  __shared__ float reduction[kWarps];
  let_next_begin();
  const uint32_t row = blockIdx.y, position = a.positions[row];
  const uint32_t page = page_table(a, row)[position / kPage];
  const CacheView& c = a.cache;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  // Constants that the heads need come ahead.
  for (const float* weight : {a.q_norm.weight, a.k_norm.weight})
    if (weight != nullptr && !a.norm_whole && 4 * lane < int(c.key_dim)) load_ahead(weight + 4 * lane);
  if (a.rope != nullptr && 2 * lane < int(a.n_pairs))
    load_ahead(a.rope + (size_t(position) * a.n_pairs + 2 * lane) * 2);
  wait_for_previous();
  const float* q = a.q.data + size_t(row) * a.q.stride;
  const float* k = a.k.data + size_t(row) * a.k.stride;
  const float* v = a.v_is_k ? k : a.v.data + size_t(row) * a.v.stride;
  float q_whole = 1, k_whole = 1;
  if (a.norm_whole && a.q_norm.present) q_whole = whole_scale(q, a.n_heads * c.key_dim, a.q_norm.eps, reduction);
  if (a.norm_whole && a.k_norm.present && a.appends)
    k_whole = whole_scale(k, c.n_kv_heads * c.key_dim, a.k_norm.eps, reduction);

  uint32_t head = blockIdx.x * kWarps + warp;
  const uint32_t n_appended = a.appends ? c.n_kv_heads : 0;
  if (head >= a.n_heads + 2 * n_appended) return;
  const bool is_query = head < a.n_heads, is_value = head >= a.n_heads + n_appended;
  if (!is_query) head -= a.n_heads + (is_value ? n_appended : 0);
  const uint32_t dim = is_value ? c.value_dim : c.key_dim;
  const float* from = is_query   ? q + size_t(head) * dim * (a.output_gate ? 2 : 1)
                      : is_value ? v + size_t(head) * dim
                                 : k + size_t(head) * dim;
  const NormArgs& norm = is_query ? a.q_norm : is_value ? a.v_norm : a.k_norm;
  float* x = heads + size_t(warp) * head_floats;

  // Dimensions are a multiple of four; places in buffers need not be.
  const bool aligned = reinterpret_cast<uintptr_t>(from) % 16 == 0;
  float squares = 0;
  for (uint32_t d = 4 * lane; d < dim; d += 128) {
    const float4 v =
        aligned ? *reinterpret_cast<const float4*>(from + d) : float4{from[d], from[d + 1], from[d + 2], from[d + 3]};
    *reinterpret_cast<float4*>(x + d) = v;
    squares = fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, squares))));
  }
  if (norm.present) {
    const bool whole = a.norm_whole && !is_value;
    const float scale = whole ? (is_query ? q_whole : k_whole) : 1 / sqrtf(warp_sum(squares) / float(dim) + norm.eps);
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
  if (is_query && a.query_scales != nullptr) {
    store_in_parts(a, row, head, x, lane);
    return;
  }
  if (is_query) {
    float* to = a.queries + (size_t(row) * a.n_heads + head) * dim;
    for (uint32_t d = lane; d < dim; d += 32) to[d] = x[d];
    return;
  }
  uint8_t* section = head_in_page(c, page, head) + (is_value ? c.value_offset : 0);
  store_vector(section, c.type, position % kPage, x, dim, lane);
}

// ---- one chunk

// Threads that share one position's value, two elements each.
__host__ __device__ __forceinline__ uint32_t value_lanes(uint32_t dim) {
  return dim / 2 < kThreads ? dim / 2 : uint32_t(kThreads);
}

// What merge_chunks() makes of a single chunk, to the bit.
__device__ __forceinline__ void finish_head(const AttendArgs& a, uint32_t row, uint32_t head, uint32_t d, float value,
                                            float2 whole) {
  const float largest = a.sinks != nullptr ? fmaxf(a.sinks[head], whole.x) : whole.x;
  const float weight = expf(whole.x - largest);
  const float sum = fmaf(weight, whole.y, a.sinks != nullptr ? expf(a.sinks[head] - largest) : 0.0f);
  write_output(a, row, head, d, fmaf(weight, value, 0.0f) * (1 / sum));
}

// Block (chunk, KV head and group of its query heads, row): scores by a thread per position, then values by threads
// over (part of the chunk, two elements of the head). `together`: query heads of a group, at most kHeadGroup; no bit
// depends on it. Shared: queries [group][key_dim], scores [group][256], sums of the parts [parts][group][value_dim].
template <uint8_t kType>
__global__ void __launch_bounds__(kThreads, 2) attend_chunk(const __grid_constant__ AttendArgs a, uint32_t together) {
  extern __shared__ __align__(16) float shared[];
  __shared__ uint8_t* pages[kChunk / kPage];
  __shared__ float2 whole[kHeadGroup];  // largest score and sum of each query head
  let_next_begin();
  const CacheView& c = a.cache;
  const uint32_t heads_per_kv = a.n_heads / c.n_kv_heads, groups = (heads_per_kv + together - 1) / together;
  const uint32_t chunk = blockIdx.x, kv_head = blockIdx.y / groups, row = a.first_row + blockIdx.z;
  const Visible visible = visible_part(a.positions[row], a.window, chunk);
  if (visible.begin >= visible.end) {
    wait_for_previous();  // completion is transitive only if every block waits
    return;
  }
  const uint32_t* table = page_table(a, row) + chunk * (kChunk / kPage);
  if (threadIdx.x < kChunk / kPage && threadIdx.x >= visible.begin / kPage && threadIdx.x * kPage < visible.end)
    pages[threadIdx.x] = head_in_page(c, table[threadIdx.x], kv_head);
  wait_for_previous();
  const uint32_t j = threadIdx.x;
  const bool seen = j >= visible.begin && j < visible.end;
  const float scale = score_scale(a, a.positions[row]);
  float* queries = shared;
  float* scores = queries + kHeadGroup * c.key_dim;
  float* sums = scores + kHeadGroup * kChunk;
  // Positions are dealt to the parts in turn. Those that the row cannot see would add exactly zero.
  const uint32_t lanes = value_lanes(c.value_dim), parts = kThreads / lanes, part = threadIdx.x / lanes;
  const uint32_t part_begin = part + (visible.begin > part ? (visible.begin - part + parts - 1) / parts * parts : 0);

  const uint32_t group = blockIdx.y % groups * together;
  const uint32_t n = min(together, heads_per_kv - group), head0 = kv_head * heads_per_kv + group;
  const float* q = a.queries + (size_t(row) * a.n_heads + head0) * c.key_dim;
  for (uint32_t i = threadIdx.x; i < n * c.key_dim; i += kThreads) queries[i] = q[i];
  __syncthreads();

  float score[kHeadGroup] = {};
  if (seen) {
    uint8_t* keys = pages[j / kPage];
    for (uint32_t d0 = 0; d0 < c.key_dim; d0 += 8 * kKeyLoads) {
      float key[kKeyLoads][8];
#pragma unroll
      for (int u = 0; u < kKeyLoads; ++u)  // all on their way before the first is used
        if (d0 + 8 * u < c.key_dim) load8<kType>(keys, c.key_dim, j % kPage, d0 + 8 * u, key[u]);
#pragma unroll
      for (int u = 0; u < kKeyLoads; ++u) {
        if (d0 + 8 * u >= c.key_dim) break;
#pragma unroll
        for (int h = 0; h < kHeadGroup; ++h) {
          if (h >= n) break;
          const float4* q4 = reinterpret_cast<const float4*>(queries + h * c.key_dim + d0 + 8 * u);
          const float4 q0 = q4[0], q1 = q4[1];
          const float query[8] = {q0.x, q0.y, q0.z, q0.w, q1.x, q1.y, q1.z, q1.w};
#pragma unroll
          for (int i = 0; i < 8; ++i) score[h] = fmaf(query[i], key[u][i], score[h]);
        }
      }
    }
  }
#pragma unroll
  for (int h = 0; h < kHeadGroup; ++h)
    if (h < n) scores[h * kChunk + j] = seen ? softcap(a.softcap, score[h] * scale) : -INFINITY;
  __syncthreads();

  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp < n) {  // a warp per query head: kWarps >= kHeadGroup
    float* s = scores + warp * kChunk;
    float largest = -INFINITY, sum = 0;
    for (uint32_t i = lane; i < kChunk; i += 32) largest = fmaxf(largest, s[i]);
    largest = warp_max(largest);
    for (uint32_t i = lane; i < kChunk; i += 32) {
      s[i] = expf(s[i] - largest);
      sum += s[i];
    }
    sum = warp_sum(sum);
    float* out =
        a.partials + ((size_t(blockIdx.z) * a.n_heads + head0 + warp) * a.n_chunks + chunk) * (c.value_dim + 2);
    if (lane == 0) {
      whole[warp] = {largest, sum};
      out[c.value_dim] = largest;
      out[c.value_dim + 1] = sum;
    }
  }
  __syncthreads();

  if (part < parts) {
    for (uint32_t d = threadIdx.x % lanes * 2; d < c.value_dim; d += lanes * 2) {
      float2 acc[kHeadGroup] = {};
      for (uint32_t i0 = part_begin; i0 < visible.end; i0 += parts * kValueLoads) {
        float2 value[kValueLoads];
#pragma unroll
        for (int u = 0; u < kValueLoads; ++u) {
          const uint32_t i = min(i0 + u * parts, visible.end - 1);  // repeated past the end, and not used
          value[u] = load2<kType>(pages[i / kPage] + c.value_offset, c.value_dim, i % kPage, d);
        }
#pragma unroll
        for (int u = 0; u < kValueLoads; ++u) {
          const uint32_t i = i0 + u * parts;
          if (i >= visible.end) break;
#pragma unroll
          for (int h = 0; h < kHeadGroup; ++h) {
            if (h >= n) break;
            const float weight = scores[h * kChunk + i];
            acc[h] = {fmaf(weight, value[u].x, acc[h].x), fmaf(weight, value[u].y, acc[h].y)};
          }
        }
      }
#pragma unroll
      for (int h = 0; h < kHeadGroup; ++h)
        if (h < n) *reinterpret_cast<float2*>(sums + (part * kHeadGroup + h) * c.value_dim + d) = acc[h];
    }
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < n * c.value_dim; i += kThreads) {
    const uint32_t h = i / c.value_dim, d = i % c.value_dim;
    float total = sums[h * c.value_dim + d];
    for (uint32_t p = 1; p < parts; ++p) total += sums[(p * kHeadGroup + h) * c.value_dim + d];
    if (a.n_chunks == 1) {
      finish_head(a, row, head0 + h, d, total, whole[h]);
      continue;
    }
    a.partials[((size_t(blockIdx.z) * a.n_heads + head0 + h) * a.n_chunks + chunk) * (c.value_dim + 2) + d] = total;
  }
}

size_t chunk_shared_bytes(const AttendArgs& a) {
  const size_t parts = kThreads / value_lanes(a.cache.value_dim);
  return sizeof(float) *
         (kHeadGroup * size_t(a.cache.key_dim) + kHeadGroup * kChunk + parts * kHeadGroup * a.cache.value_dim);
}

template <uint8_t kType>
int launch_chunks(const AttendArgs& a, Stream stream) {
  constexpr uint32_t kEnoughBlocks = 128;  // fewer leave multiprocessors idle: then heads share less
  const uint32_t heads_per_kv = a.n_heads / a.cache.n_kv_heads;
  const auto blocks = [&](uint32_t together) {
    return a.cache.n_kv_heads * ((heads_per_kv + together - 1) / together);
  };
  uint32_t together = kHeadGroup;
  while (together > 1 && uint64_t{blocks(together)} * a.n_chunks * a.n_rows < kEnoughBlocks) together /= 2;
  return launch(attend_chunk<kType>, dim3(a.n_chunks, blocks(together), a.n_rows), kThreads, chunk_shared_bytes(a),
                stream, a, together);
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
