// How each integer format looks in a panel: planes of codes (kernels.h), the value of a code, and where the scales are.
// x = d · (code − kOffset) + m, codes as unsigned bytes, a scale and a minimum per group or per half of one.
// The formulas are those of quant/blocks.h, products in the same order. Scales of a block lie in front of its codes,
// the fields in the order of packing.cpp, sixteen outputs side by side.

// kMax: largest code. AVX2 adds 16-bit products of several bytes when it is small enough. kReach: what sums of products
// of the first plane reach at most, per unit of activation, once they are complete.
#define HC_FORMAT(name, offset, max, scales, mins)                                    \
  static constexpr uint32_t kGroupsPerBlock = kPanel##name.groups;                    \
  static constexpr uint32_t kCodeBytes = kPanel##name.code_bytes;                     \
  static constexpr uint32_t kScaleBytes = kPanel##name.scale_bytes;                   \
  static constexpr uint32_t kBlockBytes = kScaleBytes + kGroupsPerBlock * kCodeBytes; \
  static constexpr uint32_t kOffset = offset;                                         \
  static constexpr uint32_t kMax = max;                                               \
  static constexpr uint32_t kReach = max;                                             \
  static constexpr uint32_t kScales = scales;                                         \
  static constexpr uint32_t kMins = mins;

struct PanelShape {
  uint32_t groups, code_bytes, scale_bytes;
};
#define HC_CPU_PANEL(name, n_groups, planes, n_scale_bytes) \
  constexpr PanelShape kPanel##name = {n_groups, planes, n_scale_bytes};
HC_CPU_INTEGER_FORMATS(HC_CPU_PANEL)
#undef HC_CPU_PANEL

alignas(16) static const int8_t kIQ4_NLValues[16] = {HC_IQ4_NL_VALUES};
alignas(16) static const int8_t kE2M1Values[16] = {HC_E2M1_DOUBLED};

// s: the block's scales; group: of the block.
#define HC_SCALES                                                                                      \
  HC_INLINE void scales([[maybe_unused]] const uint8_t* s, [[maybe_unused]] uint32_t group, Floats* d, \
                        [[maybe_unused]] Floats* m)

constexpr uint32_t kHalfField = 2 * kLanes;  // bytes of an f16 of each output
constexpr uint32_t kByteField = kLanes;

