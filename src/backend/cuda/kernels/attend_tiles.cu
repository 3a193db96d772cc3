// Attention of prompt rows on tensor cores: tiles of query slots over the pages of the cache, with a running softmax.
//
// Block: 64 slots (a slot is one query head of one row; the query heads of a KV head share its keys and values) by a
// slice of the values' columns by a span of positions. It walks the pages that any of its rows sees, from left to
// right; scores and weights of 16 slots stay in a warp's registers. Rows of other sequences in the same tile are walked
// one after another, and what a row does not see changes no bit of it: its largest score stays, its sums are multiplied
// by exactly one and gain exactly zero. Pages, spans and the order within them are fixed by absolute positions, so a
// row's bits depend on its position and its cache alone. Spans are merged from left to right.
//
// An f16 cache is multiplied as it is, queries as two f16 after scaling by a power of two, weights as one. Other caches
// and what multiplies them are split in two bf16, with three products.
#include "backend/cuda/kernels/cache.cuh"
#include "backend/cuda/kernels/ending.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace honeycrisp::backend::cuda {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * 32, kSlots = kWarps * 16;
constexpr uint32_t kSpan = kAttendSpan;
constexpr uint32_t kSliceCols = 128;  // of the values
constexpr int kPad = 8;               // halves after a row in shared memory: no bank conflicts
constexpr float kLog2E = 1.4426950408889634f;

// Widths of rows in shared memory, and how much of it a block takes.
struct TileShape {
  uint32_t key_cols, value_cols;  // rounded up to 16
  uint32_t positions;             // of a step: a page, or half of one where keys are long
  uint32_t parts;                 // numbers that make up a cached value

  __host__ __device__ uint32_t key_stride() const { return key_cols + kPad; }
  __host__ __device__ uint32_t value_stride() const { return value_cols + kPad; }
  __host__ __device__ uint32_t query_halves() const { return 2 * kSlots * key_stride(); }
  __host__ __device__ uint32_t key_halves() const { return positions * key_stride(); }
  __host__ __device__ uint32_t value_halves() const { return positions * value_stride(); }
  __host__ __device__ uint32_t bytes() const { return 2 * (query_halves() + parts * (key_halves() + value_halves())); }
};
__host__ __device__ inline TileShape tile_shape(const AttendArgs& a) {
  const uint32_t key = (a.cache.key_dim + 15) / 16 * 16, value = (a.cache.value_dim + 15) / 16 * 16;
  return {key, value < kSliceCols ? value : kSliceCols, key <= 256 ? kPage : kPage / 2, a.cache.type == kF16 ? 1u : 2u};
}

__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const uint16_t* at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(uint32_t(__cvta_generic_to_shared(at))));
}
__device__ __forceinline__ void load_transposed(uint32_t (&r)[4], const uint16_t* at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(uint32_t(__cvta_generic_to_shared(at))));
}

__device__ __forceinline__ float power_of_e(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * kLog2E));
  return y;
}

// How numbers are split and multiplied: kSplit: both operands in two bf16.
template <bool kSplit>
__device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (kSplit)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void copy_piece(uint16_t* to, const void* from, bool present) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(uint32_t(__cvta_generic_to_shared(to))), "l"(from),
               "r"(present ? 16 : 0));
}

// What a slot is.
struct Slot {
  uint32_t row, head;
  bool present;
};
struct Tile {
  uint32_t group, tokens;  // query heads of its KV head in the tile, rows of the batch
  uint32_t first_row, first_head, n_rows;

  __device__ __forceinline__ Slot slot(uint32_t s) const {
    const uint32_t token = s / group;
    return {first_row + token, first_head + s % group, token < n_rows};
  }
};

// Positions of one cached vector for all threads to bring in: [positions][cols of shape] from section(page).
template <uint8_t kType, class Section>
__device__ __forceinline__ void bring(const Section& section, uint32_t dim, uint32_t column0, uint32_t cols,
                                      uint32_t stride, uint32_t positions, uint32_t first, uint32_t end, uint16_t* to,
                                      uint32_t low_offset) {
  const uint32_t pieces = cols / 8;
  for (uint32_t i = threadIdx.x; i < positions * pieces; i += kThreads) {
    const uint32_t p = i / pieces, column = i % pieces * 8, d = column0 + column;
    uint16_t* at = to + p * stride + column;
    const bool present = first + p < end && d < dim;  // the rest must be finite: it is multiplied with zero
    if constexpr (kType == kF16) {
      const auto* from = reinterpret_cast<const __half*>(section) + size_t((first + p) % kPage) * dim + d;
      copy_piece(at, present ? static_cast<const void*>(from) : section, present);
    } else {
      float v[8] = {};
      if (present) load8<kType>(section, dim, (first + p) % kPage, d, v);
      alignas(16) uint16_t high[8], low[8];
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const TwoParts parts = two_parts<true>(v[e]);
        high[e] = parts.high;
        low[e] = parts.low;
      }
      *reinterpret_cast<uint4*>(at) = *reinterpret_cast<const uint4*>(high);
      *reinterpret_cast<uint4*>(at + low_offset) = *reinterpret_cast<const uint4*>(low);
    }
  }
  if constexpr (kType == kF16) asm volatile("cp.async.commit_group;");
}

