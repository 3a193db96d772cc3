// Integer dot products of 16 outputs: vpdpbusd where the file is compiled with VNNI, else vpmaddubsw as in
// dot_avx2.inl.
constexpr int kRowsTogether = 4;

HC_INLINE __m512i broadcast_quad(const int8_t* p) {
  int32_t x;
  memcpy(&x, p, 4);
  return _mm512_set1_epi32(x);
}

/// initial + Σ code · (128 · hi + lo) over kQuads quads of inputs.
#ifdef __AVX512VNNI__
template <class Format, int kQuads>
struct Dot {
  __m512i hi_sum, lo_sum;

  [[gnu::always_inline]] void start(int32_t value) {
    hi_sum = _mm512_setzero_si512();
    lo_sum = Format::kOffset == 0 ? hi_sum : _mm512_set1_epi32(value);  // no branch on the value
  }
  [[gnu::always_inline]] void step(Ints codes, const int8_t* hi, const int8_t* lo) {
    add(hi_sum, codes.a, hi);
    add(lo_sum, codes.a, lo);
  }
  [[gnu::always_inline]] Ints finish() const { return {_mm512_add_epi32(_mm512_slli_epi32(hi_sum, 7), lo_sum)}; }

  // g++ 12 does not fold the broadcast into vpdpbusd by itself: worth a seventh of a prompt's time.
  [[gnu::always_inline]] static void add(__m512i& sum, __m512i codes, const int8_t* quad) {
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(codes), "m"(*reinterpret_cast<const int32_t*>(quad)));
  }
};
#else
template <class Format, int kQuads>
struct Dot {
  static constexpr bool kNarrow = kFits16<Format, kQuads>;
  __m512i sum, lo_sum;  // all, or the 16-bit sums with hi and with lo
  int32_t initial;

  [[gnu::always_inline]] void start(int32_t value) {
    initial = value;
    sum = kNarrow ? _mm512_setzero_si512() : _mm512_set1_epi32(value);
    lo_sum = _mm512_setzero_si512();
  }
  [[gnu::always_inline]] void step(Ints codes, const int8_t* hi, const int8_t* lo) {
    const __m512i h = _mm512_maddubs_epi16(codes.a, broadcast_quad(hi));
    const __m512i l = _mm512_maddubs_epi16(codes.a, broadcast_quad(lo));
    if constexpr (kNarrow) {
      sum = _mm512_add_epi16(sum, h);
      lo_sum = _mm512_add_epi16(lo_sum, l);
    } else {
      sum = _mm512_add_epi32(sum, widen(h, l));
    }
  }
  [[gnu::always_inline]] Ints finish() const {
    if constexpr (!kNarrow) return {sum};
    return {_mm512_add_epi32(_mm512_set1_epi32(initial), widen(sum, lo_sum))};
  }
  [[gnu::always_inline]] static __m512i widen(__m512i hi, __m512i lo) {
    return _mm512_add_epi32(_mm512_madd_epi16(hi, _mm512_set1_epi16(128)), _mm512_madd_epi16(lo, _mm512_set1_epi16(1)));
  }
};
#endif
