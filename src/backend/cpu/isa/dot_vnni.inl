// Integer dot products of 16 outputs where one instruction adds products of four bytes to a 32-bit lane. An instruction
// set gives
//   add_products(sum, codes, quad)   per output sum += Σ of four products of codes with the quad's bytes

/// Σ (code − offset) · q over kQuads quads of inputs.
template <class Format, int kQuads, int kPlanes>
struct Dot {
  Ints sums[kPlanes];  // the last counts once, the one before 128 times

  template <int kPart>
  [[gnu::always_inline]] void start(const ActivationGroup<kPlanes>& x) {
    repeat<kPlanes>([&](auto p) __attribute__((always_inline)) { sums[p] = broadcast_int(0); });
    if constexpr (Format::kOffset == 128)
      sums[0] = broadcast_int(x.raised[kPart]);  // straight from memory
    else if constexpr (Format::kOffset != 0)
      sums[kPlanes - 1] = broadcast_int(-times_sum<Format::kOffset, kPart>(x));
  }
  template <int kQuad>
  [[gnu::always_inline]] void step(Ints codes, const ActivationGroup<kPlanes>& x) {
    repeat<kPlanes>([&](auto p)
                        __attribute__((always_inline)) { add_products(sums[p], codes, x.planes[p] + 4 * kQuad); });
  }
  [[gnu::always_inline]] Ints finish() const {
    if constexpr (kPlanes == 1) return sums[0];
    return add(shift_left<7>(sums[0]), sums[kPlanes - 1]);
  }
};