// Values in shared memory that are no numbers or infinite, [positions][value_stride]: 0 · Inf would reach rows that do
// not see them. They are bf16 (kSplit) or f16.
template <bool kSplit>
__device__ __forceinline__ bool is_finite(uint16_t v) {
  constexpr uint16_t kExponent = kSplit ? 0x7f80 : 0x7c00;
  return (v & kExponent) != kExponent;
}
template <bool kSplit>
__device__ __forceinline__ float value_of(uint16_t v) {
  return kSplit ? __uint_as_float(uint32_t(v) << 16) : __half2float(__ushort_as_half(v));
}
template <bool kSplit>
__device__ __forceinline__ bool any_not_finite(const uint16_t* values, uint32_t positions, uint32_t cols,
                                               uint32_t stride) {
  bool any = false;
  for (uint32_t i = threadIdx.x; i < positions * cols; i += kThreads)
    any = any || !is_finite<kSplit>(values[i / cols * stride + i % cols]);
  return any;
}

// Running softmax of the two slots (g and g + 8) that a lane has a quarter of.
struct Running {
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
};

// Block (tile of rows, KV head and group of its query heads and slice of values, span).
template <uint8_t kType, int kPositions, bool kCapped, bool kGated>
__global__ void __launch_bounds__(kThreads, 2) attend_tile(const __grid_constant__ AttendArgs a) {
  constexpr bool kSplit = kType != kF16;
  extern __shared__ __align__(16) uint16_t tile_memory[];
  __shared__ uint32_t positions[kSlots], tables[kSlots];  // of the tile's rows
  let_next_begin();
  const CacheView& c = a.cache;
  const TileShape shape = tile_shape(a);
  const uint32_t heads_per_kv = a.n_heads / c.n_kv_heads;
  const uint32_t slices = (c.value_dim + kSliceCols - 1) / kSliceCols;
  const uint32_t head_groups = (heads_per_kv + kSlots - 1) / kSlots;
  const uint32_t slice = blockIdx.y % slices, head_group = blockIdx.y / slices % head_groups;
  const uint32_t kv_head = blockIdx.y / slices / head_groups, span = blockIdx.z;
  const uint32_t value0 = slice * kSliceCols;
  Tile tile;
  tile.first_head = kv_head * heads_per_kv + head_group * kSlots;
  tile.group = min(heads_per_kv - head_group * kSlots, uint32_t(kSlots));
  tile.tokens = kSlots / min(heads_per_kv, uint32_t(kSlots));
  const uint32_t tile_index = gridDim.x - 1 - blockIdx.x;  // long rows first
  tile.first_row = a.first_row + tile_index * tile.tokens;
  tile.n_rows = min(tile.tokens, a.first_row + a.n_rows - tile.first_row);

  uint16_t* queries = tile_memory;
  const uint32_t low_query = kSlots * shape.key_stride();
  uint16_t* keys = queries + shape.query_halves();
  uint16_t* values = keys + shape.parts * shape.key_halves();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;

  if (threadIdx.x < tile.n_rows) {
    const uint32_t row = tile.first_row + threadIdx.x;
    positions[threadIdx.x] = a.positions[row];
    tables[threadIdx.x] = a.table_start[size_t(row) * a.n_pools + a.pool];
  }
  __syncthreads();
  // The lane's own two slots.
  Slot own[2];
  uint32_t position[2], oldest[2];
#pragma unroll
  for (int r8 = 0; r8 < 2; ++r8) {
    own[r8] = tile.slot(warp * 16 + g + 8 * r8);
    position[r8] = own[r8].present ? positions[own[r8].row - tile.first_row] : 0;
    oldest[r8] = a.window != 0 && position[r8] >= a.window ? position[r8] - a.window + 1 : 0;
  }
  wait_for_previous();

  // Queries: zero where there is none.
  const uint32_t query_pieces = shape.key_cols / 8;
  for (uint32_t i = threadIdx.x; i < 2 * kSlots * query_pieces; i += kThreads) {
    const uint32_t part = i / (kSlots * query_pieces), s = i / query_pieces % kSlots, d = i % query_pieces * 8;
    const Slot slot = tile.slot(s);
    const bool present = slot.present && d < c.key_dim;
    const auto* from = reinterpret_cast<const uint16_t*>(
                           a.queries + (present ? size_t(slot.row) * a.n_heads + slot.head : 0) * c.key_dim) +
                       (present ? part * c.key_dim + d : 0);
    copy_piece(queries + part * low_query + s * shape.key_stride() + d, from, present);
  }
  asm volatile("cp.async.commit_group;");
  float scale[2];
#pragma unroll
  for (int r8 = 0; r8 < 2; ++r8)
    scale[r8] = own[r8].present
                    ? a.query_scales[size_t(own[r8].row) * a.n_heads + own[r8].head] * score_scale(a, position[r8])
                    : 0.0f;

  const uint32_t key_low = shape.key_halves(), value_low = shape.value_halves();

  // Rows of one sequence after another.
  for (uint32_t begin = 0, end; begin < tile.n_rows; begin = end) {
    const uint32_t table_at = tables[begin];
    uint32_t first_seen = UINT32_MAX, last_seen = 0;
#pragma unroll 1
    for (end = begin; end < tile.n_rows && tables[end] == table_at; ++end) {
      const uint32_t p = positions[end];
      first_seen = min(first_seen, a.window != 0 && p >= a.window ? p - a.window + 1 : 0);
      last_seen = max(last_seen, p);
    }
    bool active[2];
#pragma unroll
    for (int r8 = 0; r8 < 2; ++r8)
      active[r8] = own[r8].present && own[r8].row - tile.first_row >= begin && own[r8].row - tile.first_row < end;
    const uint32_t seen_end = min(last_seen + 1, (span + 1) * kSpan);
    const uint32_t* table = a.tables + table_at;
    Running running;
    float out[kSliceCols / 8][4] = {};
    // Keys of the next step come while values of this one are multiplied, its values while its keys are.
    const auto bring_keys = [&](uint32_t at) {
      bring<kType>(head_in_page(c, table[at / kPage], kv_head), c.key_dim, 0, shape.key_cols, shape.key_stride(),
                   kPositions, at, seen_end, keys, key_low);
    };
    const auto bring_values = [&](uint32_t at) {
      bring<kType>(head_in_page(c, table[at / kPage], kv_head) + c.value_offset, c.value_dim, value0, shape.value_cols,
                   shape.value_stride(), kPositions, at, seen_end, values, value_low);
    };
    const uint32_t seen_begin = max(first_seen / kPositions * kPositions, span * kSpan);
    if (seen_begin < seen_end) {
      bring_keys(seen_begin);
      bring_values(seen_begin);
    }
    for (uint32_t at = seen_begin; at < seen_end; at += kPositions) {
      if constexpr (kSplit)
        asm volatile("cp.async.wait_group 0;");  // the queries
      else
        asm volatile("cp.async.wait_group 1;");  // all but the values
      __syncthreads();

      float scores[kPositions / 8][4] = {};
#pragma unroll 2
      for (uint32_t k = 0; k < shape.key_cols; k += 16) {
        uint32_t high[4], low[4];
        const uint16_t* q = queries + (warp * 16 + lane % 16) * shape.key_stride() + k + lane / 16 * 8;
        load_matrices(high, q);
        load_matrices(low, q + low_query);
#pragma unroll
        for (int n = 0; n < kPositions / 16; ++n) {
          const uint16_t* from = keys + (n * 16 + lane / 16 * 8 + lane % 8) * shape.key_stride() + k + lane / 8 % 2 * 8;
          uint32_t key[4];
          load_matrices(key, from);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            multiply<kSplit>(scores[2 * n + half], low, key[2 * half], key[2 * half + 1]);
            multiply<kSplit>(scores[2 * n + half], high, key[2 * half], key[2 * half + 1]);
          }
          if constexpr (kSplit) {
            load_matrices(key, from + key_low);
#pragma unroll
            for (int half = 0; half < 2; ++half)
              multiply<kSplit>(scores[2 * n + half], high, key[2 * half], key[2 * half + 1]);
          }
        }
      }

      // Largest scores, and what the sums so far are multiplied with.
      float most[2] = {running.largest[0], running.largest[1]};
      bool sees_all = true;  // of the step's positions: most steps of long prompts
#pragma unroll
      for (int r8 = 0; r8 < 2; ++r8)
        sees_all = sees_all && active[r8] && at >= oldest[r8] && at + kPositions - 1 <= position[r8];
#pragma unroll
      for (int n = 0; n < kPositions / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float score = scores[n][e] * scale[e / 2];
          if constexpr (kCapped) score = softcap(a.softcap, score);
          scores[n][e] = score;
        }
      if (!sees_all) {
#pragma unroll
        for (int n = 0; n < kPositions / 8; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const uint32_t p = at + n * 8 + t * 2 + e % 2;
            if (!active[e / 2] || p < oldest[e / 2] || p > position[e / 2]) scores[n][e] = -INFINITY;
          }
      }
#pragma unroll
      for (int n = 0; n < kPositions / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) most[e / 2] = fmaxf(most[e / 2], scores[n][e]);
      float base[2];
#pragma unroll
      for (int r8 = 0; r8 < 2; ++r8) {
        most[r8] = fmaxf(most[r8], __shfl_xor_sync(~0u, most[r8], 1));
        most[r8] = fmaxf(most[r8], __shfl_xor_sync(~0u, most[r8], 2));
        base[r8] = most[r8] == -INFINITY ? 0.0f : most[r8];
        const float kept = power_of_e(running.largest[r8] - base[r8]);
        running.largest[r8] = most[r8];
        running.sum[r8] *= kept;
#pragma unroll
        for (int n = 0; n < int(kSliceCols) / 8; ++n) {
          out[n][2 * r8] *= kept;
          out[n][2 * r8 + 1] *= kept;
        }
      }
      asm volatile("cp.async.wait_group 0;");
      const bool some_see_less = __syncthreads_or(!sees_all);
      if (some_see_less &&
          __syncthreads_or(any_not_finite<kSplit>(values, kPositions, shape.value_cols, shape.value_stride()))) {
#pragma unroll
        for (int n = 0; n < int(kSliceCols) / 8; ++n) {
          if (n * 8 >= int(shape.value_cols)) break;
#pragma unroll 1
          for (uint32_t p = 0; p < uint32_t(kPositions); ++p)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const uint16_t v = values[p * shape.value_stride() + n * 8 + t * 2 + e % 2];
              const bool sees = active[e / 2] && at + p >= oldest[e / 2] && at + p <= position[e / 2];
              if (sees && !is_finite<kSplit>(v)) out[n][e] += value_of<kSplit>(v);
            }
        }
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < kPositions * shape.value_cols; i += kThreads) {
          uint16_t* v = values + i / shape.value_cols * shape.value_stride() + i % shape.value_cols;
          if (is_finite<kSplit>(*v)) continue;
          *v = 0;
          if constexpr (kSplit) v[value_low] = 0;
        }
        __syncthreads();
      }
      if (at + kPositions < seen_end) bring_keys(at + kPositions);
