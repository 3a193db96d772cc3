// Attention over the paged cache. A threadgroup takes one KV head and up to four queries that read it (heads of the
// group, or of neighbouring rows of a sequence), so that keys and values are loaded once for all of them. It walks the
// visible chunks of 256 positions, chunks starting at multiples of 256, and merges them from left to right:
//   scores   four lanes share a key, a simdgroup takes eight keys, the threadgroup a page of 64 at a time;
//   softmax  a simdgroup per query;
//   values   a thread takes four elements of the head, threads with the same elements deal the positions among them.
// With kSplit every chunk is a threadgroup of its own and attend_combine merges; the arithmetic and its order are the
// same, so the bits are too. A row's bits depend on its position and what it sees, never on the rows beside it.
//
// Decoding one row per sequence, the launch does all that Attend means: norms and rotates the head's queries, appends
// the row's key and value (rounded as the cache is, and read back from there) and attends. Else attend_prepare goes
// before.
//
// Preconditions: head sizes are multiples of 4; queries · value_dim / 4 ≤ HC_ATTEND_OUTPUTS.
// Reads per KV head and visible position: key_dim + value_dim elements of the cache, for all queries together.
// Threadgroup memory: queries · (4 key_dim + 1 KiB + at most 4 KiB), at most 24 KiB of it (attend.cpp chooses).
#include "attend_head.h"
#include "tanh.h"

constant uint kGroup [[function_constant(4)]];
constant uint kRows [[function_constant(5)]];
constant bool kHasSoftcap [[function_constant(14)]];
constant bool kHasSinks [[function_constant(15)]];
constant bool kHasTemperature [[function_constant(16)]];
constant bool kPrepared [[function_constant(19)]];
constant bool kSplit [[function_constant(20)]];

constant constexpr uint kThreads = HC_ATTEND_THREADS;
constant constexpr uint kMostQueries = HC_ATTEND_QUERIES;
constant constexpr uint kKeyLanes = 4;                                // lanes that share a key
constant constexpr uint kKeysOfSimdgroup = 32 / kKeyLanes;            // at a time
constant constexpr uint kMostOutputs = HC_ATTEND_OUTPUTS / kThreads;  // quads of output elements of a thread
static_assert(kThreads / kKeyLanes == kPage, "a key of a page for every four lanes");
static_assert(kMostQueries <= kThreads / 32, "a simdgroup for every query");

constant uint kQuads = kValueDim / 4;          // of a value
constant uint kParts = kThreads / kQuads;      // threads with the same quad, that deal the positions among them
constant uint kPartialStride = kValueDim + 4;  // of a chunk's partial result: values, largest score, sum, nothing

/// Positions [begin, end) of a chunk, counted from its start.
struct Span {
  uint begin;
  uint end;
};
static inline Span visible_part(uint position, uint window, uint chunk) {
  const uint start = chunk * kChunk;
  const uint first = window != 0 && position >= window ? position - window + 1 : 0;
  Span span;
  span.begin = first > start ? min(first - start, kChunk) : 0;
  span.end = position < start ? 0 : min(position - start + 1, kChunk);
  return span;
}
static inline uint first_chunk(uint position, uint window) {
  return window != 0 && position >= window ? (position - window + 1) / kChunk : 0;
}

static inline float score_scale(constant AttendArgs& a, uint position) {
  if (!kHasTemperature) {
    return a.scale;
  }
  return a.scale * fma(a.beta, precise::log(float(1 + position / a.period)), 1.0f);
}

