// y = W x for the rows of a prompt: one to four matrices of any formats times the same input, by 8x8 matrices of
// floats.
//
// Threads: a threadgroup of 4 simdgroups computes a tile of 64 weight rows and 32 batch rows; each simdgroup 16 weight
// rows of all 32. x counts tiles of weight rows, matrix after matrix; y counts tiles of batch rows.
// Each step of the loop puts two planes of 64 x 32 weights into threadgroup memory, a part per thread, decoded: of one
// matrix the next 64 columns, or of a gate's two matrices the next 32. The input's columns are staged beside them.
// A result is a chain of products in ascending order of columns, whatever tile it lies in: no chunking of a prompt
// changes it. Rows and columns past the end are zeros, and are not stored.
// Threadgroup memory: mat_mul_memory() floats, 27 KiB, or 22.5 KiB of a gate; reused for the tile of results.
// Bytes: weights are read once per 32 batch rows, the input once per 64 weight rows.
#include "endings.h"
#include "formats.h"
#include "project_args.h"

#include <metal_simdgroup_matrix>
#include <metal_stdlib>
using namespace metal;

constant uint kFormat0 [[function_constant(0)]];
constant uint kFormat1 [[function_constant(1)]];
constant uint kFormat2 [[function_constant(2)]];
constant uint kFormat3 [[function_constant(3)]];
constant uint kMatrices [[function_constant(4)]];

constant constexpr uint kPlaneRows = kMatMulRows;
constant constexpr uint kStride = kMatMulStride;
constant constexpr uint kResultStride = kMatMulRows + 4;  // floats from one batch row of the results to the next

/// Decodes part `part` of a weight row into a row of a plane. part: may lie past the end, like the row (null).
template <typename F>
static inline void stage_weights(device const uchar* row, uint part, uint columns, threadgroup float4* plane) {
  Part p;
  if (F::kScales == 0 && (part + 1) * kPart > columns) {
    F::load_tail(row, part, columns - part * kPart, p);
  } else {
    F::load(row, part, p);
  }
  expand<F>(p);
  for (uint i = 0; i < 8; ++i) {
    plane[i] = p.w[i];
  }
}

