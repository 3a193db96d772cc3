// Integer dot products of 16 outputs: by sdot where the file is compiled with it, else by 8-bit multiplications whose
// sums the 7-bit planes keep within 16 bits. Codes are signed bytes here; those of 8 bits less 128, which is their
// offset.
constexpr int kRowsTogether = 2;

template <class Format>
HC_INLINE int8x16_t signed_codes(int32x4_t codes) {
  static_assert(Format::kMax < 128 || Format::kOffset == 128);
  const uint8x16_t bytes = vreinterpretq_u8_s32(codes);
  return vreinterpretq_s8_u8(Format::kMax < 128 ? bytes : veorq_u8(bytes, vdupq_n_u8(128)));
}
HC_INLINE int8x16_t broadcast_quad(const int8_t* p) {
  int32_t x;
  memcpy(&x, p, 4);
  return vreinterpretq_s8_s32(vdupq_n_s32(x));
}

/// initial + Σ code · (128 · hi + lo) over kQuads quads of inputs.
template <class Format, int kQuads>
struct Dot {
  Ints sum, lo_sum;

  [[gnu::always_inline]] void start(int32_t value) {
    sum = broadcast_int(0);
    lo_sum = broadcast_int(Format::kMax < 128 && Format::kOffset != 0 ? value : 0);
  }
  [[gnu::always_inline]] void step(Ints codes, const int8_t* hi, const int8_t* lo) {
    const int8x16_t h = broadcast_quad(hi), l = broadcast_quad(lo);
    add_quad(sum.a, lo_sum.a, signed_codes<Format>(codes.a), h, l);
    add_quad(sum.b, lo_sum.b, signed_codes<Format>(codes.b), h, l);
    add_quad(sum.c, lo_sum.c, signed_codes<Format>(codes.c), h, l);
    add_quad(sum.d, lo_sum.d, signed_codes<Format>(codes.d), h, l);
  }
  [[gnu::always_inline]] Ints finish() const { return add(shift_left<7>(sum), lo_sum); }

  [[gnu::always_inline]] static void add_quad(int32x4_t& hi_sum, int32x4_t& lo_sum, int8x16_t codes, int8x16_t hi,
                                              int8x16_t lo) {
    hi_sum = plus_dot(hi_sum, codes, hi);
    lo_sum = plus_dot(lo_sum, codes, lo);
  }
  [[gnu::always_inline]] static int32x4_t plus_dot(int32x4_t to, int8x16_t codes, int8x16_t quad) {
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_s32(to, codes, quad);
#else
    const int16x8_t low = vmull_s8(vget_low_s8(codes), vget_low_s8(quad)), high = vmull_high_s8(codes, quad);
    return vpadalq_s16(to, vpaddq_s16(low, high));  // of pairs at most 2 · 128 · 64
#endif
  }
};
