// Integer dot products of 16 outputs where one instruction adds products of four bytes to a 32-bit lane. An instruction
// set gives
//   add_products(sum, codes, quad)   per output sum += Σ of four products of codes with the quad's bytes
//   add_low_words(sum, x, factor)    per output sum += factor · the low 16 bits of x, as a signed number

/// Σ (code − offset) · q over kQuads quads of inputs.
template <class Format, int kQuads, int kPlanes>
struct Dot {
  Ints sums[kPlanes];  // the last counts once, the one before 128 times

  template <int kPart>
  [[gnu::always_inline]] void start(const ActivationGroup<kPlanes>& x) {
    repeat<kPlanes>([&](auto p) __attribute__((always_inline)) { sums[p] = broadcast_int(0); });
    if constexpr (Format::kOffset == 128)
      repeat<kPlanes>([&](auto p) __attribute__((always_inline)) {
        sums[p] = broadcast_int(x.raised[p][kPart]);  // straight from memory
      });
    else if constexpr (Format::kOffset != 0)
      sums[kPlanes - 1] = broadcast_int(-int32_t(Format::kOffset) * sum_of<kPart>(x));
  }
  template <int kQuad>
  [[gnu::always_inline]] void step(Ints codes, const ActivationGroup<kPlanes>& x) {
    repeat<kPlanes>([&](auto p)
                        __attribute__((always_inline)) { add_products(sums[p], codes, x.planes[p] + 4 * kQuad); });
  }
  /// Whether the sums of the first plane, whose numbers are within ±63, fit 16 bits.
  static constexpr bool kShortSums = 4 * kQuads * Format::kReach * 63 <= 32767;

  [[gnu::always_inline]] Ints finish() const {
    if constexpr (kPlanes == 1) return sums[0];
    if constexpr (kShortSums) return add_low_words(sums[kPlanes - 1], sums[0], 128);  // one instruction instead of two
    return add(shift_left<7>(sums[0]), sums[kPlanes - 1]);
  }
};
