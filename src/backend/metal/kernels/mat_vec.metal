// y = W x for generated rows: one to four matrices of any formats times the same input, with what comes before (a
// residual that waits, RMS norm) and after (bias and ending), in one launch.
//
// Threads: a threadgroup is 4 simdgroups, each of which computes kRows weight rows for B batch rows. Lane l takes parts
// l, l + 32, ... of a row (32 elements each) and the lanes' sums are added by simd_sum: the order of additions depends
// on the number of columns alone. x counts tiles of 4 kRows weight rows, matrix after matrix, and one more that flushes
// a residual; y counts tiles of B batch rows. Input: B = 1: cached in threadgroup memory by all threads (kCachedParts;
// columns ≤ 32 kCachedParts), or read by each lane for itself (0). B > 1: staged, 32 parts of each batch row at a time.
// The norm's factor 1 / rms is common to all columns and multiplied with the finished sum; x · weight is what is
// cached, so that one barrier does for both. Threadgroup memory: mat_vec_memory() floats; at most 24 KiB + 16 (B = 1)
// or B · 4 KiB. Bytes per weight row: its own, once for B batch rows; 4 B written (8 B more read for a residual or an
// operand).
#include "endings.h"
#include "formats.h"
#include "project_args.h"
#include "row_norm.h"

#include <metal_stdlib>
using namespace metal;

constant uint kFormat0 [[function_constant(0)]];
constant uint kFormat1 [[function_constant(1)]];
constant uint kFormat2 [[function_constant(2)]];
constant uint kFormat3 [[function_constant(3)]];
constant uint kMatrices [[function_constant(4)]];
constant uint kRows [[function_constant(5)]];
constant uint kCachedParts [[function_constant(6)]];
constant bool kNorm [[function_constant(7)]];
constant bool kNormWeight [[function_constant(8)]];
constant bool kPending [[function_constant(9)]];
constant bool kPendingWeight [[function_constant(10)]];
constant bool kFlush [[function_constant(11)]];
constant bool kGather [[function_constant(17)]];

/// Most rows of a simdgroup: the totals of B batch rows fit its lanes.
template <uint B>
struct Most {
  enum : uint { kRows = B == 1 ? 16 : 32 / B, kSums = kRows * B };
};

/// One batch row of the input.
struct InputRow {
  device const float* x;
  device const float* y;  // of the residual that waits
  float y_inverse;
};

struct Input {
  device const float* norm;          // [columns]
  device const float* pending_norm;  // [columns]
  constant ProjectArgs* args;
};

/// Element i, before the norm.
static inline float value(InputRow row, Input in, uint i) {
  const float x = row.x[i];
  if (!kPending) {
    return x;
  }
  return resolved(x, row.y[i], row.y_inverse, kPendingWeight ? in.pending_norm[i] : 1.0f, in.args->pending);
}
/// Element i times the norm's weight; zero past the end of the row.
static inline float weighted(InputRow row, Input in, uint i) {
  if (i >= in.args->columns) {
    return 0.0f;
  }
  const float v = value(row, in, i);
  return kNormWeight ? v * in.norm[i] : v;
}

/// Where element i lies in cached or staged input: float4s of neighbouring parts are neighbours, so that lanes, each
/// reading its own part, meet in no bank. stride: parts.
static inline uint cache_index(uint i, uint stride) { return ((i % kPart / 4) * stride + i / kPart) * 4 + i % 4; }

static inline Quads cached_part(threadgroup const float4* cache, uint part, uint stride) {
  Quads x;
  for (uint i = 0; i < 8; ++i) {
    x.q[i] = cache[i * stride + part];
  }
  return x;
}
static inline Quads read_part(InputRow row, Input in, uint part) {
  Quads x;
  if (kPending || (part + 1) * kPart > in.args->columns) {
    for (uint i = 0; i < kPart; ++i) {
      x.q[i / 4][i % 4] = weighted(row, in, part * kPart + i);
    }
    return x;
  }
  device const packed_float4* values = (device const packed_float4*)row.x + part * 8;
  device const packed_float4* weights = (device const packed_float4*)in.norm + part * 8;
  for (uint i = 0; i < 8; ++i) {
    x.q[i] = float4(values[i]);
    if (kNormWeight) {
      x.q[i] *= float4(weights[i]);
    }
  }
  return x;
}