kernel void mat_mul(device const uchar* w0 [[buffer(0)]], device const uchar* w1 [[buffer(1)]],
                    device const uchar* w2 [[buffer(2)]], device const uchar* w3 [[buffer(3)]],
                    device const float* in [[buffer(4)]],  // [batch][in_stride]: normed
                    device float* out0 [[buffer(9)]], device float* out1 [[buffer(10)]],
                    device float* out2 [[buffer(11)]], device float* out3 [[buffer(12)]],
                    device const float* bias0 [[buffer(13)]], device const float* bias1 [[buffer(14)]],
                    device const float* bias2 [[buffer(15)]], device const float* bias3 [[buffer(16)]],
                    device const float* add [[buffer(17)]],  // [batch][add_stride], if kAdd or kEndGateOperand
                    constant ProjectArgs& args [[buffer(19)]], threadgroup float* memory [[threadgroup(0)]],
                    uint2 group [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
                    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  // ---- which rows of which matrix
  uint m = 0;
  uint first_tile = 0;
  if (!is_gate()) {
    while (m + 1 < kMatrices && group.x >= args.matrices[m].end_tile) {
      first_tile = args.matrices[m].end_tile;
      ++m;
    }
  }
  const uint first = (group.x - first_tile) * kMatMulRows;
  const uint matrix_rows = args.matrices[m].rows;
  const uint batch0 = group.y * kMatMulBatch;
  const uint parts = (args.columns + kPart - 1) / kPart;
  const uint step = is_gate() ? 1 : 2;                           // parts
  threadgroup float* weights = memory;                           // [2][kMatMulRows][kStride]
  threadgroup float* input = memory + 2 * kPlaneRows * kStride;  // [step][kMatMulBatch][kStride]

  // Thread t decodes row t % 64 of plane t / 64.
  const uint my_plane = thread_index / kPlaneRows;
  const uint my_row = thread_index % kPlaneRows;
  const uint my_matrix = is_gate() ? my_plane : m;
  device const uchar* w = my_matrix == 0 ? w0 : my_matrix == 1 ? w1 : my_matrix == 2 ? w2 : w3;
  const uint format = my_matrix == 0 ? kFormat0 : my_matrix == 1 ? kFormat1 : my_matrix == 2 ? kFormat2 : kFormat3;
  device const uchar* my_weights = w + row_offset(first + my_row, args.matrices[my_matrix].row_bytes);
  threadgroup float4* my_place = (threadgroup float4*)(weights + thread_index * kStride);

  // [plane of a gate][batch rows of 8][weight rows of 8]
  simdgroup_float8x8 sums[2][4][2];
  for (uint g = 0; g < 2; ++g) {
    for (uint i = 0; i < 4; ++i) {
      for (uint j = 0; j < 2; ++j) {
        sums[g][i][j] = make_filled_simdgroup_matrix<float, 8>(0.0f);
      }
    }
  }

  for (uint part0 = 0; part0 < parts; part0 += step) {
    const uint part = is_gate() ? part0 : part0 + my_plane;
    if (first + my_row < matrix_rows && part < parts) {
      switch (format) {
#define HC_CASE(id, F) \
  case id: stage_weights<F>(my_weights, part, args.columns, my_place); break;
        HC_METAL_FORMATS(HC_CASE)
#undef HC_CASE
      }
    } else {
      for (uint i = 0; i < 8; ++i) {
        my_place[i] = float4(0.0f);
      }
    }
    for (uint i = thread_index; i < step * kMatMulBatch * kPart; i += kProjectThreads) {
      const uint row = i / (step * kPart);
      const uint column = i % (step * kPart);
      const bool inside = batch0 + row < args.batch && part0 * kPart + column < args.columns;
      input[(column / kPart * kMatMulBatch + row) * kStride + column % kPart] =
          inside ? in[batch_offset(batch0 + row, args.in_stride) + part0 * kPart + column] : 0.0f;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint plane = 0; plane < 2; ++plane) {
      const uint g = is_gate() ? plane : 0;
      threadgroup const float* plane_weights = weights + (plane * kPlaneRows + simdgroup * 16) * kStride;
      threadgroup const float* plane_input = input + (is_gate() ? 0 : plane * kMatMulBatch * kStride);
      for (uint k = 0; k < kPart; k += 8) {
        simdgroup_float8x8 right[2];
        for (uint j = 0; j < 2; ++j) {
          simdgroup_load(right[j], plane_weights + j * 8 * kStride + k, kStride, ulong2(0, 0), true);
        }
        for (uint i = 0; i < 4; ++i) {
          simdgroup_float8x8 left;
          simdgroup_load(left, plane_input + i * 8 * kStride + k, kStride);
          for (uint j = 0; j < 2; ++j) {
            simdgroup_multiply_accumulate(sums[g][i][j], left, right[j], sums[g][i][j]);
          }
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  // ---- endings: the results go through threadgroup memory, so that neighbouring threads store neighbouring rows
  for (uint g = 0; g < (is_gate() ? 2 : 1); ++g) {
    threadgroup float* results = memory + g * kMatMulBatch * kResultStride;
    for (uint i = 0; i < 4; ++i) {
      for (uint j = 0; j < 2; ++j) {
        simdgroup_store(sums[g][i][j], results + i * 8 * kResultStride + simdgroup * 16 + j * 8, kResultStride);
      }
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  device float* out = m == 0 ? out0 : m == 1 ? out1 : m == 2 ? out2 : out3;
  device const float* bias = m == 0 ? bias0 : m == 1 ? bias1 : m == 2 ? bias2 : bias3;
  for (uint i = thread_index; i < kMatMulBatch * kMatMulRows; i += kProjectThreads) {
    const uint row = first + i % kMatMulRows;
    const uint batch = batch0 + i / kMatMulRows;
    if (row < matrix_rows && batch < args.batch) {
      threadgroup const float* result = memory + i / kMatMulRows * kResultStride + i % kMatMulRows;
      float y = result[0];
      if (kBiases >> m & 1) {
        y += bias[row];
      }
      float other = 0.0f;
      if (is_gate()) {
        other = result[kMatMulBatch * kResultStride];
        if (kBiases >> 1 & 1) {
          other += bias1[row];
        }
      }
      finish(y, other, row, out + batch_offset(batch, args.matrices[m].out_stride),
             add + batch_offset(batch, args.add_stride), args);
    }
  }
}
