// Traits (formats.h) of the formats whose codes are rows of a grid: IQ1, IQ2 and IQ3. 256 elements of a block are eight
// parts; a part is four octets (IQ1, IQ2) or eight quads (IQ3) of grid values, each with signs or a shift of its own.
// The grids are read packed, 16 bits a row: 0.5 to 4 KiB in all of a format, where the values themselves would take 1
// to 16.
#pragma once

#include "../../../quant/blocks.h"
#include "../../../quant/grids.h"
#include "parts.h"

#include <metal_stdlib>
using namespace metal;

/// Codes [first, first + 4) of a packed row, `bits` each.
static inline int4 grid_codes(ushort row, int first, int bits) {
  return (int4(int(row)) >> ((int4(0, 1, 2, 3) + first) * bits)) & ((1 << bits) - 1);
}
/// The values; element j negated where bit j of signs is set.
static inline float4 with_signs(int4 values, uint signs) {
  return float4(values * (1 - 2 * ((int4(int(signs)) >> int4(0, 1, 2, 3)) & 1)));
}
/// Seven sign bits, and an eighth that makes the number of negated elements even.
static inline uint even_signs(uint index) { return index | (popcount(index) & 1) << 7; }

// The values that codes stand for: 8, 25, 43; 4, 12, … 52, 62; 1, 3, … 15.
static inline int4 values_iq2(int4 codes) { return 8 + 17 * codes + (codes >> 1); }
static inline int4 values_iq3_xxs(int4 codes) { return 4 + 8 * codes + ((codes + 1) >> 3 << 1); }
static inline int4 values_iq3_s(int4 codes) { return 1 + 2 * codes; }

/// Octet o of a part.
static inline void put_octet(thread Part& p, uint o, ushort row, uint signs) {
  p.w[2 * o] = with_signs(values_iq2(grid_codes(row, 0, 2)), signs);
  p.w[2 * o + 1] = with_signs(values_iq2(grid_codes(row, 4, 2)), signs >> 4);
}

struct IQ2_XXS : BlockTraits<1, false, IQ2_XXS> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const BlockIQ2_XXS& b = ((device const BlockIQ2_XXS*)row)[part / 8];
    device const uint16_t* words = b.words + 4 * (part % 8);
    const uint tail = uint(words[2]) | uint(words[3]) << 16;
    p.scale.x = from_half(b.d) * (0.5f + float(tail >> 28)) * 0.25f;
    for (uint o = 0; o < 4; ++o) {
      const uint index = uint(words[o / 2]) >> (o % 2 * 8) & 255;
      put_octet(p, o, kPackedIQ2_XXS[index], even_signs(tail >> (7 * o) & 127));
    }
  }
};

/// Scales of a part's halves: a nibble each.
static inline float2 half_scales(float d, uint scales) {
  return d * (0.5f + float2(float(scales & 15), float(scales >> 4))) * 0.25f;
}

struct IQ2_XS : BlockTraits<2, false, IQ2_XS> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const BlockIQ2_XS& b = ((device const BlockIQ2_XS*)row)[part / 8];
    const uint k = part % 8;
    p.scale = half_scales(from_half(b.d), b.scales[k]);
    for (uint o = 0; o < 4; ++o) {
      const uint word = b.words[4 * k + o];
      put_octet(p, o, kPackedIQ2_XS[word & 511], even_signs(word >> 9));
    }
  }
};

struct IQ2_S : BlockTraits<2, false, IQ2_S> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const BlockIQ2_S& b = ((device const BlockIQ2_S*)row)[part / 8];
    const uint k = part % 8;
    p.scale = half_scales(from_half(b.d), b.scales[k]);
    for (uint o = 0; o < 4; ++o) {
      const uint index = uint(b.codes[4 * k + o]) | (uint(b.high[k]) >> (2 * o) & 3) << 8;
      put_octet(p, o, kPackedIQ2_S[index], b.signs[4 * k + o]);
    }
  }
};

struct IQ3_XXS : BlockTraits<1, false, IQ3_XXS> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const BlockIQ3_XXS& b = ((device const BlockIQ3_XXS*)row)[part / 8];
    const uint k = part % 8;
    const uint tail = uint(word_at(b.scales_and_signs + 4 * k));
    p.scale.x = from_half(b.d) * (0.5f + float(tail >> 28)) * 0.5f;
    for (uint i = 0; i < 8; ++i) {
      const uint signs = even_signs(tail >> (i / 2 * 7) & 127) >> (i % 2 * 4);
      p.w[i] = with_signs(values_iq3_xxs(grid_codes(kPackedIQ3_XXS[b.codes[8 * k + i]], 0, 4)), signs);
    }
  }
};

struct IQ3_S : BlockTraits<1, false, IQ3_S> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const BlockIQ3_S& b = ((device const BlockIQ3_S*)row)[part / 8];
    const uint k = part % 8;
    p.scale.x = from_half(b.d) * float(1 + 2 * (b.scales[k / 2] >> (k % 2 * 4) & 15));
    for (uint i = 0; i < 8; ++i) {
      const uint index = uint(b.codes[8 * k + i]) | (uint(b.high[k]) >> i & 1) << 8;
      const uint signs = uint(b.signs[4 * k + i / 2]) >> (i % 2 * 4);
      p.w[i] = with_signs(values_iq3_s(grid_codes(kPackedIQ3_S[index], 0, 4)), signs);
    }
  }
};

/// Octet o of a part: -1, 0 or 1, and a shift that is common to all eight.
static inline void put_shifted(thread Part& p, uint o, uint index, bool down) {
  const ushort row = kPackedIQ1[index];
  const float shift = down ? -1.125f : -0.875f;  // the code is one more than the value
  p.w[2 * o] = float4(grid_codes(row, 0, 2)) + shift;
  p.w[2 * o + 1] = float4(grid_codes(row, 4, 2)) + shift;
}

struct IQ1_S : BlockTraits<1, false, IQ1_S> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const BlockIQ1_S& b = ((device const BlockIQ1_S*)row)[part / 8];
    const uint k = part % 8;
    const uint high = b.high[k];
    p.scale.x = from_half(b.d) * float(2 * (high >> 12 & 7) + 1);
    for (uint o = 0; o < 4; ++o) {
      put_shifted(p, o, uint(b.codes[4 * k + o]) | (high >> (3 * o) & 7) << 8, high >> 15 != 0);
    }
  }
};

struct IQ1_M : BlockTraits<2, false, IQ1_M> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const BlockIQ1_M& b = ((device const BlockIQ1_M*)row)[part / 8];
    const uint k = part % 8;
    // the block's own scale lies in the high nibbles of the others
    const uint d = uint(b.scales[0]) >> 12 | uint(b.scales[1]) >> 12 << 4 | uint(b.scales[2]) >> 12 << 8 |
                   uint(b.scales[3]) >> 12 << 12;
    const uint scales = uint(b.scales[k / 2]) >> (k % 2 * 6);
    p.scale = from_half(ushort(d)) * float2(float(2 * (scales & 7) + 1), float(2 * (scales >> 3 & 7) + 1));
    for (uint o = 0; o < 4; ++o) {
      const uint high = uint(b.high[2 * k + o / 2]) >> (o % 2 * 4);
      put_shifted(p, o, uint(b.codes[4 * k + o]) | (high & 7) << 8, (high & 8) != 0);
    }
  }
};