/// Weight rows of one simdgroup: `rows` of them, from `first` on, row_bytes apart.
struct WeightRows {
  device const uchar* first;
  ulong row_bytes;
  uint rows;
};

template <typename F>
static inline void load_part(device const uchar* row, uint part, uint columns, thread Part& p) {
  if (F::kScales == 0 && (part + 1) * kPart > columns) {
    F::load_tail(row, part, columns - part * kPart, p);
  } else {
    F::load(row, part, p);
  }
}

/// Adds this lane's parts of all columns: one batch row. sums: [rows].
template <typename F>
static inline void add_row(WeightRows w, InputRow row, Input in, threadgroup const float4* cache, uint lane,
                           thread float* sums) {
  const uint parts = (in.args->columns + kPart - 1) / kPart;
  for (uint p = lane; p < parts; p += 32) {
    const Quads x = kCachedParts != 0 ? cached_part(cache, p, kCachedParts) : read_part(row, in, p);
    const float2 offsets = sums_of<F>(x);
    for (uint r = 0; r < kRows; ++r) {
      if (r < w.rows) {
        Part part;
        load_part<F>(w.first + r * w.row_bytes, p, in.args->columns, part);
        sums[r] += dot<F>(part, x, offsets);
      }
    }
  }
}

/// Adds this lane's part of the staged columns, part `p` of the row: n of B batch rows. sums: [rows][B].
template <typename F, uint B>
static inline void add_staged(WeightRows w, uint p, uint n, Input in, threadgroup const float4* stage, uint lane,
                              thread float* sums) {
  float2 offsets[B];
  if (F::kOffset) {
    for (uint b = 0; b < B; ++b) {
      if (b < n) {
        const Quads x = cached_part(stage + b * 8 * kStagedParts, lane, kStagedParts);
        offsets[b] = sums_of<F>(x);
      }
    }
  }
  for (uint r = 0; r < kRows; ++r) {
    if (r < w.rows) {
      Part part;
      load_part<F>(w.first + r * w.row_bytes, p, in.args->columns, part);
      for (uint b = 0; b < B; ++b) {
        if (b < n) {
          const Quads x = cached_part(stage + b * 8 * kStagedParts, lane, kStagedParts);
          sums[r * B + b] += dot<F>(part, x, F::kOffset ? offsets[b] : float2(0.0f));
        }
      }
    }
  }
}

/// Lane r · B + b gets the sum of row r and batch row b.
template <uint B>
static inline float totals(thread const float* sums, uint lane) {
  float mine = 0.0f;
  for (uint q = 0; q < (kRows * B + 3) / 4; ++q) {
    const float4 t = simd_sum(float4(sums[4 * q], sums[4 * q + 1], sums[4 * q + 2], sums[4 * q + 3]));
    const float2 pair = lane % 4 < 2 ? float2(t.x, t.y) : float2(t.z, t.w);
    mine = lane / 4 == q ? (lane % 2 == 0 ? pair.x : pair.y) : mine;
  }
  return mine;
}

