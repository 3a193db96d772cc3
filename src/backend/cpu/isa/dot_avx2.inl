// Integer dot products of 16 outputs by vpmaddubsw: the 7-bit planes keep its 16-bit sums from saturating.
constexpr int kRowsTogether = 2;

HC_INLINE __m256i broadcast_quad(const int8_t* p) {
  int32_t x;
  memcpy(&x, p, 4);
  return _mm256_set1_epi32(x);
}

/// initial + Σ code · (128 · hi + lo) over kQuads quads of inputs.
template <class Format, int kQuads>
struct Dot {
  static constexpr bool kNarrow = kFits16<Format, kQuads>;
  __m256i a, b;        // the sum, or the 16-bit sums with hi
  __m256i lo_a, lo_b;  // 16-bit sums with lo
  int32_t initial;

  [[gnu::always_inline]] void start(int32_t value) {
    initial = value;
    a = b = kNarrow ? _mm256_setzero_si256() : _mm256_set1_epi32(value);
    lo_a = lo_b = _mm256_setzero_si256();
  }
  [[gnu::always_inline]] void step(Ints codes, const int8_t* hi, const int8_t* lo) {
    const __m256i h = broadcast_quad(hi), l = broadcast_quad(lo);
    if constexpr (kNarrow) {
      a = _mm256_add_epi16(a, _mm256_maddubs_epi16(codes.a, h));
      lo_a = _mm256_add_epi16(lo_a, _mm256_maddubs_epi16(codes.a, l));
      b = _mm256_add_epi16(b, _mm256_maddubs_epi16(codes.b, h));
      lo_b = _mm256_add_epi16(lo_b, _mm256_maddubs_epi16(codes.b, l));
    } else {
      a = _mm256_add_epi32(a, widen(_mm256_maddubs_epi16(codes.a, h), _mm256_maddubs_epi16(codes.a, l)));
      b = _mm256_add_epi32(b, widen(_mm256_maddubs_epi16(codes.b, h), _mm256_maddubs_epi16(codes.b, l)));
    }
  }
  [[gnu::always_inline]] Ints finish() const {
    if constexpr (!kNarrow) return {a, b};
    const __m256i first = _mm256_set1_epi32(initial);
    return {_mm256_add_epi32(first, widen(a, lo_a)), _mm256_add_epi32(first, widen(b, lo_b))};
  }
  [[gnu::always_inline]] static __m256i widen(__m256i hi, __m256i lo) {
    return _mm256_add_epi32(_mm256_madd_epi16(hi, _mm256_set1_epi16(128)), _mm256_madd_epi16(lo, _mm256_set1_epi16(1)));
  }
};
