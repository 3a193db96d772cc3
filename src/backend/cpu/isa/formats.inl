// How the blocks of each integer format are read: codes of 32 inputs as unsigned bytes (code + kOffset), the scale of
// each half (kScales 2) or of the whole, and the minimum likewise: x = d · (code − kOffset) + m.
// The formulas are those of quant/blocks.h, products in the same order.
static const int8_t kIQ4_NLValues[16] = {HC_IQ4_NL_VALUES};
static const int8_t kE2M1Values[16] = {HC_E2M1_DOUBLED};

// kMax: largest byte that codes() gives. AVX2 adds 16-bit products of several bytes when it is small enough.
#define HC_FORMAT(block, groups, offset, max, scales, mins) \
  using Block = quant::block;                               \
  static constexpr uint32_t kGroupsPerBlock = groups;       \
  static constexpr uint32_t kOffset = offset;               \
  static constexpr uint32_t kMax = max;                     \
  static constexpr uint32_t kScales = scales;               \
  static constexpr uint32_t kMins = mins;

// The 16 bytes' low nibbles, then their high nibbles.
static inline void nibbles(const uint8_t* bytes, uint8_t* out) {
  for (int i = 0; i < 16; ++i) {
    out[i] = bytes[i] & 15;
    out[i + 16] = bytes[i] >> 4;
  }
}
static inline void fifth_bits(const uint8_t* high, uint8_t* out) {
  for (int i = 0; i < 32; ++i) out[i] = uint8_t(out[i] | (high[i / 8] >> (i % 8) & 1) << 4);
}
template <class Table>
static inline void look_up(const Table& table, uint32_t offset, uint8_t* codes) {
  for (int i = 0; i < 32; ++i) codes[i] = uint8_t(table[codes[i]] + int(offset));
}

