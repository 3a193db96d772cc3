#include "mutations.h"

namespace honeycrisp::backend::metal::soft::testing {

const std::vector<Mutation>& project_mutations() {
  static const std::vector<Mutation> all = {
      // ---- mat_vec: barriers
      {"barrier_of_the_norm_deleted", "mat_vec", "threadgroup_barrier(mem_flags::mem_threadgroup);\n    if (kNorm) {",
       1, "if (kNorm) {", Fault::kUninitialised},
      {"barrier_of_the_norm_orders_nothing", "mat_vec", "mem_flags::mem_threadgroup);\n    if (kNorm) {", 1,
       "mem_flags::mem_none);\n    if (kNorm) {", Fault::kThreadgroupRace},
      {"barrier_before_staging_deleted", "mat_vec",
       "threadgroup_barrier(mem_flags::mem_threadgroup);  // the norm's sums", 1, "// the norm's sums",
       Fault::kThreadgroupRace},
      {"barrier_after_staging_deleted", "mat_vec",
       "threadgroup_barrier(mem_flags::mem_threadgroup);\n        if (lane < staged) {", 1, "if (lane < staged) {",
       Fault::kUninitialised},
      {"barrier_of_the_waiting_residual_deleted", "mat_vec",
       "threadgroup_barrier(mem_flags::mem_threadgroup);\n    for (uint b = 0; b < B; ++b) {\n      if (b < n) {\n     "
       "   "
       "rows[b].y_inverse",
       1, "for (uint b = 0; b < B; ++b) {\n      if (b < n) {\n        rows[b].y_inverse", Fault::kUninitialised},
      {"second_barrier_of_the_waiting_residual_deleted", "mat_vec",
       "threadgroup_barrier(mem_flags::mem_threadgroup);\n  }\n  const bool cached", 1, "}\n  const bool cached",
       Fault::kThreadgroupRace},
      {"barrier_after_the_flush_deleted", "mat_vec",
       "threadgroup_barrier(mem_flags::mem_threadgroup);\n    }\n    return;", 1, "}\n    return;",
       Fault::kThreadgroupRace},
      // ---- mat_vec: guards
      {"weight_rows_not_guarded", "mat_vec", "first < matrix_rows ? min(kRows, matrix_rows - first) : 0", 1, "kRows",
       Fault::kOutOfBounds},
      {"results_not_guarded", "mat_vec", "if (r >= n_rows || b >= n) {", 1, "if (b >= n) {", Fault::kOutOfBounds},
      {"batch_not_guarded", "mat_vec", "const uint n = min(B, args.batch - batch0);", 1, "const uint n = B;",
       Fault::kOutOfBounds},
      {"tail_not_guarded", "mat_vec", "F::load_tail(row, part, columns - part * kPart, p);", 1,
       "F::load(row, part, p);", Fault::kOutOfBounds},
      {"input_past_the_end", "mat_vec", "i < args.columns ? value(rows[b], input, i) : 0.0f", 1,
       "value(rows[b], input, i)", Fault::kOutOfBounds},
      {"staged_past_the_end", "mat_vec", "if (i >= in.args->columns) {", 1, "if (i > in.args->columns) {",
       Fault::kOutOfBounds},
      {"lanes_past_what_is_staged", "mat_vec", "if (lane < staged) {", 1, "if (true) {", Fault::kOutOfBounds},
      // ---- mat_vec: indices
      {"weights_of_the_next_row", "mat_vec", "row_offset(first, row_bytes)", 1, "row_offset(first + 1, row_bytes)",
       Fault::kOutOfBounds},
      {"cache_shifted", "mat_vec", "memory[cache_index(i, kCachedParts)]", 1,
       "memory[cache_index(i, kCachedParts) + 1]", Fault::kUninitialised},
      {"all_lanes_deposit", "mat_vec", "if (lane == 0) {\n    partial[simdgroup] = sum;", 1,
       "{\n    partial[simdgroup] = sum;", Fault::kThreadgroupRace},
      {"sums_of_one_simdgroup_missing", "mat_vec", "partial[simdgroup] = sum;", 1, "partial[simdgroup / 2] = sum;",
       Fault::kUninitialised},
      {"two_simdgroups_on_the_same_rows", "mat_vec", "* kProjectSimdgroups + simdgroup) * kRows", 1,
       "* kProjectSimdgroups + simdgroup / 2) * kRows", Fault::kDeviceRace},
      {"two_threadgroups_on_the_same_rows", "mat_vec", "((group.x - first_tile) * kProjectSimdgroups", 1,
       "((group.x - first_tile) / 2 * kProjectSimdgroups", Fault::kGridRace},
      {"every_threadgroup_flushes", "mat_vec", "kFlush && group.x == args.flush_tile", 1, "kFlush", Fault::kGridRace},
      // ---- mat_mul
      {"barrier_after_staging_deleted", "mat_mul",
       "threadgroup_barrier(mem_flags::mem_threadgroup);\n    for (uint plane", 1, "for (uint plane",
       Fault::kUninitialised},
      {"barrier_before_staging_deleted", "mat_mul",
       "threadgroup_barrier(mem_flags::mem_threadgroup);\n  }\n\n  // ---- endings", 1, "}\n\n  // ---- endings",
       Fault::kThreadgroupRace},
      {"barrier_of_the_results_deleted", "mat_mul",
       "threadgroup_barrier(mem_flags::mem_threadgroup);\n  device float* out", 1, "device float* out",
       Fault::kThreadgroupRace},
      {"input_not_guarded", "mat_mul", "batch0 + row < args.batch && part0", 1, "part0", Fault::kOutOfBounds},
      {"columns_not_guarded", "mat_mul", "&& part0 * kPart + column < args.columns", 1, "", Fault::kOutOfBounds},
      {"weights_not_guarded", "mat_mul", "first + my_row < matrix_rows && part < parts", 1, "part < parts",
       Fault::kOutOfBounds},
      {"results_not_guarded", "mat_mul", "row < matrix_rows && batch < args.batch", 1, "batch < args.batch",
       Fault::kOutOfBounds},
      {"plane_misaligned", "mat_mul", "(weights + thread_index * kStride)", 1, "(weights + thread_index * kStride + 1)",
       Fault::kMisaligned},
      {"planes_too_close", "mat_mul", "input = memory + 2 * kPlaneRows * kStride", 1,
       "input = memory + kPlaneRows * kStride", Fault::kThreadgroupRace},
      {"product_of_some_lanes", "mat_mul",
       "simdgroup_multiply_accumulate(sums[g][i][j], left, right[j], sums[g][i][j]);", 1,
       "if (thread_index % 32 < 16) { simdgroup_multiply_accumulate(sums[g][i][j], left, right[j], sums[g][i][j]); }",
       Fault::kSimdDivergence},
      // ---- rows
      {"barrier_of_the_sum_deleted", "rows",
       "deposit(share, partial, lane, simdgroup);\n  threadgroup_barrier(mem_flags::mem_threadgroup);", 1,
       "deposit(share, partial, lane, simdgroup);", Fault::kUninitialised},
      {"barrier_before_the_sum_deleted", "rows", "threadgroup_barrier(mem_flags::mem_threadgroup);  // the sums before",
       1, "// the sums before", Fault::kThreadgroupRace},
      {"row_forgotten", "rows", "x + batch_offset(row, args.in_stride)", 1, "x", Fault::kGridRace},
      {"one_element_too_many", "rows", "i < args.width", 1, "i <= args.width", Fault::kOutOfBounds},
      {"run_past_its_end", "rows", "i < args.run", 1, "i <= args.run", Fault::kOutOfBounds},
  };
  return all;
}

}  // namespace honeycrisp::backend::metal::soft::testing
