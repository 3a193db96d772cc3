// What of MixExperts is no matrix: the choice of experts from the router's scores, the order that brings pairs with the
// same expert together, and the sum of the experts' results with norms and the residual.
#include "endings.h"
#include "experts_args.h"
#include "offsets.h"
#include "row_norm.h"

#include <metal_stdlib>
using namespace metal;

constant bool kExpertScale [[function_constant(20)]];
constant bool kShared [[function_constant(21)]];
constant bool kSharedScale [[function_constant(22)]];
constant bool kBranchNorm [[function_constant(23)]];
constant bool kBranchWeight [[function_constant(24)]];
constant bool kAddBranch [[function_constant(25)]];
constant bool kPostNorm [[function_constant(26)]];
constant bool kPostWeight [[function_constant(27)]];

/// A score that is no number ranks last.
static inline float rank_of(float score) { return isnan(score) ? -INFINITY : score; }

/// The top_k best experts of each row, best first, ties to the lowest index, and their weights. One simdgroup per row:
/// each round finds the best of those that come after the last one chosen. Reads 4 top_k bytes per expert.
kernel void mix_experts_choose(device const float* scores [[buffer(0)]],  // [rows][experts]
                               device const float* scale [[buffer(1), function_constant(kExpertScale)]],  // [experts]
                               device uint* experts [[buffer(2)]],   // [rows][top_k]
                               device float* weights [[buffer(3)]],  // [rows][top_k]
                               constant ChooseArgs& args [[buffer(4)]], uint row [[threadgroup_position_in_grid]],
                               uint lane [[thread_index_in_simdgroup]]) {
  scores += batch_offset(row, args.n_experts);
  experts += batch_offset(row, args.top_k);
  weights += batch_offset(row, args.top_k);
  float last = INFINITY;  // the rank chosen last, and its index
  uint last_index = 0;
  float best_score = 0.0f;
  float sum = 0.0f;
  for (uint i = 0; i < args.top_k; ++i) {
    float best = -INFINITY;
    uint index = UINT_MAX;
    for (uint e = lane; e < args.n_experts; e += 32) {
      const float rank = rank_of(scores[e]);
      const bool is_left = i == 0 || rank < last || (rank == last && e > last_index);
      if (is_left && (rank > best || index == UINT_MAX)) {
        best = rank;
        index = e;
      }
    }
    last = simd_max(best);
    last_index = simd_min(best == last ? index : UINT_MAX);
    const float score = scores[last_index];
    best_score = i == 0 ? score : best_score;
    const float weight = precise::exp(score - best_score);
    sum += weight;
    if (lane == 0) {
      experts[i] = last_index;
      weights[i] = weight;
    }
  }
  if (args.among_all != 0) {
    sum = 0.0f;
    for (uint e = lane; e < args.n_experts; e += 32) {
      sum += precise::exp(scores[e] - best_score);
    }
    sum = simd_sum(sum);
  }
  if (lane == 0) {
    for (uint i = 0; i < args.top_k; ++i) {
      weights[i] = kExpertScale ? weights[i] / sum * scale[experts[i]] : weights[i] / sum;
    }
  }
}

/// Pairs by expert, within an expert as they come: a stable counting sort. One simdgroup per expert, which reads all
/// pairs' experts twice (4 bytes each) and writes its own pairs.
kernel void mix_experts_group(device const uint* experts [[buffer(0)]],  // [pairs]
                              device uint* order [[buffer(1)]],          // [pairs]
                              constant uint& n_pairs [[buffer(2)]], uint expert [[threadgroup_position_in_grid]],
                              uint lane [[thread_index_in_simdgroup]]) {
  uint before = 0;
  for (uint p = lane; p < n_pairs; p += 32) {
    before += experts[p] < expert ? 1 : 0;
  }
  uint at = simd_sum(before);
  for (uint first = 0; first < n_pairs; first += 32) {
    const uint p = first + lane;
    const uint mine = p < n_pairs && experts[p] == expert ? 1 : 0;
    const uint place = at + simd_prefix_exclusive_sum(mine);
    if (mine != 0) {
      order[place] = p;
    }
    at += simd_sum(mine);
  }
}

/// x = residual_scale · (x + branch_scale · norm(add + norm(Σ weight · y + shared))), every norm optional. A
/// threadgroup of kProjectThreads threads per row; a thread keeps its elements of the branch in the place of the first
/// expert's y. Bytes per element: 4 for each expert and addend, 8 for x, 4 more written (8 for each norm).
kernel void mix_experts_sum(device float* y [[buffer(0)]],              // [rows][top_k][width]
                            device const float* weights [[buffer(1)]],  // [rows][top_k]
                            device const float* shared [[buffer(2), function_constant(kShared)]],  // [rows][width]
                            device const float* shared_scale [[buffer(3), function_constant(kSharedScale)]],  // [rows]
                            device const float* branch_weight [[buffer(4), function_constant(kBranchWeight)]],
                            device const float* add [[buffer(5), function_constant(kAddBranch)]],
                            device const float* post_weight [[buffer(6), function_constant(kPostWeight)]],
                            device float* x [[buffer(7)]], constant MixArgs& args [[buffer(8)]],
                            uint row [[threadgroup_position_in_grid]],
                            uint thread_index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                            uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float branch_sums[kProjectSimdgroups];
  threadgroup float post_sums[kProjectSimdgroups];
  const ulong first_pair = batch_offset(row, args.top_k);
  device float* branch = y + first_pair * args.width;
  weights += first_pair;
  const float share = kSharedScale ? sigmoid(shared_scale[row]) : 1.0f;

  float squares = 0.0f;
  for (uint i = thread_index; i < args.width; i += kProjectThreads) {
    float v = 0.0f;
    for (uint k = 0; k < args.top_k; ++k) {
      v = fma(weights[k], branch[ulong(k) * args.width + i], v);
    }
    if (kShared) {
      v = fma(share, shared[batch_offset(row, args.width) + i], v);
    }
    squares = fma(v, v, squares);
    branch[i] = v;
  }
  float inverse = 1.0f;
  if (kBranchNorm) {
    deposit(squares, branch_sums, lane, simdgroup);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    inverse = inverse_rms(total(branch_sums), args.width, args.branch_eps);
  }
  squares = 0.0f;
  for (uint i = thread_index; i < args.width; i += kProjectThreads) {
    float v = branch[i];
    if (kBranchNorm) {
      v *= inverse;
      v = kBranchWeight ? v * branch_weight[i] : v;
    }
    if (kAddBranch) {
      v += add[batch_offset(row, args.add_stride) + i];
    }
    squares = fma(v, v, squares);
    branch[i] = v;
  }
  inverse = 1.0f;
  if (kPostNorm) {
    deposit(squares, post_sums, lane, simdgroup);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    inverse = inverse_rms(total(post_sums), args.width, args.post_eps);
  }
  device float* row_x = x + batch_offset(row, args.x_stride);
  for (uint i = thread_index; i < args.width; i += kProjectThreads) {
    float v = branch[i];
    if (kPostNorm) {
      v *= inverse;
      v = kPostWeight ? v * post_weight[i] : v;
    }
    row_x[i] = args.residual_scale * fma(args.branch_scale, v, row_x[i]);
  }
}
