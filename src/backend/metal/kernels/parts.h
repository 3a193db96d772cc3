// A part of a weight row: 32 elements in registers, whatever the format, and what is done with them. How each format
// fills one: formats.h. Knows nothing of ops.
#pragma once

#include <metal_stdlib>
using namespace metal;

// Parts stay in registers only where the calls that fill and use them are gone.
#define HC_INLINE static inline __attribute__((always_inline))

constant constexpr uint kPart = 32;  // elements

/// 32 elements in eight quads: w = code, times scale, plus offset. Scales and offsets: of elements 0..15 and of 16..31
/// (x and y; x alone where a part has one).
struct Part {
  float4 w[8];
  float2 scale;
  float2 offset;
};

/// 32 elements of an input.
struct Quads {
  float4 q[8];
};

static inline float from_half(ushort bits) { return float(as_type<half>(bits)); }

// Four bytes at an even address, as a word: two loads instead of four. Then fields of all four bytes at once.
static inline int word_at(device const uint8_t* bytes) {
  device const ushort* h = (device const ushort*)bytes;
  return int(uint(h[0]) | uint(h[1]) << 16);
}
/// The same at any address.
static inline int odd_word_at(device const uint8_t* b) {
  return int(uint(b[0]) | uint(b[1]) << 8 | uint(b[2]) << 16 | uint(b[3]) << 24);
}
/// Bits [shift, shift + width of mask) of each byte.
static inline int4 fields(int word, int shift, int mask) { return (int4(word) >> (int4(0, 8, 16, 24) + shift)) & mask; }
static inline int4 signed_bytes(int word) { return (int4(word) << int4(24, 16, 8, 0)) >> 24; }

/// What of a Part a format uses: one scale or two (per 16 elements), an offset or none. Scalars have neither.
template <uint Scales, bool Offset>
struct FormatTraits {
  enum : uint { kScales = Scales };
  enum : bool { kOffset = Offset };
};

/// Formats of blocks: whole parts only.
template <uint Scales, bool Offset, typename Derived>
struct BlockTraits : FormatTraits<Scales, Offset> {
  static void load_tail(device const uchar* row, uint part, uint, thread Part& p) { Derived::load(row, part, p); }
};

// ---- arithmetic -----------------------------------------------------------------------------------------------------

/// The part's codes become its weights, rounded as quant/dequantize.h rounds.
template <typename F>
static inline void expand(thread Part& p) {
  if (F::kScales == 0) {
    return;
  }
  for (uint i = 0; i < 8; ++i) {
    const bool second = F::kScales == 2 && i >= 4;
    p.w[i] = (second ? p.scale.y : p.scale.x) * p.w[i];
    if (F::kOffset) {
      p.w[i] += second ? p.offset.y : p.offset.x;
    }
  }
}

static inline float add_chains(float4 low, float4 high) {
  const float4 s = low + high;
  const float2 t = s.xy + s.zw;
  return t.x + t.y;
}

/// Sums of x's elements 0..15 and 16..31 (x: of all 32, where a part has one scale), which offsets are multiplied with.
template <typename F>
static inline float2 sums_of(thread const Quads& x) {
  if (!F::kOffset) {
    return float2(0.0f);
  }
  const float2 sums =
      float2(add_chains(x.q[0] + x.q[2], x.q[1] + x.q[3]), add_chains(x.q[4] + x.q[6], x.q[5] + x.q[7]));
  return F::kScales == 2 ? sums : float2(sums.x + sums.y, 0.0f);
}

/// Quads [First, Last) of a part times x, without the scales: eight chains.
template <uint First, uint Last>
HC_INLINE float code_dot(thread const Part& p, thread const Quads& x) {
  float4 low = p.w[First] * x.q[First];
  float4 high = p.w[First + 1] * x.q[First + 1];
  for (uint i = First + 2; i < Last; i += 2) {
    low = fma(p.w[i], x.q[i], low);
    high = fma(p.w[i + 1], x.q[i + 1], high);
  }
  return add_chains(low, high);
}

/// The part's 32 products, added. `sums`: sums_of<F>(x).
template <typename F>
HC_INLINE float dot(thread const Part& p, thread const Quads& x, float2 sums) {
  float r = 0.0f;
  if (F::kScales == 0) {
    r = code_dot<0, 8>(p, x);
  } else if (F::kScales == 1) {
    r = p.scale.x * code_dot<0, 8>(p, x);
  } else {
    r = fma(p.scale.y, code_dot<4, 8>(p, x), p.scale.x * code_dot<0, 4>(p, x));
  }
  if (F::kOffset) {
    r = fma(p.offset.x, sums.x, r);
  }
  if (F::kOffset && F::kScales == 2) {
    r = fma(p.offset.y, sums.y, r);
  }
  return r;
}
