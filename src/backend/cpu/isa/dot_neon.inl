// Integer dot products of 16 outputs. With i8mm: usdot for a row alone, usmmla for two rows together; with dotprod:
// sdot; else 8-bit multiplications whose sums of pairs fit 16 bits. Activations come by lane, which needs no broadcast.
#ifdef __ARM_FEATURE_DOTPROD
constexpr int kRowsTogether = 2;  // with the codes in registers
#else
constexpr int kRowsTogether = 1;  // the products need registers too
#endif
constexpr int kRowsTogetherUnpacked = kRowsTogether;  // with the codes in memory
constexpr bool kRaisesCodes = false;

#ifndef __ARM_FEATURE_MATMUL_INT8
/// Signed bytes: codes of 8 bits less 128, which is their offset.
template <class Format>
HC_INLINE int8x16_t signed_codes(int32x4_t codes) {
  static_assert(Format::kMax < 128 || Format::kOffset == 128);
  const uint8x16_t bytes = vreinterpretq_u8_s32(codes);
  return vreinterpretq_s8_u8(Format::kMax < 128 ? bytes : veorq_u8(bytes, vdupq_n_u8(128)));
}
#endif

/// sum + the codes of four outputs times the activations in dword kLane.
template <class Format, int kLane>
HC_INLINE int32x4_t plus_products(int32x4_t sum, int32x4_t codes, int8x16_t x) {
#if defined(__ARM_FEATURE_MATMUL_INT8)
  return vusdotq_laneq_s32(sum, vreinterpretq_u8_s32(codes), x, kLane);
#elif defined(__ARM_FEATURE_DOTPROD)
  return vdotq_laneq_s32(sum, signed_codes<Format>(codes), x, kLane);
#else
  const int8x16_t w = signed_codes<Format>(codes);
  const int8x16_t quad = vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(x), kLane));
  const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(quad)), high = vmull_high_s8(w, quad);
  return vpadalq_s16(sum, vpaddq_s16(low, high));  // of pairs of at most 2 · 128 · 127
#endif
}

/// Σ (code − offset) · q over kQuads quads of inputs.
template <class Format, int kQuads, int kPlanes>
struct Dot {
  Ints sums[kPlanes];  // the last counts once, the one before 128 times

#ifdef __ARM_FEATURE_MATMUL_INT8
  static constexpr bool kStarts = Format::kOffset != 0;
#else
  static constexpr bool kStarts = Format::kOffset != 0 && Format::kMax < 128;
#endif
  template <int kPart>
  [[gnu::always_inline]] void start(const ActivationGroup<kPlanes>& x) {
    repeat<kPlanes>([&](auto p) __attribute__((always_inline)) { sums[p] = broadcast_int(0); });
    if constexpr (kStarts) sums[kPlanes - 1] = broadcast_int(-int32_t(Format::kOffset) * sum_of<kPart>(x));
  }
  template <int kQuad>
  [[gnu::always_inline]] void step(Ints codes, const ActivationGroup<kPlanes>& x) {
    repeat<kPlanes>([&](auto p) __attribute__((always_inline)) {
      const int8x16_t q = vld1q_s8(x.planes[p] + kQuad / 4 * 16);
      Ints& sum = sums[p];
      sum = {plus_products<Format, kQuad % 4>(sum.a, codes.a, q), plus_products<Format, kQuad % 4>(sum.b, codes.b, q),
             plus_products<Format, kQuad % 4>(sum.c, codes.c, q), plus_products<Format, kQuad % 4>(sum.d, codes.d, q)};
    });
  }
  [[gnu::always_inline]] Ints finish() const {
    if constexpr (kPlanes == 1) return sums[0];
    return add(shift_left<7>(sums[0]), sums[kPlanes - 1]);
  }

#ifdef __ARM_FEATURE_MATMUL_INT8
  /// The same of two rows at once: usmmla multiplies 8 inputs of two outputs by those of two rows, half as many
  /// instructions as usdot. Codes as pair_up() leaves them.
  struct OfTwoRows {
    int32x4_t sums[kPlanes][8];  // [i]: output 2 i of rows x and y, output 2 i + 1 of rows x and y

    template <int kPart>
    [[gnu::always_inline]] void start(const ActivationGroup<kPlanes>& x, const ActivationGroup<kPlanes>& y) {
      repeat<kPlanes * 8>([&](auto i) __attribute__((always_inline)) { sums[i / 8][i % 8] = vdupq_n_s32(0); });
      if constexpr (!kStarts) return;
      const int32x4_t initial = vzip1q_s32(vdupq_n_s32(-int32_t(Format::kOffset) * sum_of<kPart>(x)),
                                           vdupq_n_s32(-int32_t(Format::kOffset) * sum_of<kPart>(y)));
      repeat<8>([&](auto i) __attribute__((always_inline)) { sums[kPlanes - 1][i] = initial; });
    }
    template <int kQuad>
    [[gnu::always_inline]] void step(Ints codes, const ActivationGroup<kPlanes>& x, const ActivationGroup<kPlanes>& y) {
      repeat<kPlanes>([&](auto p) __attribute__((always_inline)) {
        constexpr int k16 = kQuad / 4 * 16;
        const int64x2_t qx = vreinterpretq_s64_s8(vld1q_s8(x.planes[p] + k16));
        const int64x2_t qy = vreinterpretq_s64_s8(vld1q_s8(y.planes[p] + k16));
        const int8x16_t q = vreinterpretq_s8_s64(kQuad / 2 % 2 == 0 ? vzip1q_s64(qx, qy) : vzip2q_s64(qx, qy));
        int32x4_t* sum = sums[p] + kQuad % 2 * 4;
        sum[0] = vusmmlaq_s32(sum[0], vreinterpretq_u8_s32(codes.a), q);
        sum[1] = vusmmlaq_s32(sum[1], vreinterpretq_u8_s32(codes.b), q);
        sum[2] = vusmmlaq_s32(sum[2], vreinterpretq_u8_s32(codes.c), q);
        sum[3] = vusmmlaq_s32(sum[3], vreinterpretq_u8_s32(codes.d), q);
      });
    }
    [[gnu::always_inline]] void finish(Ints& x, Ints& y) const {
      int32x4_t s[8];
      repeat<8>([&](auto i) __attribute__((always_inline)) {
        s[i] = kPlanes == 1 ? sums[0][i] : vaddq_s32(vshlq_n_s32(sums[0][i], 7), sums[kPlanes - 1][i]);
      });
      x = {vuzp1q_s32(s[0], s[1]), vuzp1q_s32(s[2], s[3]), vuzp1q_s32(s[4], s[5]), vuzp1q_s32(s[6], s[7])};
      y = {vuzp2q_s32(s[0], s[1]), vuzp2q_s32(s[2], s[3]), vuzp2q_s32(s[4], s[5]), vuzp2q_s32(s[6], s[7])};
    }
  };
  /// Of quads 2 j and 2 j + 1: first the 8 inputs of outputs 0 to 7, then those of outputs 8 to 15.
  [[gnu::always_inline]] static void pair_up(Ints* w) {
    repeat<4>([&](auto j) __attribute__((always_inline)) {
      const Ints e = w[2 * j], o = w[2 * j + 1];
      w[2 * j] = {vzip1q_s32(e.a, o.a), vzip2q_s32(e.a, o.a), vzip1q_s32(e.b, o.b), vzip2q_s32(e.b, o.b)};
      w[2 * j + 1] = {vzip1q_s32(e.c, o.c), vzip2q_s32(e.c, o.c), vzip1q_s32(e.d, o.d), vzip2q_s32(e.d, o.d)};
    });
  }
#endif
};
