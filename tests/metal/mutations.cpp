#include "mutations.h"

namespace honeycrisp::backend::metal::soft::testing {

const std::vector<Mutation>& mutations() {
  static constexpr const char* kBarrier = "threadgroup_barrier(mem_flags::mem_threadgroup);";
  static const std::vector<Mutation> all = {
      {"barrier_deleted", "q4_0_mat_vec", kBarrier, 1, "", Fault::kUninitialised},
      {"barrier_orders_nothing", "q4_0_mat_vec", "mem_flags::mem_threadgroup", 1, "mem_flags::mem_none",
       Fault::kThreadgroupRace},
      {"barrier_of_simdgroup_only", "q4_0_mat_vec", "threadgroup_barrier(", 1, "simdgroup_barrier(",
       Fault::kThreadgroupRace},
      {"cache_not_filled", "q4_0_mat_vec", "i < args.columns;", 1, "i + 1 < args.columns;", Fault::kUninitialised},
      {"cache_shifted", "q4_0_mat_vec", "cache[i] = x[i]", 1, "cache[i + 1] = x[i]", Fault::kOutOfBounds},
      {"input_shifted", "q4_0_mat_vec", "cache[i] = x[i]", 1, "cache[i] = x[i + 1]", Fault::kOutOfBounds},
      {"weights_not_guarded", "q4_0_mat_vec", "if (first + r < args.rows) {", 1, "if (true) {", Fault::kOutOfBounds},
      {"output_not_guarded", "q4_0_mat_vec", "lane == 0 && first + r < args.rows", 1, "lane == 0", Fault::kOutOfBounds},
      {"all_lanes_write", "q4_0_mat_vec", "lane == 0 && first + r < args.rows", 1, "first + r < args.rows",
       Fault::kDeviceRace},
      {"sum_in_two_branches", "q4_0_mat_vec", "float total = simd_sum(sums[r]);", 1,
       "float total = 0.0f; if (lane < 16) { total = simd_sum(sums[r]); } else { total = simd_sum(sums[r]); }",
       Fault::kSimdDivergence},
      {"two_threadgroups_on_the_same_rows", "q4_0_mat_vec", "(group * simdgroups", 1, "(group / 2 * simdgroups",
       Fault::kGridRace},
      {"sums_too_few", "q4_0_mat_vec", "float sums[kMaxRows]", 1, "float sums[4]", Fault::kBadIndex},
      {"bias_always", "q4_0_mat_vec", "if (kHasBias) {", 1, "if (true) {", Fault::kOutOfBounds},
      {"cache_misaligned", "q4_0_mat_vec", "(cache + b * 32)", 1, "(cache + b * 32 + 1)", Fault::kMisaligned},

      {"barrier_deleted", "attend_decode", kBarrier, 1, "", Fault::kUninitialised},
      {"barrier_for_one_simdgroup", "attend_decode", kBarrier, 1,
       "if (simdgroup == 0) { threadgroup_barrier(mem_flags::mem_threadgroup); }", Fault::kBarrierMissed},
      {"lane_ends_before_the_barrier", "attend_decode", "const uint kv_head =", 1,
       "if (lane == 31) { return; } const uint kv_head =", Fault::kBarrierMissed},
      {"two_barriers_for_one", "attend_decode", kBarrier, 1,
       "if (simdgroup == 0) { threadgroup_barrier(mem_flags::mem_threadgroup); } else { "
       "threadgroup_barrier(mem_flags::mem_threadgroup); }",
       Fault::kBarrierDivergence},
      {"query_shifted", "attend_decode", "lane * kPart + i] * args.scale", 1, "lane * kPart + i + 1] * args.scale",
       Fault::kOutOfBounds},
      {"two_heads_on_one_output", "attend_decode", "out[head * D", 1, "out[head / 2 * D", Fault::kGridRace},
      {"partial_shifted", "attend_decode", "partial[simdgroup][lane * kPart + i]", 1,
       "partial[simdgroup][lane * kPart + i + 1]", Fault::kBadIndex},
      {"all_simdgroups_merge", "attend_decode", "if (simdgroup == 0) {", 1, "if (true) {", Fault::kDeviceRace},
      {"one_position_too_many", "attend_decode", "p < args.positions", 1, "p <= args.positions", Fault::kOutOfBounds},
      {"maxima_of_absent_simdgroups", "attend_decode", "lane < simdgroups ? maxima[lane]", 1, "true ? maxima[lane]",
       Fault::kBadIndex},
      {"all_lanes_write_the_maximum", "attend_decode", "if (lane == 0) {", 1, "{", Fault::kThreadgroupRace},

      {"barrier_deleted", "rms_norm", kBarrier, 1, "", Fault::kUninitialised},
      {"all_lanes_write_the_sum", "rms_norm", "if (lane == 0) {", 1, "{", Fault::kThreadgroupRace},
      {"one_sum_too_many", "rms_norm", "lane < simdgroups ?", 1, "lane <= simdgroups ?", Fault::kUninitialised},
      {"past_the_view", "rms_norm", "y[row * args.width + i] =", 1,
       "y[row * args.width + i + 1] =", Fault::kOutOfBounds},
      {"before_the_view", "rms_norm", "y[row * args.width + i] =", 1,
       "y[row * args.width + i - 1] =", Fault::kOutOfBounds},
      {"row_forgotten", "rms_norm", "y[row * args.width + i] =", 1, "y[i] =", Fault::kGridRace},
      {"sums_too_few", "rms_norm", "threadgroup float sums[32];", 1, "threadgroup float sums[1];", Fault::kBadIndex},
      {"tail_not_guarded", "rms_norm", "if (i < count) {", 1, "if (true) {", Fault::kOutOfBounds},
      {"simd_sum_of_some_lanes", "rms_norm", "squares = simd_sum(squares);", 1,
       "if (lane < 16) { squares = simd_sum(squares); }", Fault::kSimdDivergence},

      {"first_barrier_deleted", "histogram", kBarrier, 1, "", Fault::kUninitialised},
      // atomics on both sides: no race, but too early
      {"second_barrier_deleted", "histogram", kBarrier, 2, "", std::nullopt},
      {"not_atomic", "histogram",
       "atomic_fetch_add_explicit(&local_counts[values[i] % kClasses], 1u, memory_order_relaxed);", 1,
       "((threadgroup uint*)local_counts)[values[i] % kClasses] += 1u;", Fault::kThreadgroupRace},
      {"device_counts_not_atomic", "histogram",
       "atomic_fetch_add_explicit(&counts[thread_index], n, memory_order_relaxed);", 1,
       "((device uint*)counts)[thread_index] += n;", Fault::kGridRace},
      {"one_class_too_many", "histogram", "values[i] % kClasses", 1, "values[i] % (kClasses + 1)", Fault::kOutOfBounds},
      {"tail_not_guarded", "histogram", "if (i < count) {", 1, "{", Fault::kOutOfBounds},
      {"barrier_of_other_memory", "prefix_sum", "mem_flags::mem_device", 1, "mem_flags::mem_threadgroup",
       Fault::kDeviceRace},
      {"two_lanes_write_the_total", "prefix_sum", "if (lane == 31) {", 1, "if (lane >= 30) {", Fault::kDeviceRace},

      {"first_barrier_deleted", "gemm", kBarrier, 1, "", Fault::kUninitialised},
      {"second_barrier_deleted", "gemm", kBarrier, 2, "", Fault::kThreadgroupRace},
      {"third_barrier_deleted", "gemm", kBarrier, 3, "", Fault::kUninitialised},
      {"tile_read_shifted", "gemm", "&tile_a[quarter_row][k]", 1, "&tile_a[quarter_row + 1][k]", Fault::kOutOfBounds},
      {"input_not_guarded", "gemm", "in_a ?", 1, "true ?", Fault::kOutOfBounds},
      {"output_column_not_guarded", "gemm", "row < args.m && column < args.n", 1, "row < args.m", Fault::kOutOfBounds},
      {"two_simdgroups_on_one_quarter", "gemm", "simdgroup % 2 * 8", 1, "simdgroup % 1 * 8", Fault::kThreadgroupRace},
      {"tile_too_small", "gemm", "threadgroup float tile_c[kTile][kTile];", 1,
       "threadgroup float tile_c[kTile][kTile - 8];", Fault::kOutOfBounds},
      {"memory_exceeded", "gemm", "threadgroup float tile_c[kTile][kTile];", 1,
       "threadgroup float tile_c[kTile * 32][kTile];", Fault::kThreadgroupMemory},
      {"matrices_of_some_lanes", "gemm", "simdgroup_multiply_accumulate(sum, left, right, sum);", 1,
       "if (thread_index % 32 < 16) { simdgroup_multiply_accumulate(sum, left, right, sum); }", Fault::kSimdDivergence},
  };
  return all;
}

}  // namespace honeycrisp::backend::metal::soft::testing