#pragma unroll
      for (int step = 0; step < kPositions / 16; ++step) {
        uint32_t high[4], low[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {  // positions 2t, 2t + 1 of slots g, g + 8; then 8 further
          const int n = 2 * step + i / 2, r8 = i % 2;
          TwoParts parts[2];
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float weight = power_of_e(scores[n][2 * r8 + e] - base[r8]);
            running.sum[r8] += weight;
            parts[e] = two_parts<kSplit>(weight);
          }
          high[i] = parts[0].high | uint32_t(parts[1].high) << 16;
          low[i] = parts[0].low | uint32_t(parts[1].low) << 16;
        }
#pragma unroll
        for (int n = 0; n < int(kSliceCols) / 16; ++n) {
          if (n * 16 >= int(shape.value_cols)) break;
          const uint16_t* from =
              values + (step * 16 + lane / 8 % 2 * 8 + lane % 8) * shape.value_stride() + n * 16 + lane / 16 * 8;
          uint32_t value[4];
          load_transposed(value, from);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            if constexpr (kSplit) multiply<kSplit>(out[2 * n + half], low, value[2 * half], value[2 * half + 1]);
            multiply<kSplit>(out[2 * n + half], high, value[2 * half], value[2 * half + 1]);
          }
          if constexpr (kSplit) {
            load_transposed(value, from + value_low);
#pragma unroll
            for (int half = 0; half < 2; ++half)
              multiply<kSplit>(out[2 * n + half], high, value[2 * half], value[2 * half + 1]);
          }
        }
      }
      __syncthreads();  // the values have been used
      if (at + kPositions < seen_end) bring_values(at + kPositions);
    }

