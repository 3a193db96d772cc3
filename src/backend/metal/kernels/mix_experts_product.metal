// Matrices of the chosen experts times the inputs of their rows: hidden = unit(gate · x, up · x), or y = down · hidden,
// biases included, for every pair of a row and one of its experts. Which experts is read on the device.
//
// Threads: a threadgroup is 4 simdgroups, each of which computes a few weight rows; lane l takes parts l, l + 32, ...
// of a row (32 elements each), and simd_sum adds the lanes. The order of additions depends on the columns alone, so a
// pair's bits are the same with any pairs beside it.
//   B = 1: y counts pairs.
//   B = 8: y counts tiles of eight in `order`, where pairs of an expert are neighbours: a run of pairs with the same
//   expert decodes each weight once.
// Bytes per weight row and run of pairs: its own (both matrices' for a gate); 4 B written per pair.
// Threadgroup memory: none.
#include "endings.h"
#include "experts_args.h"
#include "formats.h"

#include <metal_stdlib>
using namespace metal;

constant uint kFormat0 [[function_constant(0)]];
constant uint kFormat1 [[function_constant(1)]];
constant bool kIsGate [[function_constant(20)]];
constant bool kBias0 [[function_constant(21)]];
constant bool kBias1 [[function_constant(22)]];
constant bool kGrouped [[function_constant(23)]];

template <uint B>
struct Tile {
  enum : uint { kRows = B == 1 ? HC_EXPERT_ROWS : HC_EXPERT_TILE_ROWS };
};

static inline Quads input_part(device const float* x, uint part, uint columns) {
  Quads q;
  if ((part + 1) * kPart > columns) {
    for (uint i = 0; i < kPart; ++i) {
      q.q[i / 4][i % 4] = part * kPart + i < columns ? x[part * kPart + i] : 0.0f;
    }
    return q;
  }
  device const packed_float4* values = (device const packed_float4*)x + part * (kPart / 4);
  for (uint i = 0; i < kPart / 4; ++i) {
    q.q[i] = float4(values[i]);
  }
  return q;
}

/// This lane's share of `n_rows` weight rows times n inputs; sums: [rows][B].
template <typename F, uint B>
static inline void accumulate(device const uchar* first, ulong row_bytes, uint n_rows, device const float* in,
                              uint in_stride, thread const uint* inputs, uint n, uint columns, uint lane,
                              thread float* sums) {
  const uint parts = (columns + kPart - 1) / kPart;
  for (uint p = lane; p < parts; p += 32) {
    for (uint r = 0; r < n_rows; ++r) {
      device const uchar* row = first + r * row_bytes;
      Part part;
      if (F::kScales == 0 && (p + 1) * kPart > columns) {
        F::load_tail(row, p, columns - p * kPart, part);
      } else {
        F::load(row, p, part);
      }
      for (uint b = 0; b < n; ++b) {
        const Quads x = input_part(in + batch_offset(inputs[b], in_stride), p, columns);
        sums[r * B + b] += dot<F>(part, x, sums_of<F>(x));
      }
    }
  }
}
template <uint B>
static inline void accumulate_of(uint format, device const uchar* first, ulong row_bytes, uint n_rows,
                                 device const float* in, uint in_stride, thread const uint* inputs, uint n,
                                 uint columns, uint lane, thread float* sums) {
  switch (format) {
#define HC_CASE(id, F) \
  case id: accumulate<F, B>(first, row_bytes, n_rows, in, in_stride, inputs, n, columns, lane, sums); break;
    HC_METAL_FORMATS(HC_CASE)
#undef HC_CASE
  }
}

template <uint B>
kernel void mix_experts_product(device const uchar* w0 [[buffer(0)]],  // [experts][rows]: gate, or down
                                device const uchar* w1 [[buffer(1), function_constant(kIsGate)]],  // up
                                device const float* in [[buffer(2)]],      // [rows or pairs][in_stride]
                                device float* out [[buffer(3)]],           // [pairs][rows]
                                device const uint* experts [[buffer(4)]],  // [pairs]
                                device const uint* order [[buffer(5), function_constant(kGrouped)]],  // [pairs]
                                device const float* bias0 [[buffer(6), function_constant(kBias0)]],   // [experts][rows]
                                device const float* bias1 [[buffer(7), function_constant(kBias1)]],
                                constant ExpertsArgs& args [[buffer(8)]], uint2 group [[threadgroup_position_in_grid]],
                                uint lane [[thread_index_in_simdgroup]],
                                uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  constexpr uint kRows = Tile<B>::kRows;
  const uint row0 = (group.x * HC_EXPERT_SIMDGROUPS + simdgroup) * kRows;
  if (row0 >= args.rows) {
    return;
  }
  const uint n_rows = min(kRows, args.rows - row0);
  const uint end = min((group.y + 1) * B, args.n_pairs);
  uint n = 1;
  for (uint i = group.y * B; i < end; i += n) {
    uint pairs[B];
    uint inputs[B];
    pairs[0] = kGrouped ? order[i] : i;
    const uint expert = experts[pairs[0]];
    for (n = 1; i + n < end; ++n) {
      const uint pair = kGrouped ? order[i + n] : i + n;
      if (experts[pair] != expert) {
        break;
      }
      pairs[n] = pair;
    }
    for (uint b = 0; b < n; ++b) {
      inputs[b] = kIsGate ? pairs[b] / args.top_k : pairs[b];
    }

    float sums0[kRows * B];
    float sums1[kRows * B];
    for (uint s = 0; s < kRows * B; ++s) {
      sums0[s] = 0.0f;
      sums1[s] = 0.0f;
    }
    const ulong row_bytes0 = args.matrices[0].row_bytes;
    device const uchar* first0 = w0 + expert * args.matrices[0].slice_bytes + row_offset(row0, row_bytes0);
    accumulate_of<B>(kFormat0, first0, row_bytes0, n_rows, in, args.in_stride, inputs, n, args.columns, lane, sums0);
    if (kIsGate) {
      const ulong row_bytes1 = args.matrices[1].row_bytes;
      device const uchar* first1 = w1 + expert * args.matrices[1].slice_bytes + row_offset(row0, row_bytes1);
      accumulate_of<B>(kFormat1, first1, row_bytes1, n_rows, in, args.in_stride, inputs, n, args.columns, lane, sums1);
    }
    for (uint r = 0; r < n_rows; ++r) {
      const ulong bias = batch_offset(expert, args.rows) + row0 + r;
      for (uint b = 0; b < n; ++b) {
        float y = simd_sum(sums0[r * B + b]);
        float up = kIsGate ? simd_sum(sums1[r * B + b]) : 0.0f;
        if (lane == 0) {
          if (kBias0) {
            y += bias0[bias];
          }
          if (kBias1) {
            up += bias1[bias];
          }
          out[batch_offset(pairs[b], args.rows) + row0 + r] = kIsGate ? gated(y, up) : y;
        }
      }
    }
  }
}

template [[host_name("mix_experts_product_1")]] kernel decltype(mix_experts_product<1>) mix_experts_product<1>;
template [[host_name(
    "mix_experts_product_8")]] kernel decltype(mix_experts_product<HC_EXPERT_TILE>) mix_experts_product<HC_EXPERT_TILE>;
