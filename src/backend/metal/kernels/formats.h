// The weight formats, as kernels read them: a trait per format over the block structs of quant/blocks.h. A row of
// weights is taken in parts of 32 elements, whatever the size of its blocks; a part is decoded into registers once and
// then multiplied with as many inputs as there are.
//
//   Part p;                                            // registers: codes, and what they are multiplied with
//   Q4_K::load(row, part, p);                          // row: first byte of the row; part: elements [32 part, +32)
//   Quads x;                                           // 32 elements of the input, four in each x.q[i]
//   const float2 sums = sums_of<Q4_K>(x);              // once per x; nothing where the format has no offset
//   sum += dot<Q4_K>(p, x, sums);                      // f32, always the same order: eight chains, added by halves
//   expand<Q4_K>(p);                                   // or: p.w[i / 4][i % 4] are the weights, bit by bit those of
//                                                      // quant/dequantize.h
//
// The format is a constant of the pipeline (or of one of its matrices), so a kernel switches on it by
//   switch (kFormat) {
//   #define HC_CASE(id, F) case id: accumulate<F>(...); break;
//     HC_METAL_FORMATS(HC_CASE)
//   #undef HC_CASE
//   }
// which costs nothing once the pipeline is compiled. Rows of scalars (F32, F16, BF16) may end within a part:
// F::load_tail(row, part, count, p) reads `count` elements and takes the rest as zeros; blocks always fill their parts.
// A row begins at an even address (scalars: at a multiple of their size); nothing else is assumed. Offsets into weights
// are 64-bit: offsets.h. Knows nothing of ops.
#pragma once

#include "../../../quant/blocks.h"
#include "format_list.h"
#include "grid_formats.h"
#include "offsets.h"
#include "parts.h"

#include <metal_stdlib>
using namespace metal;

// ---- scalars --------------------------------------------------------------------------------------------------------

struct F32 : FormatTraits<0, false> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const packed_float4* x = (device const packed_float4*)row + ulong(part) * 8;
    for (uint i = 0; i < 8; ++i) {
      p.w[i] = float4(x[i]);
    }
  }
  static void load_tail(device const uchar* row, uint part, uint count, thread Part& p) {
    device const float* x = (device const float*)row + ulong(part) * kPart;
    for (uint i = 0; i < kPart; ++i) {
      p.w[i / 4][i % 4] = i < count ? x[i] : 0.0f;
    }
  }
};

struct F16 : FormatTraits<0, false> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const packed_half4* x = (device const packed_half4*)row + ulong(part) * 8;
    for (uint i = 0; i < 8; ++i) {
      p.w[i] = float4(half4(x[i]));
    }
  }
  static void load_tail(device const uchar* row, uint part, uint count, thread Part& p) {
    device const half* x = (device const half*)row + ulong(part) * kPart;
    for (uint i = 0; i < kPart; ++i) {
      p.w[i / 4][i % 4] = i < count ? float(x[i]) : 0.0f;
    }
  }
};

struct BF16 : FormatTraits<0, false> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const packed_ushort4* x = (device const packed_ushort4*)row + ulong(part) * 8;
    for (uint i = 0; i < 8; ++i) {
      p.w[i] = as_type<float4>(uint4(ushort4(x[i])) << 16);
    }
  }
  static void load_tail(device const uchar* row, uint part, uint count, thread Part& p) {
    device const ushort* x = (device const ushort*)row + ulong(part) * kPart;
    for (uint i = 0; i < kPart; ++i) {
      p.w[i / 4][i % 4] = i < count ? as_type<float>(uint(x[i]) << 16) : 0.0f;
    }
  }
};

// ---- 32 elements, one scale: codes[j] holds x[j] in its low and x[j + 16] in its high nibble ------------------------

struct Q4_0 : BlockTraits<1, false, Q4_0> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const BlockQ4_0& b = ((device const BlockQ4_0*)row)[part];
    p.scale.x = from_half(b.d);
    for (uint i = 0; i < 4; ++i) {
      const int codes = word_at(b.codes + 4 * i);
      p.w[i] = float4(fields(codes, 0, 15) - 8);
      p.w[i + 4] = float4(fields(codes, 4, 15) - 8);
    }
  }
};

