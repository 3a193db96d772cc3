// The gated delta rule with its short convolution, in two launches. prepare does what rows can do side by side: the
// convolution, its activation and the l2 norms. advance walks the rows of a sequence in order and ends with norm and
// gate. Whether rows come one at a time, in chunks or again from a copied state, the operations of a row and their
// order are the same, and so are the bits.
//
// A state is [heads][key_dim][value_dim] and then the convolution's history [kernel_size − 1][channels], oldest first.
#include <metal_stdlib>
using namespace metal;

#include "delta_net_args.h"  // after MSL's integers

constant uint kKeyHeads [[function_constant(0)]];
constant uint kHeads [[function_constant(1)]];  // value heads
constant uint kKeyDim [[function_constant(2)]];
constant uint kValueDim [[function_constant(3)]];
constant uint kTaps [[function_constant(4)]];  // of the convolution, the row's own input included
constant bool kGroupedHeads [[function_constant(5)]];
constant bool kNormWeight [[function_constant(6)]];

constant uint kKeys = kKeyHeads * kKeyDim;  // channels of q, and of k
constant uint kChannels = 2 * kKeys + kHeads * kValueDim;
constant uint kPast = kTaps - 1;

static inline float sigmoid(float x) { return 1.0f / (1.0f + precise::exp(-x)); }
static inline float silu(float x) { return x * sigmoid(x); }

/// log(1 + exp(x)), exact where exp(x) is small beside 1.
static inline float softplus(float x) {
  if (x > 30.0f) {
    return x;
  }
  const float e = precise::exp(x);
  const float u = 1.0f + e;
  return u == 1.0f ? e : precise::log(u) * (e / (u - 1.0f));
}

static inline device float* state_of(device uchar* states, uint state, constant DeltaNetArgs& args) {
  return (device float*)(states + ulong(state) * args.state_bytes);
}
static inline device float* history_of(device float* state) { return state + kHeads * kKeyDim * kValueDim; }

/// c = silu(convolution) of a row, q and k l2-normed per head. One simdgroup per head of q, k or v and row (x: heads of
/// q, of k, of v). Reads 4 · taps bytes of inputs and as many of weights per channel, writes 4.
kernel void delta_net_prepare(device const float* qkv [[buffer(0)]],   // rows of channels
                              device const float* conv [[buffer(1)]],  // [channels][taps], oldest input first
                              device uchar* states [[buffer(2)]], device const uint* state_ids [[buffer(3)]],  // [rows]
                              device const uint* positions [[buffer(4)]],                                      // [rows]
                              device float* c [[buffer(5)]],  // [rows][channels]
                              constant DeltaNetArgs& args [[buffer(6)]], uint2 group [[threadgroup_position_in_grid]],
                              uint lane [[thread_index_in_simdgroup]]) {
  const uint row = group.y;
  const bool is_value = group.x >= 2 * kKeyHeads;
  const uint dim = is_value ? kValueDim : kKeyDim;
  const uint first = is_value ? 2 * kKeys + (group.x - 2 * kKeyHeads) * kValueDim : group.x * kKeyDim;
  // Rows of this sequence that lie before this one in the batch: as many as the convolution looks back, or fewer.
  uint before = 0;
  while (before < kPast && before < row && state_ids[row - before - 1] == state_ids[row] &&
         positions[row - before - 1] + before + 1 == positions[row]) {
    ++before;
  }
  const bool begins = positions[row - before] == 0;  // what came before is zeros
  device const float* history = history_of(state_of(states, state_ids[row], args));

  device float* to = c + ulong(row) * kChannels + first;
  float squares = 0.0f;
  for (uint d = lane; d < dim; d += 32) {
    const uint channel = first + d;
    device const float* taps = conv + channel * kTaps;
    float sum = 0.0f;
    for (uint t = 0; t < kTaps; ++t) {
      const uint ago = kPast - t;
      float x = 0.0f;
      if (ago <= before) {
        x = qkv[ulong(row - ago) * args.qkv_stride + channel];
      } else if (!begins) {
        x = history[(t + before) * kChannels + channel];
      }
      sum = fma(taps[t], x, sum);
    }
    const float v = silu(sum);
    squares = fma(v, v, squares);
    to[d] = v;
  }
  if (is_value) {
    return;
  }
  const float scale = group.x < kKeyHeads ? 1.0f / precise::sqrt(float(kKeyDim)) : 1.0f;  // of q alone
  const float factor = scale / precise::sqrt(simd_sum(squares) + args.l2_eps);
  for (uint d = lane; d < dim; d += 32) {  // what this lane has written
    to[d] *= factor;
  }
}

