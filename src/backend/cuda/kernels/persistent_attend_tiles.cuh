// Attention over heads of 64 or 128 in f16, on tensor cores.
//
// A warp takes 16 positions of an item's chunk. Scores [positions][columns]: columns 0..3 are the high f16 parts of
// four queries, 4..7 their low parts; values likewise with the weights. Lanes load 16 bytes of keys (8 elements of
// positions g and g + 8) and of values (8 elements of positions 2t, 2t+1, 2t+8, 2t+9); the order of elements inside a
// fragment follows from that and cancels.
//
// The row's own position is a part of its own, never read from the cache: so what warps read does not depend on this
// step, and can be fetched before the queries are there (unless other rows of the launch append to the same positions).
#pragma once

#include "backend/cuda/kernels/packed.cuh"
#include "backend/cuda/kernels/persistent_attend_item.cuh"

namespace honeycrisp::backend::cuda {

constexpr int kTileHeads = 4;  // query heads whose high and low parts fill the columns of an mma
constexpr int kTilePositions = 16;
constexpr int kOwnPart = kWarps;  // after the warps' parts

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

/// How a block's working memory is used.
template <int kDim>
struct TileMemory {
  float* queries;  // [heads][kDim]
  __half* parts;   // [heads][high, low][kDim]
  float* own;      // key, value of the row's own position, rounded: [2][kDim]
  float* sums;     // [warps][kTileHeads][kDim]

  __device__ __forceinline__ explicit TileMemory(uint8_t* work) {
    queries = reinterpret_cast<float*>(work);
    parts = reinterpret_cast<__half*>(queries + kMostStepHeadsPerKv * kDim);
    own = reinterpret_cast<float*>(parts + kMostStepHeadsPerKv * 2 * kDim);
    sums = own + 2 * kDim;
  }
};
static_assert((kMostStepHeadsPerKv * 2 + 2 + kStepWarps * kTileHeads) * 128 * 4 <= kTensorAttendBytes);

// ---- what an item computes first

// Elements that a lane has of a head: pairs that rotate together, (i, i + distance) or (2i, 2i + 1) for i = lane + 32
// p.
template <int kDim>
struct HeadPart {
  static constexpr int kPairs = kDim / 64;
  float v[kPairs][2];

  static __device__ __forceinline__ uint32_t at(bool interleaved, int lane, int p, int which) {
    const uint32_t i = lane + 32 * p;
    return interleaved ? 2 * i + which : i + which * (kDim / 2);
  }
};

// What a head's pairs are rotated by.
template <int kDim>
struct HeadTurn {
  float2 turn[HeadPart<kDim>::kPairs];
  bool rotates;
};

// Fetches a head of a row's plane, and norms it. By one warp; needs no working memory.
template <int kDim>
__device__ __forceinline__ HeadPart<kDim> await_head(const StepArgs& a, const StepOp& op, BlockMemory& s, uint32_t row,
                                                     uint32_t place, const NormArgs& norm, bool rotates,
                                                     HeadTurn<kDim>& turns, int lane) {
  constexpr int kPairs = HeadPart<kDim>::kPairs;
  HeadPart<kDim> h;
  float weight[kPairs][2];
  float2(&turn)[kPairs] = turns.turn;
  const float* from = a.planes + size_t(row) * a.plane + place;
  turns.rotates = rotates = rotates && op.rope >= 0;
  const auto* table =
      reinterpret_cast<const float2*>(a.ropes[rotates ? op.rope : 0]) + size_t(a.position[row]) * op.n_pairs;
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t d = HeadPart<kDim>::at(op.interleaved, lane, p, i);
      h.v[p][i] = look(from + d);
      weight[p][i] = norm.weight != nullptr ? __ldg(norm.weight + d) : 1.0f;
    }
    const uint32_t i = lane + 32 * p;
    turn[p] = rotates && i < op.n_pairs ? __ldg(table + i) : float2{1, 0};
  }
  for (uint32_t polls = 1;; ++polls) {
    bool waits = false;
#pragma unroll
    for (int p = 0; p < kPairs; ++p)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (is_poison(h.v[p][i])) {
          h.v[p][i] = look(from + HeadPart<kDim>::at(op.interleaved, lane, p, i));
          waits = true;
        }
    if (!waits || (polls % kPollsBetweenLooks == 0 && s.dog.gives_up())) break;
  }
  __syncwarp();
  if (norm.present) {
    float squares = 0;
#pragma unroll
    for (int p = 0; p < kPairs; ++p) squares = fmaf(h.v[p][1], h.v[p][1], fmaf(h.v[p][0], h.v[p][0], squares));
    const float scale = rsqrtf(fmaf(warp_sum(squares), 1.0f / kDim, norm.eps));
#pragma unroll
    for (int p = 0; p < kPairs; ++p)
#pragma unroll
      for (int i = 0; i < 2; ++i) h.v[p][i] = h.v[p][i] * scale * weight[p][i];
  }
  return h;
}

