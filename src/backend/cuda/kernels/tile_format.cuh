// What a format is to products of its packed tiles (packed.cuh) by a warp: how its codes become bytes (codes), what
// they are multiplied by then and how many columns a scale has (TileFormat), what is subtracted from every code
// (offset_of), and its scales and minimums (LaneScales). Knows nothing of activations.
#pragma once

#include "backend/cuda/kernels/packed.cuh"

namespace honeycrisp::backend::cuda {

/// kScaleColumns: of a scale, 32 or 16. kLowUnit, kHighUnit: what codes() multiplies codes of low and of high columns
/// by, powers of two; equal where a scale has 32 columns. kMinimums: LaneScales has some.
template <Format F>
struct TileFormat {
  static constexpr int kScaleColumns = has_half_blocks(F) ? 16 : 32;
  static constexpr float kLowUnit = 1, kHighUnit = 1;
  static constexpr bool kMinimums = has_half_minimums(F) || has_row_minimum(F);
};
template <Format F>
  requires(F == Format::kQ4_0 || F == Format::kQ4_1 || F == Format::kQ4_K)
struct TileFormat<F> {
  static constexpr int kScaleColumns = 32;
  static constexpr float kLowUnit = 16, kHighUnit = 16;
  static constexpr bool kMinimums = F != Format::kQ4_0;
};
template <>
struct TileFormat<Format::kQ6_K> {
  static constexpr int kScaleColumns = 16;
  static constexpr float kLowUnit = 1, kHighUnit = 4;
  static constexpr bool kMinimums = false;
};

/// The bytes of a table of sixteen values, with the offset, four in a word.
template <Format F>
constexpr uint32_t table_word(int i) {
  constexpr int kIq4Nl[16] = {HC_IQ4_NL_VALUES}, kE2m1[16] = {HC_E2M1_DOUBLED};
  uint32_t word = 0;
  for (int byte = 0; byte < 4; ++byte) {
    const int code = 4 * i + byte;
    const int value = F == Format::kIQ4_NL || F == Format::kIQ4_XS ? kIq4Nl[code] : kE2m1[code];
    word |= uint32_t(value + offset_of(F)) << (8 * byte);
  }
  return word;
}
/// The values of the four indices in the low half of a word, as bytes.
template <Format F>
__device__ __forceinline__ uint32_t looked_up(uint32_t indices) {
  constexpr uint32_t kWords[4] = {table_word<F>(0), table_word<F>(1), table_word<F>(2), table_word<F>(3)};
  const uint32_t of_eight = indices & 0x7777;
  const uint32_t first = __byte_perm(kWords[0], kWords[1], of_eight),
                 last = __byte_perm(kWords[2], kWords[3], of_eight);
  return __byte_perm(first, last, 0x3210 | (indices >> 1 & 0x4444));
}
/// v turned so that its bit `from` becomes bit `to`.
__device__ __forceinline__ uint32_t moved(uint32_t v, int from, int to) {
  return from < to ? v << (to - from) : v >> (from - to);
}

/// The A fragments of block i of a tile, unsigned bytes: rows g and g + 8 of the low columns, and of the high ones.
template <Format F>
__device__ __forceinline__ void codes(const Tile<F>& r, int i, uint32_t (&a)[4]) {
  if constexpr (F == Format::kQ8_0) {
    a[0] = r.w[i].x, a[1] = r.w[i].y, a[2] = r.w[i].z, a[3] = r.w[i].w;
  } else if constexpr (layout_of(F).bits == 2) {
    const uint4& four = r.w[i >> 2];
    const uint32_t w = (i & 3) == 0 ? four.x : (i & 3) == 1 ? four.y : (i & 3) == 2 ? four.z : four.w;
#pragma unroll
    for (int k = 0; k < 4; ++k) a[k] = w >> (2 * k) & 0x03030303;
  } else {
    const uint4& w = r.w[i >> 1];
    const uint32_t words[2] = {i & 1 ? w.z : w.x, i & 1 ? w.w : w.y};
#pragma unroll
    for (int r8 = 0; r8 < 2; ++r8) {
      if constexpr (F == Format::kQ6_K) {
        const uint32_t two = two_bits_of(i & 1 ? r.h[i >> 1].y : r.h[i >> 1].x, r8);
        a[r8] = (words[r8] & 0x0f0f0f0f) | (two & 0x30303030);
        a[2 + r8] = (words[r8] & 0xf0f0f0f0) | (two & 0x0c0c0c0c);
      } else if constexpr (layout_of(F).table) {
        a[r8] = looked_up<F>(words[r8]);
        a[2 + r8] = looked_up<F>(words[r8] >> 16);
      } else if constexpr (layout_of(F).bit_more) {
        a[r8] = words[r8] & 0x0f0f0f0f;
        a[2 + r8] = words[r8] >> 4 & 0x0f0f0f0f;
      } else {
        a[r8] = (words[r8] * 16) & 0xf0f0f0f0;  // by the multiplier, which is idle
        a[2 + r8] = words[r8] & 0xf0f0f0f0;
      }
    }
  }
  if constexpr (layout_of(F).bit_more) {
    constexpr int kAt = layout_of(F).bits;
    const uint32_t w = i < 2 ? r.bit.x : i < 4 ? r.bit.y : i < 6 ? r.bit.z : r.bit.w;
#pragma unroll
    for (int k = 0; k < 4; ++k) a[k] |= moved(w, 4 * (i & 1) + k, kAt) & (0x01010101u << kAt);
  }
}

/// The i-th of four signed bytes, as a number: its bits lie under the exponent of 2^23.
__device__ __forceinline__ float signed_byte(uint32_t word, int i) {
  return __uint_as_float(__byte_perm(word ^ 0x80808080, 0x4b000000, 0x7540 | i)) - 8388736.0f;
}

/// What a lane knows of its blocks 2t and 2t + 1 (or half blocks 4t..4t + 3) in rows g and g + 8: scales; minimums,
/// times minus the unit; and what their sum is multiplied by in the end.
template <Format F>
struct LaneScales {
  static constexpr int kEach = 64 / TileFormat<F>::kScaleColumns;
  float of[2][kEach], minus_min[2][kEach], whole[2];

