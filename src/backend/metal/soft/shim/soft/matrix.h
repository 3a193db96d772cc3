// simdgroup_matrix: 8x8 elements spread over the lanes, two neighbours of a row each (Apple's layout is opaque, so is
// this). Products are accumulated in float, k ascending, one fma each, and rounded once at the end.
#pragma once
#include "simd.h"

namespace metal {

template <class T, int Columns, int Rows = Columns>
struct simdgroup_matrix {
  static_assert(Columns == 8 && Rows == 8, "simdgroup_matrix is 8x8");
  static_assert(floating<T>, "simdgroup_matrix of float, half or bfloat");
  simdgroup_matrix() = default;
  SOFT_INLINE explicit simdgroup_matrix(T diagonal) {
    const uint lane = soft_detail::current_group()->simd->lane;
    for (uint i = 0; i < 2; ++i) soft_elements[i] = lane / 4 == lane % 4 * 2 + i ? diagonal : T(0.0f);
  }
  T soft_elements[2];
};
using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;
using simdgroup_half8x8 = simdgroup_matrix<half, 8, 8>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat, 8, 8>;

template <class T, int Columns, int Rows = Columns>
SOFT_INLINE simdgroup_matrix<T, Columns, Rows> make_filled_simdgroup_matrix(T v) {
  simdgroup_matrix<T, Columns, Rows> m;
  m.soft_elements[0] = m.soft_elements[1] = v;
  return m;
}

namespace soft_detail {
/// Offset of element i (0, 1) of this lane. `origin` is (column, row).
SOFT_INLINE ulong element_offset(uint i, ulong row_stride, ulong2 origin, bool transpose) {
  const uint lane = current_group()->simd->lane;
  ulong row = lane / 4, column = lane % 4 * 2 + i;
  if (transpose) {
    const ulong t = row;
    row = column;
    column = t;
  }
  return (origin.y + row) * row_stride + origin.x + column;
}
}  // namespace soft_detail

// All lanes must arrive together, as at any function of the simdgroup; only then is the access theirs.
template <class T, class P>
  requires std::is_same_v<std::remove_const_t<P>, T>
SOFT_INLINE void simdgroup_load(simdgroup_matrix<T, 8>& m, P* source, ulong elements_per_row = 8,
                                ulong2 origin = ulong2(0ul), bool transpose = false, soft_detail::site at = {}) {
#ifdef SOFT_CHECKED
  soft_detail::meet(0u, at.id, [](uint*, uint, uint*) {});
#endif
  for (uint i = 0; i < 2; ++i)
    m.soft_elements[i] = source[soft_detail::element_offset(i, elements_per_row, origin, transpose)];
}
template <class T>
SOFT_INLINE void simdgroup_store(const simdgroup_matrix<T, 8>& m, T* destination, ulong elements_per_row = 8,
                                 ulong2 origin = ulong2(0ul), bool transpose = false, soft_detail::site at = {}) {
#ifdef SOFT_CHECKED
  soft_detail::meet(0u, at.id, [](uint*, uint, uint*) {});
#endif
  for (uint i = 0; i < 2; ++i)
    destination[soft_detail::element_offset(i, elements_per_row, origin, transpose)] = m.soft_elements[i];
}

/// d = a b + c. The last lane to arrive multiplies for all; lanes of one product must all be active.
template <class D, class A, class B, class C>
SOFT_INLINE void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8>& d, const simdgroup_matrix<A, 8>& a,
                                               const simdgroup_matrix<B, 8>& b, const simdgroup_matrix<C, 8>& c,
                                               soft_detail::site at = {}) {
  struct elements {
    float a[2], b[2], c[2];
  };
  const elements mine = {{float(a.soft_elements[0]), float(a.soft_elements[1])},
                         {float(b.soft_elements[0]), float(b.soft_elements[1])},
                         {float(c.soft_elements[0]), float(c.soft_elements[1])}};
  const auto done = soft_detail::meet(mine, at.id, [&](elements* all, uint active, elements*) {
    if (active != ~0u) [[unlikely]]
      soft_detail::current_group()->runtime.inactive_lane(soft_detail::current_group(), uint(__builtin_ctz(~active)),
                                                          at.id);
    float left[8][8], right[8][8], sum[8][8];
    for (uint i = 0; i < 32; ++i)
      for (uint j = 0; j < 2; ++j) {
        left[i / 4][i % 4 * 2 + j] = all[i].a[j];
        right[i / 4][i % 4 * 2 + j] = all[i].b[j];
        sum[i / 4][i % 4 * 2 + j] = all[i].c[j];
      }
    for (uint row = 0; row < 8; ++row)
      for (uint k = 0; k < 8; ++k)
        for (uint column = 0; column < 8; ++column)
          sum[row][column] = __builtin_fmaf(left[row][k], right[k][column], sum[row][column]);
    for (uint i = 0; i < 32; ++i)
      for (uint j = 0; j < 2; ++j) all[i].c[j] = sum[i / 4][i % 4 * 2 + j];
  });
  for (uint i = 0; i < 2; ++i) d.soft_elements[i] = D(done.values[done.lane].c[i]);
}
template <class D, class A, class B>
SOFT_INLINE void simdgroup_multiply(simdgroup_matrix<D, 8>& d, const simdgroup_matrix<A, 8>& a,
                                    const simdgroup_matrix<B, 8>& b, soft_detail::site at = {}) {
  simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8>(D(0.0f)), at);
}
}  // namespace metal