template <int kDim>
__device__ __forceinline__ void rotate_head(const StepArgs& a, const StepOp& op, HeadPart<kDim>& h, uint32_t row,
                                            const HeadTurn<kDim>& turns, float* scratch, int lane) {
  constexpr int kPairs = HeadPart<kDim>::kPairs;
  const float2(&turn)[kPairs] = turns.turn;
  if (!turns.rotates) return;
  if (op.interleaved || op.pair_distance * 2 == kDim) {
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      const float x = h.v[p][0], y = h.v[p][1];
      h.v[p][0] = x * turn[p].x - y * turn[p].y;
      h.v[p][1] = x * turn[p].y + y * turn[p].x;
    }
    return;
  }
#pragma unroll 1
  for (int i = 0; i < 2; ++i)  // partners lie elsewhere
    for (int p = 0; p < kPairs; ++p) scratch[HeadPart<kDim>::at(false, lane, p, i)] = i == 0 ? h.v[p][0] : h.v[p][1];
  __syncwarp();
  rotate(a.ropes[op.rope] + size_t(a.position[row]) * op.n_pairs * 2, op.n_pairs, false, op.pair_distance, scratch,
         lane);
#pragma unroll
  for (int p = 0; p < kPairs; ++p)
#pragma unroll
    for (int i = 0; i < 2; ++i) h.v[p][i] = scratch[HeadPart<kDim>::at(false, lane, p, i)];
  __syncwarp();
}

// Queries of the item and the row's own key and value into shared memory, and what is new of keys and values into the
// cache. `enters`: others of the block may still use working memory, until a barrier that all warps come to here.
template <int kDim>
__device__ __forceinline__ void prepare_tiles(const StepArgs& a, const StepOp& op, BlockMemory& s,
                                              const FoundItem& found, uint32_t appended, const TileMemory<kDim>& m,
                                              bool enters, int warp, int lane) {
  const CacheView& c = op.cache;
  const AttendItem item = found.item;
  const uint32_t heads = op.heads_per_kv, n = heads + 2 * __popc(appended);
#pragma unroll 1
  for (uint32_t i = turn_of(warp); i < n; i += kWarps) {
    const bool is_query = i < heads, is_value = !is_query && (i - heads) % 2 != 0;
    uint32_t rows = appended;
    for (uint32_t skip = is_query ? 0 : (i - heads) / 2; skip != 0; --skip) rows &= rows - 1;
    const uint32_t row = is_query ? item.row : __ffs(int(rows)) - 1;
    const uint32_t place = is_query ? op.q + (item.kv_head * heads + i) * kDim * (op.output_gate ? 2 : 1)
                                    : (is_value && !op.v_is_k ? op.v : op.k) + item.kv_head * kDim;
    HeadTurn<kDim> turns;
    HeadPart<kDim> h = await_head<kDim>(a, op, s, row, place,
                                        is_query   ? op.q_norm
                                        : is_value ? op.v_norm
                                                   : op.k_norm,
                                        !is_value, turns, lane);
    if (enters) sync_warps();
    enters = false;
    rotate_head<kDim>(a, op, h, row, turns, m.sums + warp * kTileHeads * kDim, lane);
    const uint32_t in_chunk = a.position[row] % kChunk;
    auto* cached = reinterpret_cast<__half*>(page_of(op, found, in_chunk) + (is_value ? c.value_offset : 0)) +
                   in_chunk % kPage * kDim;
#pragma unroll
    for (int p = 0; p < HeadPart<kDim>::kPairs; ++p)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const uint32_t d = HeadPart<kDim>::at(op.interleaved, lane, p, j);
        const float v = h.v[p][j];
        const __half rounded = __float2half_rn(v);
        if (is_query) {
          m.queries[i * kDim + d] = v;
          m.parts[2 * i * kDim + d] = rounded;
          m.parts[(2 * i + 1) * kDim + d] = __float2half_rn(v - __half2float(rounded));
        } else {
          if (row == item.row) m.own[(is_value ? kDim : 0) + d] = __half2float(rounded);
          cached[d] = rounded;
        }
      }
  }
  if (enters) sync_warps();
}