/// A running softmax: the largest score so far, and the sum of exp(score − largest).
struct Softmax {
  float largest;
  float sum;
};
/// Takes in a chunk (or a sink). The values so far are to be multiplied by .x, the chunk's by .y.
static inline float2 merge(thread Softmax& all, Softmax part) {
  const float largest = max(all.largest, part.largest);
  const float keep = precise::exp(all.largest - largest);
  const float take = precise::exp(part.largest - largest);
  all.sum = fma(all.sum, keep, part.sum * take);
  all.largest = largest;
  return float2(keep, take);
}
/// What the merged values of a head are to be multiplied by, and then divided by.
static inline float2 finish(thread Softmax& all, device const float* sinks, uint head) {
  float keep = 1.0f;
  if (kHasSinks) {
    Softmax sink;
    sink.largest = sinks[head];
    sink.sum = 1.0f;
    keep = merge(all, sink).x;
  }
  return float2(keep, all.sum);
}
static inline float4 output(float4 values, float2 factors, device const float* gate) {
  float4 out = values * factors.x / factors.y;
  if (kOutputGate) {
    const float4 g = float4(gate[0], gate[1], gate[2], gate[3]);
    out = out / (1.0f + precise::exp(-g));
  }
  return out;
}
static inline void write_output(device float* out, float4 v) {  // columns may begin anywhere
  out[0] = v.x;
  out[1] = v.y;
  out[2] = v.z;
  out[3] = v.w;
}

