// Integer dot products of 16 outputs by products of byte pairs, which are added up in 16 bits for as long as they fit.
// An instruction set gives
//   pair_products(codes, quad)   per output two 16-bit sums of two products of codes with the quad's bytes
//   add_words(x, y)              sums of 16-bit lanes
//   scaled_pairs(x, factor)      per output the sum of its two 16-bit lanes, times a factor

/// Σ (code − offset) · q over kQuads quads of inputs.
template <class Format, int kQuads, int kPlanes>
struct Dot {
  static constexpr int kTogether = quads_in_16_bits<Format, kQuads, kPlanes>();
  // With |q| ≤ 127 not even a pair of codes above 127 fits: these are multiplied as 128 · (top bit) + (the other bits).
  static constexpr bool kSplits = kTogether == 0;
  static constexpr bool kFlushes = kTogether < kQuads;  // the 16-bit sums go to `sum` on the way
  static constexpr int kParts = kSplits ? 2 : kPlanes;  // the last counts once, the one before 128 times
  int32_t initial;  // broadcast at the end where nothing is added on the way: registers are few
  Ints sum;
  Ints parts[kParts];

  template <int kPart>
  [[gnu::always_inline]] void start(const ActivationGroup<kPlanes>& x) {
    initial = -int32_t(Format::kOffset) * sum_of<kPart>(x);
    if constexpr (kFlushes) sum = broadcast_int(initial);
  }
  template <int kQuad>
  [[gnu::always_inline]] void step(Ints codes, const ActivationGroup<kPlanes>& x) {
    constexpr int kAt = kQuad % kQuads % (kSplits ? 1 : kTogether);
    if constexpr (kSplits) {
      parts[0] = pair_products(masked(shift<-7>(codes), 1), x.planes[0] + 4 * kQuad);
      parts[1] = pair_products(masked(codes, 127), x.planes[0] + 4 * kQuad);
    } else {
      repeat<kParts>([&](auto p) __attribute__((always_inline)) {
        const Ints products = pair_products(codes, x.planes[p] + 4 * kQuad);
        parts[p] = kAt == 0 ? products : add_words(parts[p], products);
      });
    }
    if constexpr (kFlushes && (kSplits || kAt == kTogether - 1)) sum = plus_parts(sum);
  }
  [[gnu::always_inline]] Ints finish() const {
    if constexpr (kFlushes) return sum;
    return plus_parts(broadcast_int(initial));
  }

 private:
  [[gnu::always_inline]] Ints plus_parts(Ints x) const {
    const Ints last = add(x, scaled_pairs(parts[kParts - 1], 1));
    if constexpr (kParts == 1) return last;
    return add(last, scaled_pairs(parts[0], 128));
  }
};