struct Q4_1 : BlockTraits<1, true, Q4_1> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const BlockQ4_1& b = ((device const BlockQ4_1*)row)[part];
    p.scale.x = from_half(b.d);
    p.offset.x = from_half(b.m);
    for (uint i = 0; i < 4; ++i) {
      const int codes = word_at(b.codes + 4 * i);
      p.w[i] = float4(fields(codes, 0, 15));
      p.w[i + 4] = float4(fields(codes, 4, 15));
    }
  }
};

/// Bits [first, first + 4) of a word, each in the place that a fifth bit has in a code.
static inline int4 fifth_bits(int high, int first) { return ((int4(high) >> (int4(0, 1, 2, 3) + first)) & 1) << 4; }

struct Q5_0 : BlockTraits<1, false, Q5_0> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const BlockQ5_0& b = ((device const BlockQ5_0*)row)[part];
    p.scale.x = from_half(b.d);
    const int high = word_at(b.high);
    for (uint i = 0; i < 4; ++i) {
      const int codes = word_at(b.codes + 4 * i);
      p.w[i] = float4((fields(codes, 0, 15) | fifth_bits(high, int(4 * i))) - 16);
      p.w[i + 4] = float4((fields(codes, 4, 15) | fifth_bits(high, int(4 * i + 16))) - 16);
    }
  }
};

struct Q5_1 : BlockTraits<1, true, Q5_1> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const BlockQ5_1& b = ((device const BlockQ5_1*)row)[part];
    p.scale.x = from_half(b.d);
    p.offset.x = from_half(b.m);
    const int high = word_at(b.high);
    for (uint i = 0; i < 4; ++i) {
      const int codes = word_at(b.codes + 4 * i);
      p.w[i] = float4(fields(codes, 0, 15) | fifth_bits(high, int(4 * i)));
      p.w[i + 4] = float4(fields(codes, 4, 15) | fifth_bits(high, int(4 * i + 16)));
    }
  }
};

struct Q8_0 : BlockTraits<1, false, Q8_0> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const BlockQ8_0& b = ((device const BlockQ8_0*)row)[part];
    p.scale.x = from_half(b.d);
    for (uint i = 0; i < 8; ++i) {
      p.w[i] = float4(signed_bytes(word_at((device const uint8_t*)b.codes + 4 * i)));
    }
  }
};

constant constexpr float kValuesIQ4_NL[16] = {HC_IQ4_NL_VALUES};
constant constexpr float kE2M1Doubled[16] = {HC_E2M1_DOUBLED};
static inline float4 look_up(constant const float* values, int4 codes) {
  return float4(values[codes.x], values[codes.y], values[codes.z], values[codes.w]);
}

struct IQ4_NL : BlockTraits<1, false, IQ4_NL> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const BlockIQ4_NL& b = ((device const BlockIQ4_NL*)row)[part];
    p.scale.x = from_half(b.d);
    for (uint i = 0; i < 4; ++i) {
      const int codes = word_at(b.codes + 4 * i);
      p.w[i] = look_up(kValuesIQ4_NL, fields(codes, 0, 15));
      p.w[i + 4] = look_up(kValuesIQ4_NL, fields(codes, 4, 15));
    }
  }
};

/// 2^(exponent - 128): the two smallest would be subnormal, which a GPU takes as zero.
static inline float e8m0_half(uint exponent) { return exponent < 2 ? 0.0f : as_type<float>((exponent - 1) << 23); }

struct MXFP4 : BlockTraits<1, false, MXFP4> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const BlockMXFP4& b = ((device const BlockMXFP4*)row)[part];
    p.scale.x = e8m0_half(b.exponent);
    for (uint i = 0; i < 4; ++i) {
      const int codes = odd_word_at(b.codes + 4 * i);  // 17 bytes a block
      p.w[i] = look_up(kE2M1Doubled, fields(codes, 0, 15));
      p.w[i + 4] = look_up(kE2M1Doubled, fields(codes, 4, 15));
    }
  }
};