#pragma unroll
    for (int r8 = 0; r8 < 2; ++r8) {  // the sums of a slot's four lanes, the same in all of them
      running.sum[r8] += __shfl_xor_sync(~0u, running.sum[r8], 1);
      running.sum[r8] += __shfl_xor_sync(~0u, running.sum[r8], 2);
      if (!active[r8]) continue;
      const uint32_t head = own[r8].head, dim = c.value_dim;
      if (a.n_chunks == 1) {  // what merge_partials() makes of a single span, to the bit
        const float largest = a.sinks != nullptr ? fmaxf(a.sinks[head], running.largest[r8]) : running.largest[r8];
        const float weight = expf(running.largest[r8] - largest);
        const float sum = fmaf(weight, running.sum[r8], a.sinks != nullptr ? expf(a.sinks[head] - largest) : 0.0f);
        const float inverse = 1 / sum;
        float* to = a.out.data + size_t(own[r8].row) * a.out.stride + size_t(head) * dim;
#pragma unroll
        for (int n = 0; n < int(kSliceCols) / 8; ++n) {
          const uint32_t d = value0 + n * 8 + t * 2;
          if (n * 8 >= int(shape.value_cols) || d >= dim) continue;
#pragma unroll
          for (uint32_t e = 0; e < 2; ++e) {
            const float value = fmaf(weight, out[n][2 * r8 + e], 0.0f) * inverse;
            if constexpr (kGated)
              write_output(a, own[r8].row, head, d + e, value);
            else
              to[d + e] = value;
          }
        }
        continue;
      }
      float* partial =
          a.partials + ((size_t(own[r8].row - a.first_row) * a.n_heads + head) * a.n_chunks + span) * (dim + 2);
      if (t == 0 && slice == 0) {
        partial[dim] = running.largest[r8];
        partial[dim + 1] = running.sum[r8];
      }
#pragma unroll
      for (int n = 0; n < int(kSliceCols) / 8; ++n) {
        const uint32_t d = value0 + n * 8 + t * 2;
        if (n * 8 >= int(shape.value_cols) || d >= dim) continue;
        *reinterpret_cast<float2*>(partial + d) = {out[n][2 * r8], out[n][2 * r8 + 1]};
      }
    }
  }
}