struct FormatQ4_0 {
  HC_FORMAT(BlockQ4_0, 1, 8, 15, 1, 0)
  static void codes(const Block& b, uint32_t, uint8_t* out) { nibbles(b.codes, out); }
  static void scales(const Block& b, uint32_t, float* d, float*) { d[0] = half(b.d); }
};
struct FormatQ4_1 {
  HC_FORMAT(BlockQ4_1, 1, 0, 15, 1, 1)
  static void codes(const Block& b, uint32_t, uint8_t* out) { nibbles(b.codes, out); }
  static void scales(const Block& b, uint32_t, float* d, float* m) {
    d[0] = half(b.d);
    m[0] = half(b.m);
  }
};
struct FormatQ5_0 {
  HC_FORMAT(BlockQ5_0, 1, 16, 31, 1, 0)
  static void codes(const Block& b, uint32_t, uint8_t* out) {
    nibbles(b.codes, out);
    fifth_bits(b.high, out);
  }
  static void scales(const Block& b, uint32_t, float* d, float*) { d[0] = half(b.d); }
};
struct FormatQ5_1 {
  HC_FORMAT(BlockQ5_1, 1, 0, 31, 1, 1)
  static void codes(const Block& b, uint32_t, uint8_t* out) {
    nibbles(b.codes, out);
    fifth_bits(b.high, out);
  }
  static void scales(const Block& b, uint32_t, float* d, float* m) {
    d[0] = half(b.d);
    m[0] = half(b.m);
  }
};
struct FormatQ8_0 {
  HC_FORMAT(BlockQ8_0, 1, 128, 255, 1, 0)
  static void codes(const Block& b, uint32_t, uint8_t* out) {
    for (int i = 0; i < 32; ++i) out[i] = uint8_t(b.codes[i]) ^ 0x80;
  }
  static void scales(const Block& b, uint32_t, float* d, float*) { d[0] = half(b.d); }
};
struct FormatQ2_K {
  HC_FORMAT(BlockQ2_K, 8, 0, 3, 2, 2)
  static void codes(const Block& b, uint32_t group, uint8_t* out) {
    for (int i = 0; i < 32; ++i) out[i] = b.codes[32 * (group / 4) + i] >> (2 * (group % 4)) & 3;
  }
  static void scales(const Block& b, uint32_t group, float* d, float* m) {
    for (int s = 0; s < 2; ++s) {
      const uint8_t packed = b.scales[2 * group + s];
      d[s * kLanes] = half(b.d) * float(packed & 15);
      m[s * kLanes] = -(half(b.dmin) * float(packed >> 4));
    }
  }
};
struct FormatQ3_K {
  HC_FORMAT(BlockQ3_K, 8, 4, 7, 2, 0)
  static void codes(const Block& b, uint32_t group, uint8_t* out) {
    for (int i = 0; i < 32; ++i)
      out[i] = uint8_t((b.codes[32 * (group / 4) + i] >> (2 * (group % 4)) & 3) | (b.high[i] >> group & 1) << 2);
  }
  static void scales(const Block& b, uint32_t group, float* d, float*) {
    for (uint32_t s = 0; s < 2; ++s) {
      const uint32_t k = 2 * group + s;
      const int low = b.scales[k % 8] >> (4 * (k / 8)) & 15, high = b.scales[8 + k % 4] >> (2 * (k / 4)) & 3;
      d[s * kLanes] = half(b.d) * float((low | high << 4) - 32);
    }
  }
};
// The six-bit scale and minimum of Q4_K and Q5_K.
template <class B>
static inline void scales_k4(const B& b, uint32_t k, float* d, float* m) {
  const uint8_t* s = b.scales;
  const int scale = k < 4 ? s[k] & 63 : (s[k + 4] & 15) | (s[k - 4] >> 6) << 4;
  const int minimum = k < 4 ? s[k + 4] & 63 : (s[k + 4] >> 4) | (s[k] >> 6) << 4;
  d[0] = half(b.d) * float(scale);
  m[0] = -(half(b.dmin) * float(minimum));
}
struct FormatQ4_K {
  HC_FORMAT(BlockQ4_K, 8, 0, 15, 1, 1)
  static void codes(const Block& b, uint32_t group, uint8_t* out) {
    for (int i = 0; i < 32; ++i) out[i] = b.codes[32 * (group / 2) + i] >> (4 * (group % 2)) & 15;
  }
  static void scales(const Block& b, uint32_t group, float* d, float* m) { scales_k4(b, group, d, m); }
};
struct FormatQ5_K {
  HC_FORMAT(BlockQ5_K, 8, 0, 31, 1, 1)
  static void codes(const Block& b, uint32_t group, uint8_t* out) {
    for (int i = 0; i < 32; ++i)
      out[i] = uint8_t((b.codes[32 * (group / 2) + i] >> (4 * (group % 2)) & 15) | (b.high[i] >> group & 1) << 4);
  }
  static void scales(const Block& b, uint32_t group, float* d, float* m) { scales_k4(b, group, d, m); }
};
struct FormatQ6_K {
  HC_FORMAT(BlockQ6_K, 8, 32, 63, 2, 0)
  static void codes(const Block& b, uint32_t group, uint8_t* out) {
    const uint32_t h = group / 4, s = group % 4;
    for (int i = 0; i < 32; ++i)
      out[i] = uint8_t((b.codes[64 * h + 32 * (s % 2) + i] >> (4 * (s / 2)) & 15) | (b.high[32 * h + i] >> (2 * s) & 3)
                                                                                        << 4);
  }
  static void scales(const Block& b, uint32_t group, float* d, float*) {
    for (int s = 0; s < 2; ++s) d[s * kLanes] = half(b.d) * float(b.scales[2 * group + s]);
  }
};
struct FormatIQ4_NL {
  HC_FORMAT(BlockIQ4_NL, 1, 128, 255, 1, 0)
  static void codes(const Block& b, uint32_t, uint8_t* out) {
    nibbles(b.codes, out);
    look_up(kIQ4_NLValues, kOffset, out);
  }
  static void scales(const Block& b, uint32_t, float* d, float*) { d[0] = half(b.d); }
};
struct FormatIQ4_XS {
  HC_FORMAT(BlockIQ4_XS, 8, 128, 255, 1, 0)
  static void codes(const Block& b, uint32_t group, uint8_t* out) {
    nibbles(b.codes + 16 * group, out);
    look_up(kIQ4_NLValues, kOffset, out);
  }
  static void scales(const Block& b, uint32_t group, float* d, float*) {
    const int low = b.scales_low[group / 2] >> (4 * (group % 2)) & 15, high = b.scales_high >> (2 * group) & 3;
    d[0] = half(b.d) * float((low | high << 4) - 32);
  }
};
struct FormatMXFP4 {
  HC_FORMAT(BlockMXFP4, 1, 12, 24, 1, 0)
  static void codes(const Block& b, uint32_t, uint8_t* out) {
    nibbles(b.codes, out);
    look_up(kE2M1Values, kOffset, out);
  }
  static void scales(const Block& b, uint32_t, float* d, float*) {
    // 2^(exponent − 128); the two subnormal ones are flushed, as all subnormals are
    const uint32_t bits = b.exponent < 2 ? 0 : uint32_t(b.exponent - 1) << 23;
    memcpy(d, &bits, sizeof bits);
  }
};
#undef HC_FORMAT