template <typename Cache>
kernel void attend(device const float* q [[buffer(0)]],  // rows of [heads][query (, gate)]
                   device const float* k [[buffer(1), function_constant(kAppends)]],
                   device const float* v [[buffer(2), function_constant(kReadsValue)]],
                   device const float* prepared [[buffer(3), function_constant(kPrepared)]],  // [rows][heads][key_dim]
                   device float* out [[buffer(4)]],
                   device float* partials [[buffer(5), function_constant(kSplit)]],  // [rows][heads][slots][stride]
                   device uchar* pages [[buffer(6)]], device const uint* positions [[buffer(7)]],
                   device const uint* table_start [[buffer(8)]],  // [rows][pools]
                   device const uint* tables [[buffer(9)]],
                   device const float2* rope [[buffer(10), function_constant(kHasRope)]],  // [positions][pairs]
                   device const float* q_weight [[buffer(11), function_constant(kQWeight)]],
                   device const float* k_weight [[buffer(12), function_constant(kKWeight)]],
                   device const float* v_weight [[buffer(13), function_constant(kVWeight)]],
                   device const float* sinks [[buffer(14), function_constant(kHasSinks)]],  // [heads]
                   constant AttendArgs& a [[buffer(15)]],
                   threadgroup float* queries [[threadgroup(0)]],  // [queries][key_dim]
                   threadgroup float* scores [[threadgroup(1)]],   // [queries][256]
                   threadgroup float* sums [[threadgroup(2)]],     // [parts][queries][value_dim]
                   uint3 group [[threadgroup_position_in_grid]],   // (chunk if split, KV head, rows)
                   uint thread_index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                   uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float keep[kMostQueries];         // what merging multiplies with: the values so far,
  threadgroup float take[kMostQueries];         // and the chunk's
  threadgroup float last_factor[kMostQueries];  // what finish() gives
  threadgroup float divisor[kMostQueries];
  const uint kv_head = group.y;
  const uint rows_end = min((group.z + 1) * kRows, a.n_rows);

  // Rows of one sequence at consecutive positions attend together.
  uint n_rows = 1;
  for (uint row = group.z * kRows; row < rows_end; row += n_rows) {
    const uint position = positions[row];  // of the first of them
    const uint start = table_start[row * a.n_pools + a.pool];
    n_rows = 1;
    while (row + n_rows < rows_end && positions[row + n_rows] == position + n_rows &&
           table_start[(row + n_rows) * a.n_pools + a.pool] == start) {
      ++n_rows;
    }
    device const uint* table = tables + start;
    const uint last_position = position + n_rows - 1;
    uint chunk = first_chunk(position, a.window);
    uint last_chunk = last_position / kChunk;
    if (kSplit) {  // one row
      chunk += group.x;
      if (chunk > last_chunk) {
        return;
      }
    }
    const bool appends = kAppends && (!kSplit || chunk == last_chunk);
    if (kSplit) {
      last_chunk = chunk;
    }

    for (uint first_head = 0; first_head < kHeadsPerKv; first_head += kGroup) {
      const uint n_heads = min(kGroup, kHeadsPerKv - first_head);
      const uint n = n_rows * n_heads;  // query i is head i % n_heads of row i / n_heads
      const uint head0 = kv_head * kHeadsPerKv + first_head;

      // ---- queries; key and value of the row

      if (kPrepared) {
        for (uint i = thread_index; i < n * kKeyDim; i += kThreads) {
          const uint query = i / kKeyDim;
          const uint head = head0 + query % n_heads;
          queries[i] = prepared[((row + query / n_heads) * kHeads + head) * kKeyDim + i % kKeyDim];
        }
      } else {
        device const float2* turns = rope + position * a.n_pairs;
        if (simdgroup < n) {
          threadgroup float* to = queries + simdgroup * kKeyDim;
          const HeadNorm norm = {kQNorm, kQWeight, a.q_eps, q_weight};
          load_head(q + row * a.q_stride, head0 + simdgroup, kHeads, kQueryStride, kKeyDim, norm, to, lane);
          if (kHasRope) {
            rotate_head(turns, a, to, lane);
          }
        }
        if (appends && first_head == 0) {
          const uint page = table[position / kPage];
          device uchar* section = head_in_page(pages, a.cache, page, kv_head);
          if (simdgroup == kMostQueries) {
            const HeadNorm norm = {kKNorm, kKWeight, a.k_eps, k_weight};
            load_head(k + row * a.k_stride, kv_head, kKvHeads, kKeyDim, kKeyDim, norm, sums, lane);
            if (kHasRope) {
              rotate_head(turns, a, sums, lane);
            }
            Cache::store(section, kKeyDim, position % kPage, sums, lane);
          } else if (simdgroup == kMostQueries + 1) {
            const HeadNorm norm = {kVNorm, kVWeight, a.v_eps, v_weight};
            device const float* values = kOwnValue ? v + row * a.v_stride : k + row * a.k_stride;
            threadgroup float* to = sums + kKeyDim;
            load_head(values, kv_head, kKvHeads, kValueDim, kValueDim, norm, to, lane);
            Cache::store(section + a.cache.value_offset, kValueDim, position % kPage, to, lane);
          }
        }
      }
      threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);

      Softmax running;  // of query `simdgroup`
      running.largest = -INFINITY;
      running.sum = 0.0f;
      float4 state[kMostOutputs];  // merged values of quads thread_index, thread_index + 256
      for (uint u = 0; u < kMostOutputs; ++u) {
        state[u] = float4(0.0f);
      }

      for (uint c = chunk; c <= last_chunk; ++c) {
        Span spans[kMostQueries];  // of each query
        for (uint i = 0; i < kMostQueries; ++i) {
          spans[i] = visible_part(position + min(i / n_heads, n_rows - 1), a.window, c);
        }
        Span seen;  // by any of them
        seen.begin = spans[0].begin;
        seen.end = visible_part(last_position, a.window, c).end;

        // ---- scores

        for (uint page = seen.begin / kPage; page * kPage < seen.end; ++page) {
          const uint first_key = page * kPage + simdgroup * kKeysOfSimdgroup;
          if (first_key >= seen.end || first_key + kKeysOfSimdgroup <= seen.begin) {
            continue;  // all lanes alike
          }
          const uint key = first_key + lane / kKeyLanes;
          const bool is_seen = key >= seen.begin && key < seen.end;
          float4 products[kMostQueries];
          for (uint i = 0; i < kMostQueries; ++i) {
            products[i] = float4(0.0f);
          }
          if (is_seen) {
            device const uchar* keys = head_in_page(pages, a.cache, table[c * (kChunk / kPage) + page], kv_head);
            for (uint d = lane % kKeyLanes * 8; d < kKeyDim; d += kKeyLanes * 8) {
              const float4 low = Cache::load4(keys, kKeyDim, key % kPage, d);
              for (uint i = 0; i < n; ++i) {
                products[i] = fma(*(threadgroup const float4*)(queries + i * kKeyDim + d), low, products[i]);
              }
              if (d + 4 < kKeyDim) {
                const float4 high = Cache::load4(keys, kKeyDim, key % kPage, d + 4);
                for (uint i = 0; i < n; ++i) {
                  products[i] = fma(*(threadgroup const float4*)(queries + i * kKeyDim + d + 4), high, products[i]);
                }
              }
            }
          }
          float score[kMostQueries];
          for (uint i = 0; i < kMostQueries; ++i) {
            score[i] = (products[i].x + products[i].y) + (products[i].z + products[i].w);
          }
          float4 total = float4(score[0], score[1], score[2], score[3]);
          total += simd_shuffle_xor(total, 1);
          total += simd_shuffle_xor(total, 2);
          const uint i = lane % kKeyLanes;  // each lane of a key writes one query's score
          if (is_seen && i < n && key >= spans[i].begin && key < spans[i].end) {
            float s = total[i] * score_scale(a, position + i / n_heads);
            if (kHasSoftcap) {
              s = a.softcap * tanh_of(s / a.softcap);
            }
            scores[i * kChunk + key] = s;
          }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);

        // ---- softmax

        if (simdgroup < n) {
          threadgroup float* s = scores + simdgroup * kChunk;
          const Span span = spans[simdgroup];
          if (span.begin < span.end) {
            Softmax part;
            part.largest = -INFINITY;
            part.sum = 0.0f;
            const uint first = span.begin / 32 * 32 + lane;  // a lane takes the same positions of any span
            for (uint j = first; j < span.end; j += 32) {
              part.largest = j >= span.begin ? max(part.largest, s[j]) : part.largest;
            }
            part.largest = simd_max(part.largest);
            for (uint j = first; j < span.end; j += 32) {
              if (j >= span.begin) {
                const float weight = precise::exp(s[j] - part.largest);
                part.sum += weight;
                s[j] = weight;
              }
            }
            part.sum = simd_sum(part.sum);
            if (kSplit) {
              running = part;
            } else {
              const float2 f = merge(running, part);
              if (lane == 0) {
                keep[simdgroup] = f.x;
                take[simdgroup] = f.y;
              }
            }
          } else if (lane == 0) {  // nothing is added
            keep[simdgroup] = 1.0f;
            take[simdgroup] = 0.0f;
          }
          if (!kSplit && c == last_chunk) {
            const float2 f = finish(running, sinks, head0 + simdgroup % n_heads);
            if (lane == 0) {
              last_factor[simdgroup] = f.x;
              divisor[simdgroup] = f.y;
            }
          }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);

        // ---- values

        const uint part = thread_index / kQuads;
        const uint quad = thread_index % kQuads;
        if (part < kParts) {
          float4 sum[kMostQueries];
          for (uint i = 0; i < kMostQueries; ++i) {
            sum[i] = float4(0.0f);
          }
          for (uint page = seen.begin / kPage; page * kPage < seen.end; ++page) {
            device const uchar* values =
                head_in_page(pages, a.cache, table[c * (kChunk / kPage) + page], kv_head) + a.cache.value_offset;
            const uint begin = seen.begin > page * kPage ? seen.begin - page * kPage : 0;
            const uint end = min(seen.end - page * kPage, kPage);
            const uint skipped = begin > part ? (begin - part + kParts - 1) / kParts * kParts : 0;
            for (uint j = part + skipped; j < end; j += kParts) {
              const float4 value = Cache::load4(values, kValueDim, j, 4 * quad);
              const uint at = page * kPage + j;
              for (uint i = 0; i < n; ++i) {
                if (kRows == 1 || (at >= spans[i].begin && at < spans[i].end)) {
                  sum[i] = fma(float4(scores[i * kChunk + at]), value, sum[i]);
                }
              }
            }
          }
          for (uint i = 0; i < n; ++i) {
            *(threadgroup float4*)(sums + (part * n + i) * kValueDim + 4 * quad) = sum[i];
          }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);

        // ---- the chunk's values into the running ones

        for (uint u = 0; u < kMostOutputs; ++u) {
          const uint item = thread_index + u * kThreads;
          if (item < n * kQuads) {
            float4 total = *(threadgroup const float4*)(sums + 4 * item);
            for (uint p = 1; p < kParts; ++p) {
              total += *(threadgroup const float4*)(sums + p * n * kValueDim + 4 * item);
            }
            if (kSplit) {
              state[u] = total;
            } else {
              state[u] = fma(total, float4(take[item / kQuads]), state[u] * keep[item / kQuads]);
            }
          }
        }
      }

      // ---- outputs

      if (kSplit) {
        device float* to = partials + ((ulong(row) * kHeads + head0) * a.n_slots + group.x) * kPartialStride;
        const ulong stride = ulong(a.n_slots) * kPartialStride;  // from one head to the next
        if (simdgroup < n && lane == 0) {
          to[simdgroup * stride + kValueDim] = running.largest;
          to[simdgroup * stride + kValueDim + 1] = running.sum;
        }
        for (uint u = 0; u < kMostOutputs; ++u) {
          const uint item = thread_index + u * kThreads;
          if (item < n * kQuads) {
            *(device float4*)(to + item / kQuads * stride + 4 * (item % kQuads)) = state[u];
          }
        }
      } else {
        for (uint u = 0; u < kMostOutputs; ++u) {
          const uint item = thread_index + u * kThreads;
          if (item < n * kQuads) {
            const uint query = item / kQuads;
            const uint head = head0 + query % n_heads;
            const uint d = 4 * (item % kQuads);
            const uint r = row + query / n_heads;
            device const float* gate = q + r * a.q_stride + head * kQueryStride + kKeyDim + d;
            write_output(out + r * a.out_stride + head * kValueDim + d,
                         output(state[u], float2(last_factor[query], divisor[query]), gate));
          }
        }
      }
    }
  }
}