template <uint B>
kernel void mat_vec(device const uchar* w0 [[buffer(0)]], device const uchar* w1 [[buffer(1)]],
                    device const uchar* w2 [[buffer(2)]], device const uchar* w3 [[buffer(3)]],
                    device const float* in [[buffer(4)]],            // [rows][in_stride]
                    device const float* norm [[buffer(5)]],          // [columns], if kNormWeight
                    device const float* pending_y [[buffer(6)]],     // [rows][y_stride], if kPending or kFlush
                    device const float* pending_norm [[buffer(7)]],  // [width], if kPendingWeight
                    device float* flush_x [[buffer(8)]],             // [rows][x_stride], if kFlush
                    device float* out0 [[buffer(9)]], device float* out1 [[buffer(10)]],
                    device float* out2 [[buffer(11)]], device float* out3 [[buffer(12)]],
                    device const float* bias0 [[buffer(13)]], device const float* bias1 [[buffer(14)]],
                    device const float* bias2 [[buffer(15)]], device const float* bias3 [[buffer(16)]],
                    device const float* add [[buffer(17)]],    // [rows][add_stride], if kAdd or kEndGateOperand
                    device const uint* gather [[buffer(18)]],  // [batch], if kGather
                    constant ProjectArgs& args [[buffer(19)]], threadgroup float* memory [[threadgroup(0)]],
                    uint2 group [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint batch0 = group.y * B;
  const uint n = min(B, args.batch - batch0);
  threadgroup float* partial = B == 1 ? memory + kCachedParts * kPart : memory;

  if (kFlush && group.x == args.flush_tile) {
    for (uint b = 0; b < n; ++b) {
      device const float* y = pending_y + batch_offset(batch0 + b, args.pending.y_stride);
      device float* x = flush_x + batch_offset(batch0 + b, args.pending.x_stride);
      deposit(squares_of(y, args.pending.width, thread_index), partial, lane, simdgroup);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      const float y_inverse = inverse_rms(total(partial), args.pending.width, args.pending.eps);
      for (uint i = thread_index; i < args.pending.width; i += kProjectThreads) {
        x[i] = resolved(x[i], y[i], y_inverse, kPendingWeight ? pending_norm[i] : 1.0f, args.pending);
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    return;
  }

  // ---- the input: rows, what they are multiplied with
  const Input input = {norm, pending_norm, &args};
  InputRow rows[B];
  float inverse[B];
  for (uint b = 0; b < B; ++b) {
    const uint batch = batch0 + min(b, n - 1);
    const uint row = kGather ? gather[batch] : batch;
    rows[b].x = in + batch_offset(row, args.in_stride);
    rows[b].y = pending_y + batch_offset(row, args.pending.y_stride);
    rows[b].y_inverse = 1.0f;
    inverse[b] = 1.0f;
  }
  if (kPending) {
    for (uint b = 0; b < B; ++b) {
      if (b < n) {
        deposit(squares_of(rows[b].y, args.columns, thread_index), partial + b * kProjectSimdgroups, lane, simdgroup);
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint b = 0; b < B; ++b) {
      if (b < n) {
        rows[b].y_inverse = inverse_rms(total(partial + b * kProjectSimdgroups), args.columns, args.pending.eps);
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  const bool cached = B == 1 && kCachedParts != 0;
  if (kNorm || cached) {
    const uint end = cached ? (args.columns + kPart - 1) / kPart * kPart : args.columns;
    for (uint b = 0; b < B; ++b) {
      if (b < n) {
        float share = 0.0f;
        for (uint i = thread_index; i < end; i += kProjectThreads) {
          const float v = i < args.columns ? value(rows[b], input, i) : 0.0f;
          share = fma(v, v, share);
          if (cached) {
            memory[cache_index(i, kCachedParts)] = i < args.columns && kNormWeight ? v * norm[i] : v;
          }
        }
        if (kNorm) {
          deposit(share, partial + b * kProjectSimdgroups, lane, simdgroup);
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (kNorm) {
      for (uint b = 0; b < B; ++b) {
        if (b < n) {
          inverse[b] = inverse_rms(total(partial + b * kProjectSimdgroups), args.columns, args.norm_eps);
        }
      }
    }
  }

  // ---- which rows of which matrix
  uint m = 0;
  uint first_tile = 0;
  if (!is_gate()) {
    while (m + 1 < kMatrices && group.x >= args.matrices[m].end_tile) {
      first_tile = args.matrices[m].end_tile;
      ++m;
    }
  }
  const uint first = ((group.x - first_tile) * kProjectSimdgroups + simdgroup) * kRows;
  const uint matrix_rows = args.matrices[m].rows;
  const uint n_rows = first < matrix_rows ? min(kRows, matrix_rows - first) : 0;

  // ---- products. A gate's second matrix comes after the first, with the input that is already there.
  float results[2];
  for (uint g = 0; g < (is_gate() ? 2 : 1); ++g) {
    const uint at = m + g;
    device const uchar* w = at == 0 ? w0 : at == 1 ? w1 : at == 2 ? w2 : w3;
    const uint format = at == 0 ? kFormat0 : at == 1 ? kFormat1 : at == 2 ? kFormat2 : kFormat3;
    const ulong row_bytes = args.matrices[at].row_bytes;
    const WeightRows weights = {w + row_offset(first, row_bytes), row_bytes, n_rows};
    float sums[Most<B>::kSums];
    for (uint i = 0; i < Most<B>::kSums; ++i) {
      sums[i] = 0.0f;
    }
    if (B == 1) {
      switch (format) {
#define HC_CASE(id, F) \
  case id: add_row<F>(weights, rows[0], input, (threadgroup const float4*)memory, lane, sums); break;
        HC_METAL_FORMATS(HC_CASE)
#undef HC_CASE
      }
    } else {
      const uint parts = (args.columns + kPart - 1) / kPart;
      for (uint part0 = 0; part0 < parts; part0 += kStagedParts) {
        const uint staged = min(uint(kStagedParts), parts - part0);
        threadgroup_barrier(mem_flags::mem_threadgroup);  // the norm's sums, or the columns before, have been read
        for (uint b = 0; b < B; ++b) {
          if (b < n) {
            for (uint i = thread_index; i < staged * kPart; i += kProjectThreads) {
              memory[b * kStagedParts * kPart + cache_index(i, kStagedParts)] =
                  weighted(rows[b], input, part0 * kPart + i);
            }
          }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (lane < staged) {
          switch (format) {
#define HC_CASE(id, F) \
  case id: add_staged<F, B>(weights, part0 + lane, n, input, (threadgroup const float4*)memory, lane, sums); break;
            HC_METAL_FORMATS(HC_CASE)
#undef HC_CASE
          }
        }
      }
    }
    results[g] = totals<B>(sums, lane);
  }

  // ---- endings: one lane per result
  const uint r = lane / B;
  const uint b = lane % B;
  if (r >= n_rows || b >= n) {
    return;
  }
  float factor = 1.0f;
  for (uint i = 0; i < B; ++i) {
    factor = b == i ? inverse[i] : factor;
  }
  const uint row = first + r;
  const uint batch = batch0 + b;
  float y = kNorm ? results[0] * factor : results[0];
  float other = 0.0f;
  if (is_gate()) {
    other = kNorm ? results[1] * factor : results[1];
    if (kBiases >> 1 & 1) {
      other += bias1[row];
    }
  }
  if (kBiases >> m & 1) {
    y += (m == 0 ? bias0 : m == 1 ? bias1 : m == 2 ? bias2 : bias3)[row];
  }
  device float* out = m == 0 ? out0 : m == 1 ? out1 : m == 2 ? out2 : out3;
  finish(y, other, row, out + batch_offset(batch, args.matrices[m].out_stride),
         add + batch_offset(batch, args.add_stride), args);
}

template [[host_name("mat_vec_1")]] kernel decltype(mat_vec<1>) mat_vec<1>;
template [[host_name("mat_vec_2")]] kernel decltype(mat_vec<2>) mat_vec<2>;
template [[host_name("mat_vec_4")]] kernel decltype(mat_vec<4>) mat_vec<4>;
template [[host_name("mat_vec_8")]] kernel decltype(mat_vec<8>) mat_vec<8>;