  __device__ __forceinline__ explicit LaneScales(const Tile<F>& r) {
    constexpr float kUnit = TileFormat<F>::kLowUnit;
    whole[0] = whole[1] = 1 / kUnit;
    if constexpr (has_half_scales(F)) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        float2 s;
        if constexpr (has_own_tile(F))
          s = halves(r.sa[row]);
        else
          s = halves(r.scales[row]);
        of[row][0] = s.x, of[row][1] = s.y;
        if constexpr (has_half_minimums(F)) {
          const float2 m = halves(r.of_rows[row]);  // added, not subtracted
          minus_min[row][0] = kUnit * m.x, minus_min[row][1] = kUnit * m.y;
        }
      }
    } else if constexpr (F == Format::kQ4_K) {
      take_fields(r.sm, r.sh, halves(r.d0), halves(r.d1));
    } else if constexpr (F == Format::kQ5_K) {
      take_fields(r.scales[0], r.scales[1], halves(r.of_rows[0]), halves(r.of_rows[1]));
    } else if constexpr (F == Format::kQ6_K) {
      const float2 d = halves(r.d);
      whole[0] = d.x, whole[1] = d.y;
#pragma unroll
      for (int i = 0; i < 4; ++i) of[0][i] = signed_byte(r.sc.x, i), of[1][i] = signed_byte(r.sc.y, i);
    } else if constexpr (F == Format::kQ3_K) {
      const uint32_t fields[2] = {r.scales[0] & 0xffffff, (r.scales[0] >> 24) | (r.scales[1] << 8)};
      const float2 d = halves(r.of_rows[0]);
      whole[0] = d.x, whole[1] = d.y;
#pragma unroll
      for (int row = 0; row < 2; ++row)
#pragma unroll
        for (int i = 0; i < 4; ++i) of[row][i] = float(int(fields[row] >> (6 * i) & 63) - 32);
    } else if constexpr (F == Format::kIQ4_XS) {
      const float2 d = halves(r.of_rows[0]);
      whole[0] = d.x, whole[1] = d.y;
#pragma unroll
      for (int i = 0; i < 4; ++i) of[i / 2][i % 2] = signed_byte(r.scales[0], i);
    } else if constexpr (F == Format::kMXFP4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) of[i / 2][i % 2] = scale_of_e8m0(r.scales[0] >> (8 * i) & 255);
    } else {
#pragma unroll
      for (int row = 0; row < 2; ++row)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t byte = r.scales[row] >> (8 * i) & 255;
          if constexpr (F == Format::kNVFP4) {
            of[row][i] = half_of_e4m3(uint8_t(byte));
          } else {
            const float2 d = halves(r.of_rows[row]);
            of[row][i] = d.x * float(byte & 15);
            minus_min[row][i] = -kUnit * d.y * float(byte >> 4);
          }
        }
    }
  }

 private:
  // Scales and minimums of six bits each.
  __device__ __forceinline__ void take_fields(uint32_t low, uint32_t high, const float2& d0, const float2& d1) {
    constexpr float kUnit = TileFormat<F>::kLowUnit;
    const uint32_t fields[2] = {low & 0xffffff, (low >> 24) | (high << 8)};
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float2& d = row == 0 ? d0 : d1;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        of[row][i] = d.x * float(fields[row] >> (12 * i) & 63);
        minus_min[row][i] = -kUnit * d.y * float(fields[row] >> (12 * i + 6) & 63);
      }
    }
  }
};