/// The recurrence of the rows of a run, in order. Threadgroup (x, y): x < heads: a value head of run y; a thread has a
/// value column, whose part of the matrix nobody else touches. x = heads: the threadgroup brings the run's history up
/// to date. Reads the head's matrix twice (the second time from a cache), writes it once; 12 bytes per row and column.
/// Threads: value_dim, rounded up to whole simdgroups. Threadgroup memory: 256 bytes, sums of two rows in turn.
kernel void delta_net_advance(device const float* qkv [[buffer(0)]],
                              device const float* c [[buffer(1)]],  // of delta_net_prepare
                              device uchar* states [[buffer(2)]], device const uint* state_ids [[buffer(3)]],
                              device const uint* positions [[buffer(4)]],
                              device const float* z [[buffer(5)]],        // rows of [heads][value_dim]
                              device const float* alpha [[buffer(6)]],    // rows of gates
                              device const float* beta [[buffer(7)]],     // rows of gates
                              device const float* a [[buffer(8)]],        // [heads]
                              device const float* dt_bias [[buffer(9)]],  // [heads]
                              device const float* norm [[buffer(10), function_constant(kNormWeight)]],  // [value_dim]
                              device float* out [[buffer(11)]],  // rows of [heads][value_dim]
                              constant DeltaNetArgs& args [[buffer(12)]], uint2 group [[threadgroup_position_in_grid]],
                              uint2 thread_position [[thread_position_in_threadgroup]],
                              uint2 threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                              uint simdgroup [[simdgroup_index_in_threadgroup]],
                              uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float sums[2][32];
  const uint first_row = args.runs[group.y].first_row;
  const uint n_rows = args.runs[group.y].n_rows;
  const bool begins = positions[first_row] == 0;
  device float* state = state_of(states, state_ids[first_row], args);
  const uint thread_index = thread_position.x;

  if (group.x == kHeads) {
    device float* history = history_of(state);
    for (uint channel = thread_index; channel < kChannels; channel += threads.x) {
      for (uint slot = 0; slot < kPast; ++slot) {
        const uint ago = kPast - slot;  // rows back from the one after the run's last
        float x = 0.0f;
        if (ago <= n_rows) {
          x = qkv[ulong(first_row + n_rows - ago) * args.qkv_stride + channel];
        } else if (!begins) {
          x = history[(slot + n_rows) * kChannels + channel];  // not yet overwritten: slots ascend
        }
        history[slot * kChannels + channel] = x;
      }
    }
    return;
  }

  const uint head = group.x;
  const uint key_head = kGroupedHeads ? head / (kHeads / kKeyHeads) : head % kKeyHeads;
  const uint gate = head / args.gate_run * args.gate_stride + head % args.gate_run;
  const bool has_column = thread_index < kValueDim;
  const uint column = has_column ? thread_index : 0;
  device float* matrix = state + head * kKeyDim * kValueDim + column;  // a row every value_dim

  for (uint i = 0; i < n_rows; ++i) {
    const uint row = first_row + i;
    device const float* q = c + ulong(row) * kChannels + key_head * kKeyDim;
    device const float* k = q + kKeys;
    const float v = c[ulong(row) * kChannels + 2 * kKeys + head * kValueDim + column];
    const float step = softplus(alpha[ulong(row) * args.alpha_stride + gate] + dt_bias[head]);
    const float decay = precise::exp(a[head] * step);
    const float rate = sigmoid(beta[ulong(row) * args.beta_stride + gate]);
    const bool empty = begins && i == 0;

    float o = 0.0f;
    if (has_column) {
      float4 known = float4(0.0f);  // four chains
      if (!empty) {
        for (uint d = 0; d < kKeyDim; d += 4) {
          for (uint u = 0; u < 4; ++u) {
            if (d + u < kKeyDim) {
              known[u] = fma(k[d + u], matrix[(d + u) * kValueDim] * decay, known[u]);
            }
          }
        }
      }
      const float fresh = rate * (v - ((known.x + known.z) + (known.y + known.w)));
      float4 sum = float4(0.0f);
      for (uint d = 0; d < kKeyDim; d += 4) {
        for (uint u = 0; u < 4; ++u) {
          if (d + u < kKeyDim) {
            const float old = empty ? 0.0f : matrix[(d + u) * kValueDim] * decay;
            const float s = fma(k[d + u], fresh, old);
            matrix[(d + u) * kValueDim] = s;
            sum[u] = fma(q[d + u], s, sum[u]);
          }
        }
      }
      o = (sum.x + sum.z) + (sum.y + sum.w);
    }

    // out = rms_norm(o) · silu(z)
    const float squares = simd_sum(o * o);
    if (lane == 0) {
      sums[i % 2][simdgroup] = squares;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float total = 0.0f;
    for (uint s = 0; s < simdgroups; ++s) {
      total += sums[i % 2][s];
    }
    if (has_column) {
      float y = o / precise::sqrt(total / float(kValueDim) + args.norm_eps);
      if (kNormWeight) {
        y *= norm[column];
      }
      const uint at = head * kValueDim + column;
      out[ulong(row) * args.out_stride + at] = y * silu(z[ulong(row) * args.z_stride + at]);
    }
  }
}
