// What the integer kernels of every instruction set are written with.

template <int I>
struct Index {
  static constexpr int value = I;
  constexpr operator int() const { return I; }
};
/// body(Index<0>) … body(Index<kN − 1>): arrays that are indexed so stay in registers.
template <int kN, int kFrom = 0, class Body>
HC_INLINE void repeat(Body&& body) {
  if constexpr (kFrom < kN) {
    body(Index<kFrom>{});
    repeat<kN, kFrom + 1>(body);
  }
}

template <int kShift>
HC_INLINE Ints shift(Ints x) {  // left, or right where negative; bits that cross bytes are masked by the caller
  if constexpr (kShift > 0)
    return shift_left<kShift>(x);
  else if constexpr (kShift < 0)
    return shift_right<-kShift>(x);
  else
    return x;
}
HC_INLINE Ints masked(Ints x, uint32_t byte) { return bit_and(x, broadcast_int(int32_t(byte * 0x01010101u))); }

/// Σ q of a part of the group: 0 is all of it, 1 and 2 are its halves.
template <int kPart, int kPlanes>
HC_INLINE int32_t sum_of(const ActivationGroup<kPlanes>& x) {
  const int32_t last = -(x.raised[kPlanes - 1][kPart] >> 7);
  return kPlanes == 1 ? last : last - x.raised[0][kPart];
}
