// Integer dot products of 16 outputs: by sdot where the file is compiled with it, else by 8-bit multiplications whose
// sums of two fit 16 bits. Codes are signed bytes here; those of 8 bits less 128, which is their offset.
constexpr int kRowsTogether = 2;          // with the codes in registers
constexpr int kRowsTogetherUnpacked = 2;  // with the codes in memory
constexpr bool kRaisesCodes = true;       // to an offset of 128, when they are unpacked

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

/// Σ (code − offset) · q over kQuads quads of inputs.
template <class Format, int kQuads, int kPlanes>
struct Dot {
  Ints sums[kPlanes];  // the last counts once, the one before 128 times

  template <int kPart>
  [[gnu::always_inline]] void start(const ActivationGroup<kPlanes>& x) {
    repeat<kPlanes>([&](auto p) __attribute__((always_inline)) { sums[p] = broadcast_int(0); });
    if constexpr (Format::kMax < 128 && Format::kOffset != 0)
      sums[kPlanes - 1] = broadcast_int(-times_sum<Format::kOffset, kPart>(x));
  }
  template <int kQuad>
  [[gnu::always_inline]] void step(Ints codes, const ActivationGroup<kPlanes>& x) {
    repeat<kPlanes>([&](auto p) __attribute__((always_inline)) {
      const int8x16_t quad = broadcast_quad(x.planes[p] + 4 * kQuad);
      sums[p].a = plus_dot(sums[p].a, signed_codes<Format>(codes.a), quad);
      sums[p].b = plus_dot(sums[p].b, signed_codes<Format>(codes.b), quad);
      sums[p].c = plus_dot(sums[p].c, signed_codes<Format>(codes.c), quad);
      sums[p].d = plus_dot(sums[p].d, signed_codes<Format>(codes.d), quad);
    });
  }
  [[gnu::always_inline]] Ints finish() const {
    if constexpr (kPlanes == 1) return sums[0];
    return add(shift_left<7>(sums[0]), sums[kPlanes - 1]);
  }

  [[gnu::always_inline]] static int32x4_t plus_dot(int32x4_t to, int8x16_t codes, int8x16_t quad) {
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_s32(to, codes, quad);
#else
    const int16x8_t low = vmull_s8(vget_low_s8(codes), vget_low_s8(quad)), high = vmull_high_s8(codes, quad);
    return vpadalq_s16(to, vpaddq_s16(low, high));  // of pairs at most 2 · 128 · 127
#endif
  }
};