/// Two f16 or bf16 as numbers.
template <Format F>
__device__ __forceinline__ float2 floats_of(uint32_t word) {
  return {Element<F>::value(uint16_t(word)), Element<F>::value(uint16_t(word >> 16))};
}

/// use(block, high, r8, v): the values of columns 16 high + 4t .. of a block of 32, in row g + 8 r8. By a whole warp.
template <Format F, class Use>
__device__ __forceinline__ void for_each_four(const Tile<F>& r, int lane, const Use& use) {
  constexpr int kHalves = has_half_blocks(F) ? 2 : 1;
  constexpr float kUnit = TileFormat<F>::kLowUnit;
  const LaneScales<F> mine(r);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int source = (lane & 28) | (i >> 1);
    uint32_t a[4];
    codes<F>(r, i, a);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int high = k >> 1, r8 = k & 1, at = (i & 1) * kHalves + (kHalves == 2 ? high : 0);
      const float of = __shfl_sync(~0u, mine.of[r8][at], source);
      float added = 0;
      if constexpr (TileFormat<F>::kMinimums) added = __shfl_sync(~0u, mine.minus_min[r8][at], source);
      float v[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float code = float(a[k] >> (8 * byte_of_element(e)) & 255) - kUnit * float(offset_of(F));
        const float scaled = of * code;
        v[e] = (TileFormat<F>::kMinimums ? scaled + added : scaled) * mine.whole[r8];
      }
      use(i, high, r8, v);
    }
  }
}

template <Format F, class Use>
  requires(is_packed_float(F))
__device__ __forceinline__ void for_each_four(const Tile<F>& r, int, const Use& use) {
#pragma unroll
  for (int half = 0; half < 16; ++half)
#pragma unroll
    for (int r8 = 0; r8 < 2; ++r8) {
      const uint4 w = r.half_block(half);
      const float2 first = floats_of<F>(r8 == 0 ? w.x : w.y), last = floats_of<F>(r8 == 0 ? w.z : w.w);
      const float v[4] = {first.x, first.y, last.x, last.y};
      use(half / 2, half % 2, r8, v);
    }
}

}  // namespace honeycrisp::backend::cuda
