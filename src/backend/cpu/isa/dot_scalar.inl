// Integer dot products of 16 outputs in plain C++: what the other dot_*.inl must agree with.
constexpr int kRowsTogether = 1;

/// initial + Σ code · (128 · hi + lo) over kQuads quads of inputs.
template <class Format, int kQuads>
struct Dot {
  Ints sum;

  void start(int32_t value) { sum = broadcast_int(value); }
  void step(const Ints& codes, const int8_t* hi, const int8_t* lo) {
    uint8_t bytes[16][4];
    memcpy(bytes, codes.v, sizeof bytes);
    for (int c = 0; c < 4; ++c) {
      const int32_t q = 128 * hi[c] + lo[c];
      for (int i = 0; i < 16; ++i) sum.v[i] += bytes[i][c] * q;
    }
  }
  Ints finish() const { return sum; }
};