// ---- a warp's positions

template <int kDim>
struct TileLoads {
  uint4 k[2][kDim / 32], v[kDim / 64][4];

  __device__ __forceinline__ void keys(const uint8_t* from, int lane) {
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int j = 0; j < kDim / 32; ++j)
        k[half][j] = __ldcg(reinterpret_cast<const uint4*>(from + (g + 8 * half) * kDim * 2 + j * 64 + t * 16));
  }
  /// What is not seen may be anything, and its weight is 0.
  __device__ __forceinline__ void values(const uint8_t* from, uint32_t first, const Visible& seen, int lane) {
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int part = 0; part < kDim / 64; ++part)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t in_tile = 2 * t + (i & 1) + (i >> 1) * 8, position = first + in_tile;
        v[part][i] = make_uint4(0, 0, 0, 0);
        if (position >= seen.begin && position < seen.end)
          v[part][i] = __ldcg(reinterpret_cast<const uint4*>(from + in_tile * kDim * 2 + part * 128 + g * 16));
      }
  }
};

// Scores of the warp's positions for queries [group, group + n), as weights relative to the largest.
template <int kDim>
__device__ __forceinline__ void weigh(const StepOp& op, const TileMemory<kDim>& m, const TileLoads<kDim>& loads,
                                      uint32_t group, uint32_t n, uint32_t first, const Visible& seen,
                                      float (&weight)[4], float2& largest, float2& sum, int lane) {
  const int g = lane >> 2, t = lane & 3;
  weight[0] = weight[1] = weight[2] = weight[3] = 0;
  const __half* q = m.parts + ((group + min(uint32_t(g & 3), n - 1)) * 2 + (g >> 2)) * kDim + 8 * t;
#pragma unroll
  for (int j = 0; j < kDim / 32; ++j) {
    const uint4 b = *reinterpret_cast<const uint4*>(q + 32 * j);
    mma_f16(weight, loads.k[0][j].x, loads.k[1][j].x, loads.k[0][j].y, loads.k[1][j].y, b.x, b.y, weight);
    mma_f16(weight, loads.k[0][j].z, loads.k[1][j].z, loads.k[0][j].w, loads.k[1][j].w, b.z, b.w, weight);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    weight[i] += __shfl_xor_sync(~0u, weight[i], 2);
    const uint32_t position = first + g + (i >> 1) * 8;
    const float score = softcap(op.softcap, weight[i] * op.scale);
    weight[i] = position >= seen.begin && position < seen.end ? score : -INFINITY;
  }
  largest = {fmaxf(weight[0], weight[2]), fmaxf(weight[1], weight[3])};
#pragma unroll
  for (int d = 4; d < 32; d *= 2) {
    largest.x = fmaxf(largest.x, __shfl_xor_sync(~0u, largest.x, d));
    largest.y = fmaxf(largest.y, __shfl_xor_sync(~0u, largest.y, d));
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) weight[i] = __expf(weight[i] - (i & 1 ? largest.y : largest.x));
  sum = {weight[0] + weight[2], weight[1] + weight[3]};
#pragma unroll
  for (int d = 4; d < 32; d *= 2) {
    sum.x += __shfl_xor_sync(~0u, sum.x, d);
    sum.y += __shfl_xor_sync(~0u, sum.y, d);
  }
}