struct FormatQ4_0 {
  HC_FORMAT(Q4_0, 8, 15, 1, 0)
  HC_SCALES { d[0] = load_half(s); }
};
struct FormatQ4_1 {
  HC_FORMAT(Q4_1, 0, 15, 1, 1)
  HC_SCALES {
    d[0] = load_half(s);
    m[0] = load_half(s + kHalfField);
  }
};
struct FormatQ5_0 {
  HC_FORMAT(Q5_0, 16, 31, 1, 0)
  HC_SCALES { d[0] = load_half(s); }
};
struct FormatQ5_1 {
  HC_FORMAT(Q5_1, 0, 31, 1, 1)
  HC_SCALES {
    d[0] = load_half(s);
    m[0] = load_half(s + kHalfField);
  }
};
struct FormatQ8_0 {
  HC_FORMAT(Q8_0, 128, 255, 1, 0)
  HC_SCALES { d[0] = load_half(s); }
};
struct FormatQ2_K {
  HC_FORMAT(Q2_K, 0, 3, 2, 2)
  HC_SCALES {
    const uint8_t* packed = s + 2 * kHalfField + 2 * group * kByteField;
    for (int half = 0; half < 2; ++half, packed += kByteField) {
      const Ints both = load_u8(packed);
      d[half] = mul(load_half(s), to_floats(bit_and(both, broadcast_int(15))));
      m[half] = negate(mul(load_half(s + kHalfField), to_floats(shift_right<4>(both))));
    }
  }
};
struct FormatQ3_K {
  HC_FORMAT(Q3_K, 4, 7, 2, 0)
  HC_SCALES {
    const uint8_t* packed = s + kHalfField;
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t k = 2 * group + half;
      const Ints low = bit_and(shift_right_by(load_u8(packed + (k % 8) * kByteField), 4 * (k / 8)), broadcast_int(15));
      const Ints high =
          bit_and(shift_right_by(load_u8(packed + (8 + k % 4) * kByteField), 2 * (k / 4)), broadcast_int(3));
      d[half] = mul(load_half(s), to_floats(sub(add(low, shift_left<4>(high)), broadcast_int(32))));
    }
  }
};
// The six-bit scales and minima of Q4_K and Q5_K.
HC_INLINE void scales_k4(const uint8_t* s, uint32_t k, Floats* d, Floats* m) {
  const auto byte = [&](uint32_t i)
                        __attribute__((always_inline)) { return load_u8(s + 2 * kHalfField + i * kByteField); };
  Ints scale, minimum;
  if (k < 4) {
    scale = bit_and(byte(k), broadcast_int(63));
    minimum = bit_and(byte(k + 4), broadcast_int(63));
  } else {
    const Ints low = byte(k + 4);
    scale = add(bit_and(low, broadcast_int(15)), shift_left<4>(shift_right<6>(byte(k - 4))));
    minimum = add(shift_right<4>(low), shift_left<4>(shift_right<6>(byte(k))));
  }
  d[0] = mul(load_half(s), to_floats(scale));
  m[0] = negate(mul(load_half(s + kHalfField), to_floats(minimum)));
}
struct FormatQ4_K {
  HC_FORMAT(Q4_K, 0, 15, 1, 1)
  HC_SCALES { scales_k4(s, group, d, m); }
};
struct FormatQ5_K {
  HC_FORMAT(Q5_K, 0, 31, 1, 1)
  HC_SCALES { scales_k4(s, group, d, m); }
};
struct FormatQ6_K {
  HC_FORMAT(Q6_K, 32, 63, 2, 0)
  HC_SCALES {
    for (uint32_t half = 0; half < 2; ++half)
      d[half] = mul(load_half(s), load_s8(s + kHalfField + (2 * group + half) * kByteField));
  }
};
struct FormatIQ4_NL {
  HC_FORMAT(IQ4_NL, 128, 255, 1, 0)
  static constexpr const int8_t* kValues = kIQ4_NLValues;
  HC_SCALES { d[0] = load_half(s); }
};
struct FormatIQ4_XS {
  HC_FORMAT(IQ4_XS, 128, 255, 1, 0)
  static constexpr const int8_t* kValues = kIQ4_NLValues;
  HC_SCALES {
    const Ints high = bit_and(shift_right_by(load_u16(s + kHalfField), 2 * group), broadcast_int(3));
    const Ints low = load_u8(s + 2 * kHalfField + group / 2 * kByteField);
    const Ints scale = add(bit_and(shift_right_by(low, 4 * (group % 2)), broadcast_int(15)), shift_left<4>(high));
    d[0] = mul(load_half(s), to_floats(sub(scale, broadcast_int(32))));
  }
};
struct FormatMXFP4 {
  HC_FORMAT(MXFP4, 12, 24, 1, 0)
  static constexpr const int8_t* kValues = kE2M1Values;
  HC_SCALES {
    // 2^(exponent − 128); the two subnormal ones are flushed, as all subnormals are
    d[0] = as_floats(shift_left<23>(sub(max(load_u8(s), broadcast_int(1)), broadcast_int(1))));
  }
};
#undef HC_FORMAT
#undef HC_SCALES

/// Most quads, up to kQuads, of which 16-bit sums of products of code pairs with a plane fit: |pair| ≤ 2 · kMax ·
/// plane.
template <class Format, int kQuads, int kPlanes>
constexpr int quads_in_16_bits() {
  int quads = kQuads;
  while (quads * 2 * int(Format::kMax) * (kPlanes == 1 ? 127 : 64) > 32767) quads /= 2;
  return quads;
}
static_assert(quads_in_16_bits<FormatQ5_K, 8, 2>() == 8 && quads_in_16_bits<FormatQ6_K, 4, 2>() == 4);
static_assert(quads_in_16_bits<FormatQ8_0, 8, 2>() == 1 && quads_in_16_bits<FormatQ8_0, 8, 1>() == 0);