// ---- 64 elements, a scale per 16 ------------------------------------------------------------------------------------

/// Half of an unsigned E4M3 number; the other half of the product lies in the doubled codes.
static inline float e4m3_half(uint x) {
  if (x == 0x7f) {
    return 0.0f;
  }
  const uint exponent = x >> 3 & 15;
  const uint mantissa = x & 7;
  return exponent == 0 ? float(mantissa) * 0.0009765625f : as_type<float>((exponent + 119) << 23 | mantissa << 20);
}

struct NVFP4 : BlockTraits<2, false, NVFP4> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const BlockNVFP4& b = ((device const BlockNVFP4*)row)[part / 2];
    const uint s = part % 2 * 2;  // of the first 16 elements
    p.scale = float2(e4m3_half(b.d[s]), e4m3_half(b.d[s + 1]));
    for (uint i = 0; i < 4; ++i) {
      // x[16 s + j] and x[16 s + j + 8] share a byte: a word holds quads i and i + 2 of its 16 elements
      const int codes = word_at(b.codes + 8 * s + 4 * i);
      const uint quad = i / 2 * 4 + i % 2;
      p.w[quad] = look_up(kE2M1Doubled, fields(codes, 0, 15));
      p.w[quad + 2] = look_up(kE2M1Doubled, fields(codes, 4, 15));
    }
  }
};

// ---- 256 elements: eight parts of a block. k = part % 8; h = k / 4 and s = k % 4 as in quant/blocks.h ---------------

struct Q2_K : BlockTraits<2, true, Q2_K> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const BlockQ2_K& b = ((device const BlockQ2_K*)row)[part / 8];
    const uint k = part % 8;
    const uint2 scales = uint2(b.scales[2 * k], b.scales[2 * k + 1]);
    p.scale = from_half(b.d) * float2(scales & 15);
    p.offset = -from_half(b.dmin) * float2(scales >> 4);
    for (uint i = 0; i < 8; ++i) {
      p.w[i] = float4(fields(word_at(b.codes + 32 * (k / 4) + 4 * i), int(k % 4 * 2), 3));
    }
  }
};

struct Q3_K : BlockTraits<2, false, Q3_K> {
  static float scale_of(device const BlockQ3_K& b, uint i) {  // of 16 scales
    const uint low = uint(b.scales[i % 8]) >> (i / 8 * 4) & 15;
    const uint high = uint(b.scales[8 + i % 4]) >> (i / 4 * 2) & 3;
    return from_half(b.d) * float(int(low | high << 4) - 32);
  }
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const BlockQ3_K& b = ((device const BlockQ3_K*)row)[part / 8];
    const uint k = part % 8;
    p.scale = float2(scale_of(b, 2 * k), scale_of(b, 2 * k + 1));
    for (uint i = 0; i < 8; ++i) {
      const int4 low = fields(word_at(b.codes + 32 * (k / 4) + 4 * i), int(k % 4 * 2), 3);
      const int4 high = fields(word_at(b.high + 4 * i), int(k), 1) << 2;
      p.w[i] = float4((low | high) - 4);
    }
  }
};

/// Scale and minimum k of the eight that Q4_K and Q5_K share: 6 bits each.
static inline float2 scale_and_min(device const uint8_t* scales, uint k) {
  if (k < 4) {
    return float2(float(scales[k] & 63), float(scales[k + 4] & 63));
  }
  const uint high = uint(scales[k + 4]);
  return float2(float((high & 15) | uint(scales[k - 4]) >> 6 << 4), float(high >> 4 | uint(scales[k]) >> 6 << 4));
}

