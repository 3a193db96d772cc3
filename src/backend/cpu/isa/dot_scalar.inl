// Integer dot products of 16 outputs in plain C++: what the other dot_*.inl must agree with.
constexpr int kRowsTogether = 1;          // with the codes in registers
constexpr int kRowsTogetherUnpacked = 1;  // with the codes in memory
constexpr bool kRaisesCodes = false;

// Out of line: unrolled into every kernel it would take minutes to compile.
[[gnu::noinline]] static void add_products(Ints& sum, const Ints& codes, const int8_t* quad, int32_t factor) {
  uint8_t bytes[16][4];
  memcpy(bytes, codes.v, sizeof bytes);
  for (int i = 0; i < 16; ++i) {
    int32_t products = 0;
    for (int c = 0; c < 4; ++c) products += bytes[i][c] * quad[c];
    sum.v[i] += factor * products;
  }
}

/// Σ (code − offset) · q over kQuads quads of inputs.
template <class Format, int kQuads, int kPlanes>
struct Dot {
  Ints sum;

  template <int kPart>
  void start(const ActivationGroup<kPlanes>& x) {
    sum = broadcast_int(-int32_t(Format::kOffset) * sum_of<kPart>(x));
  }
  template <int kQuad>
  void step(const Ints& codes, const ActivationGroup<kPlanes>& x) {
    for (int p = 0; p < kPlanes; ++p) add_products(sum, codes, x.planes[p] + 4 * kQuad, p == kPlanes - 1 ? 1 : 128);
  }
  Ints finish() const { return sum; }
};