using Kernel = void (*)(AttendArgs);
template <uint8_t kType, int kPositions>
Kernel kernel_of(bool capped, bool gated) {
  if (gated) return capped ? attend_tile<kType, kPositions, true, true> : attend_tile<kType, kPositions, false, true>;
  return capped ? attend_tile<kType, kPositions, true, false> : attend_tile<kType, kPositions, false, false>;
}
template <uint8_t kType>
Kernel kernel_of(bool pages, bool capped, bool gated) {
  return pages ? kernel_of<kType, kPage>(capped, gated) : kernel_of<kType, kPage / 2>(capped, gated);
}
Kernel kernel_for(uint8_t type, bool pages, bool capped, bool gated) {
  if (type == kF16) return kernel_of<kF16>(pages, capped, gated);
  return type == kF32 ? kernel_of<kF32>(pages, capped, gated) : kernel_of<kQ8>(pages, capped, gated);
}

}  // namespace

uint32_t attend_tile_bytes(const AttendArgs& a) { return tile_shape(a).bytes(); }

int prepare_attend_tiles(uint32_t shared_bytes) {
  for (uint8_t type : {kF16, kF32, kQ8})
    for (int variant = 0; variant < 8; ++variant)
      if (const int status =
              cudaFuncSetAttribute(kernel_for(type, (variant & 1) != 0, (variant & 2) != 0, (variant & 4) != 0),
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes));
          status != cudaSuccess)
        return status;
  return cudaSuccess;
}

int launch_attend_tiles(const AttendArgs& a, Stream stream) {
  const uint32_t heads_per_kv = a.n_heads / a.cache.n_kv_heads;
  const uint32_t tokens = kSlots / std::min(heads_per_kv, uint32_t(kSlots));
  const uint32_t slices = (a.cache.value_dim + kSliceCols - 1) / kSliceCols;
  const uint32_t head_groups = (heads_per_kv + kSlots - 1) / kSlots;
  const TileShape shape = tile_shape(a);
  const dim3 grid((a.n_rows + tokens - 1) / tokens, a.cache.n_kv_heads * head_groups * slices, a.n_chunks);
  const int status = launch(kernel_for(a.cache.type, shape.positions == kPage, a.softcap != 0, a.output_gate), grid,
                            kThreads, shape.bytes(), stream, a);
  if (status != cudaSuccess || a.n_chunks == 1) return status;
  return launch(merge_partials<kSpan>, dim3(a.n_heads, a.n_rows), 128, 0, stream, a);
}

}  // namespace honeycrisp::backend::cuda