template [[host_name("attend_f32")]] kernel decltype(attend<CacheF32>) attend<CacheF32>;
template [[host_name("attend_f16")]] kernel decltype(attend<CacheF16>) attend<CacheF16>;
template [[host_name("attend_q8_0")]] kernel decltype(attend<CacheQ8>) attend<CacheQ8>;

/// Merges the chunks of one head of one row, from left to right, as attend does without kSplit. Threadgroup: (head,
/// row); any number of simdgroups, a thread takes a quad of the head's elements. Reads 4 value_dim + 8 bytes per chunk.
kernel void attend_combine(device const float* q [[buffer(0)]],  // for the gate
                           device float* out [[buffer(1)]], device const float* partials [[buffer(2)]],
                           device const uint* positions [[buffer(3)]],
                           device const float* sinks [[buffer(4), function_constant(kHasSinks)]],
                           constant AttendArgs& a [[buffer(5)]], uint2 group [[threadgroup_position_in_grid]],
                           uint2 thread_index [[thread_position_in_threadgroup]],
                           uint2 threads [[threads_per_threadgroup]]) {
  const uint head = group.x;
  const uint row = group.y;
  const uint position = positions[row];
  const uint n_chunks = position / kChunk - first_chunk(position, a.window) + 1;
  device const float* chunks = partials + (ulong(row) * kHeads + head) * a.n_slots * kPartialStride;
  for (uint quad = thread_index.x; quad < kQuads; quad += threads.x) {
    Softmax running;
    running.largest = -INFINITY;
    running.sum = 0.0f;
    float4 state = float4(0.0f);
    for (uint c = 0; c < n_chunks; ++c) {
      device const float* chunk = chunks + ulong(c) * kPartialStride;
      Softmax part;
      part.largest = chunk[kValueDim];
      part.sum = chunk[kValueDim + 1];
      const float2 f = merge(running, part);
      state = fma(*(device const float4*)(chunk + 4 * quad), float4(f.y), state * f.x);
    }
    const float2 f = finish(running, sinks, head);
    device const float* gate = q + row * a.q_stride + head * kQueryStride + kKeyDim + 4 * quad;
    write_output(out + row * a.out_stride + head * kValueDim + 4 * quad, output(state, f, gate));
  }
}