struct Q4_K : BlockTraits<1, true, Q4_K> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const BlockQ4_K& b = ((device const BlockQ4_K*)row)[part / 8];
    const uint k = part % 8;
    const float2 s = scale_and_min(b.scales, k);
    p.scale.x = from_half(b.d) * s.x;
    p.offset.x = -from_half(b.dmin) * s.y;
    for (uint i = 0; i < 8; ++i) {
      p.w[i] = float4(fields(word_at(b.codes + 32 * (k / 2) + 4 * i), int(k % 2 * 4), 15));
    }
  }
};

struct Q5_K : BlockTraits<1, true, Q5_K> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const BlockQ5_K& b = ((device const BlockQ5_K*)row)[part / 8];
    const uint k = part % 8;
    const float2 s = scale_and_min(b.scales, k);
    p.scale.x = from_half(b.d) * s.x;
    p.offset.x = -from_half(b.dmin) * s.y;
    for (uint i = 0; i < 8; ++i) {
      const int4 low = fields(word_at(b.codes + 32 * (k / 2) + 4 * i), int(k % 2 * 4), 15);
      p.w[i] = float4(low | fields(word_at(b.high + 4 * i), int(k), 1) << 4);
    }
  }
};

struct Q6_K : BlockTraits<2, false, Q6_K> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const BlockQ6_K& b = ((device const BlockQ6_K*)row)[part / 8];
    const uint k = part % 8;
    p.scale = from_half(b.d) * float2(float(b.scales[2 * k]), float(b.scales[2 * k + 1]));
    for (uint i = 0; i < 8; ++i) {
      const int4 low = fields(word_at(b.codes + 64 * (k / 4) + 32 * (k % 2) + 4 * i), int(k / 2 % 2 * 4), 15);
      const int4 high = fields(word_at(b.high + 32 * (k / 4) + 4 * i), int(k % 4 * 2), 3);
      p.w[i] = float4((low | high << 4) - 32);
    }
  }
};

struct IQ4_XS : BlockTraits<1, false, IQ4_XS> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const BlockIQ4_XS& b = ((device const BlockIQ4_XS*)row)[part / 8];
    const uint k = part % 8;
    const uint low = uint(b.scales_low[k / 2]) >> (k % 2 * 4) & 15;
    const uint high = uint(b.scales_high) >> (2 * k) & 3;
    p.scale.x = from_half(b.d) * float(int(low | high << 4) - 32);
    for (uint i = 0; i < 4; ++i) {
      const int codes = word_at(b.codes + 16 * k + 4 * i);
      p.w[i] = look_up(kValuesIQ4_NL, fields(codes, 0, 15));
      p.w[i + 4] = look_up(kValuesIQ4_NL, fields(codes, 4, 15));
    }
  }
};

struct TQ2_0 : BlockTraits<1, false, TQ2_0> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const BlockTQ2_0& b = ((device const BlockTQ2_0*)row)[part / 8];
    const uint k = part % 8;
    p.scale.x = from_half(b.d);
    for (uint i = 0; i < 8; ++i) {
      p.w[i] = float4(fields(word_at(b.codes + 32 * (k / 4) + 4 * i), int(k % 4 * 2), 3) - 1);
    }
  }
};

/// Trit k of a byte, less 1: the byte is a fraction of 256, its trits are read from the top.
static inline float trit(uint code, uint k) {
  const uint power = k == 0 ? 1 : k == 1 ? 3 : k == 2 ? 9 : k == 3 ? 27 : 81;
  return float(int((code * power & 255) * 3 >> 8) - 1);
}

struct TQ1_0 : BlockTraits<1, false, TQ1_0> {
  HC_INLINE void load(device const uchar* row, uint part, thread Part& p) {
    device const BlockTQ1_0& b = ((device const BlockTQ1_0*)row)[part / 8];
    const uint k = part % 8;
    p.scale.x = from_half(b.d);
    for (uint j = 0; j < 32; ++j) {
      const uint rest = (k - 5) * 32 + j;  // from element 160 on
      p.w[j / 4][j % 4] = k < 5       ? trit(b.codes[j], k)
                          : rest < 80 ? trit(b.codes[32 + rest % 16], rest / 16)
                                      : trit(b.tail[rest % 4], (rest - 80) / 4);
    }
  }
};