// The weighted values of the warp's positions, into [kTileHeads][kDim].
template <int kDim>
__device__ __forceinline__ void leave_values(const float (&weight)[4], const TileLoads<kDim>& loads, float* to,
                                             int lane) {
  const int g = lane >> 2, t = lane & 3;
  const uint32_t p0 = transposed(halves_of(weight[0], weight[1], t >= 2));
  const uint32_t p1 = transposed(halves_of(weight[2], weight[3], t >= 2));
#pragma unroll
  for (int part = 0; part < kDim / 64; ++part) {
    const uint4(&v)[4] = loads.v[part];
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

// Joins the parts of queries [group, group + n) in the order of positions.
template <int kDim>
__device__ __forceinline__ void join_parts(const StepArgs& a, const StepOp& op, BlockMemory& s, const AttendItem& item,
                                           const Visible& cached, bool owns, const TileMemory<kDim>& m, uint32_t group,
                                           uint32_t n, int lane) {
  const uint32_t begin = cached.begin / kTilePositions;
  const uint32_t end = cached.begin < cached.end ? (cached.end + kTilePositions - 1) / kTilePositions : begin;
  for (uint32_t o = this_thread(); o < n * kDim; o += kThreads) {  // a warp stays in one head
    const uint32_t h = o / kDim, d = o % kDim;
    const bool takes_part = (lane >= begin && lane < end) || (lane == kOwnPart && owns);
    const float2 mine = takes_part ? s.whole[lane * kTileHeads + h] : float2{-INFINITY, 0};
    const float most = warp_max(mine.x), factor = takes_part ? __expf(mine.x - most) : 0.0f;
    const float total = warp_sum(factor * mine.y);
    float value = 0;
#pragma unroll 4
    for (uint32_t w = begin; w < end; ++w)
      value = fmaf(__shfl_sync(~0u, factor, int(w)), m.sums[(w * kTileHeads + h) * kDim + d], value);
    const float own = __shfl_sync(~0u, factor, kOwnPart);
    if (owns) value = fmaf(own, m.own[kDim + d], value);
    leave_value(a, op, s, item, item.kv_head * op.heads_per_kv + group + h, d, value, most, total, true);
  }
}

/// All of the block's items of an op.
template <int kDim>
__device__ __forceinline__ void attend_tiles(const StepArgs& a, const StepOp& op, BlockMemory& s, uint8_t* work,
                                             int warp, int lane) {
  const TileMemory<kDim> m(work);
  const uint32_t heads = op.heads_per_kv, first = warp * kTilePositions;
#pragma unroll 1
  for (uint32_t ordinal = 0;; ++ordinal) {
    const FoundItem& found = find_item(a, op, s, ordinal);
    const AttendItem item = found.item;
    if (item.n_chunks == 0) return;
    const uint32_t appended = found.appended;
    const bool owns = found.owns;
    const Visible cached = {item.visible.begin, item.visible.end - (owns ? 1 : 0)};
    const bool any = first < cached.end && first + kTilePositions > cached.begin;
    const bool fresh = (found.fresh >> warp & 1) != 0;  // other rows append to the warp's positions
    // Keys are on their way before the queries are there, values come as far as L2.
    TileLoads<kDim>
        loads{};  // else the registers would be taken during all passes, as what is not assigned may be kept
    const uint8_t* keys = any ? page_of(op, found, first) + first % kPage * kDim * 2 : nullptr;
    if (any && !fresh) {
      loads.keys(keys, lane);
      asm volatile("prefetch.global.L2 [%0];" ::"l"(keys + op.cache.value_offset + lane * kDim));
    }
    prepare_tiles<kDim>(a, op, s, found, appended, m, ordinal == 0, warp, lane);
    if (any && !fresh) loads.values(keys + op.cache.value_offset, first, cached, lane);
    sync_warps();
    if (any && fresh) {
      loads.keys(keys, lane);
      loads.values(keys + op.cache.value_offset, first, cached, lane);
    }
#pragma unroll 1
    for (uint32_t group = 0; group < heads; group += kTileHeads) {
      const uint32_t n = min(uint32_t(kTileHeads), heads - group);
      if (any) {
        float weight[4];
        float2 largest, sum;
        weigh<kDim>(op, m, loads, group, n, first, cached, weight, largest, sum, lane);
        leave_values<kDim>(weight, loads, m.sums + warp * kTileHeads * kDim, lane);
        if (lane < 2) {
          s.whole[warp * kTileHeads + 2 * lane] = {largest.x, sum.x};
          s.whole[warp * kTileHeads + 2 * lane + 1] = {largest.y, sum.y};
        }
      }
      if (const uint32_t h = kWarps - 1 - warp; owns && h < n) {  // by warps that are the last to have others
        float score = 0;
#pragma unroll
        for (int e = 0; e < kDim / 32; ++e)
          score = fmaf(m.queries[(group + h) * kDim + e * 32 + lane], m.own[e * 32 + lane], score);
        score = softcap(op.softcap, warp_sum(score) * op.scale);
        if (lane == 0) s.whole[kOwnPart * kTileHeads + h] = {score, 1};
      }
      sync_warps();
      join_parts<kDim>(a, op, s, item, cached, owns, m, group, n, lane);
      sync_warps();
    }
    leave_item(a, op, item);
  }
}

}  // namespace honeycrisp::backend::cuda
