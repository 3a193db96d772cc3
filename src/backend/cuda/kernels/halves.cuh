// Weights as f16 in the registers that tensor cores read: the A fragments of 64 columns (four steps of 16) for the 16
// rows of a row tile, straight from its packed tiles, or from half tiles that hold the fragments themselves.
//
// Every row of a weight is scaled by a power of two (row_exponents, found at load) that brings its largest scale near
// the top of f16, so a weight's rounding error is 2^-12 of itself, or 2^-26 of the row's largest, whatever its
// magnitude. Codes become f16 without conversion: 0x6400 | q is 1024 + q, and of 4 q or 16 q likewise. Formats
// with a minimum are centred: (q - 8) · scale - (min - 8 · scale), whose terms are no larger than the weights.
//
// Half tile: 16 rows x 256 columns, uint4[16 steps][32 lanes] = a fragment each; columns as packed.cuh orders them.
#pragma once

#include "backend/cuda/kernels/packed.cuh"

namespace honeycrisp::backend::cuda {

/// The format that stands for half tiles.
constexpr Format kHalfTiles = Format::kF16;
constexpr int kLargestRowExponent = 30;  // so that two factors in f16 make up the scaling

// What a lane's two rows (g and g + 8 of the tile) are scaled with.
struct RowFactors {
  float whole[2];
  uint32_t half[2][2];  // the same as two factors in f16, each twice
};
__device__ __forceinline__ float power_of_two(int exponent) { return __int_as_float((127 + exponent) << 23); }
/// What brings a row's largest value to 2^13..2^14: scales and what they are multiplied with stay finite.
__device__ __forceinline__ int exponent_for(float largest, int least, int most) {
  constexpr int kTarget = 13;
  if (!(largest > 0 && largest < INFINITY)) return 0;
  return max(least, min(most, kTarget - ilogbf(largest)));
}
__device__ __forceinline__ RowFactors row_factors(const int8_t* exponents, int lane) {
  RowFactors f;
#pragma unroll
  for (int r8 = 0; r8 < 2; ++r8) {
    const int e = exponents[lane / 4 + 8 * r8];
    f.whole[r8] = power_of_two(e);
    const __half2 first = __float2half2_rn(power_of_two(e / 2)), second = __float2half2_rn(power_of_two(e - e / 2));
    f.half[r8][0] = *reinterpret_cast<const uint32_t*>(&first);
    f.half[r8][1] = *reinterpret_cast<const uint32_t*>(&second);
  }
  return f;
}

// ---- pairs of f16 in a register

__device__ __forceinline__ __half2 as_halves(uint32_t v) { return *reinterpret_cast<const __half2*>(&v); }
__device__ __forceinline__ uint32_t as_word(__half2 v) { return *reinterpret_cast<const uint32_t*>(&v); }
__device__ __forceinline__ uint32_t both_low(uint32_t v) { return __byte_perm(v, v, 0x1010); }
__device__ __forceinline__ uint32_t both_high(uint32_t v) { return __byte_perm(v, v, 0x3232); }
__device__ __forceinline__ __half2 twice(float v) { return __float2half2_rn(v); }

/// 1024 + the bits of v under the mask, in one instruction.
__device__ __forceinline__ __half2 on_1024(uint32_t v, uint32_t mask) {
  uint32_t r;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(v), "r"(mask), "r"(0x64006400));  // (v & mask) | 0x64006400
  return as_halves(r);
}
/// Of codes q in v -> (q - kOffset), exactly; of 16 q: the same.
template <int kOffset>
__device__ __forceinline__ __half2 centred(uint32_t v, uint32_t mask = 0x000f000f) {
  return __hsub2(on_1024(v, mask), twice(1024 + kOffset));
}
template <int kOffset>
__device__ __forceinline__ __half2 centred16(uint32_t v, uint32_t mask = 0x00f000f0) {
  return __hfma2(on_1024(v, mask), twice(0.0625f), twice(-64 - kOffset));
}

/// Of codes 4 q in v -> (q - kOffset), exactly.
template <int kOffset>
__device__ __forceinline__ __half2 centred4(uint32_t v, uint32_t mask) {
  return __hfma2(on_1024(v, mask), twice(0.25f), twice(-256 - kOffset));
}

/// The bits of a under the mask, the others of b.
__device__ __forceinline__ uint32_t merged(uint32_t a, uint32_t b, uint32_t mask) {
  uint32_t r;
  asm("lop3.b32 %0, %1, %2, %3, 0xe4;" : "=r"(r) : "r"(a), "r"(b), "r"(mask));  // (a & mask) | (b & ~mask)
  return r;
}

// Loads that stay out of L1: weights are used once by a block, and by other blocks from L2.
struct WeightLoad {
  template <class T>
  static __device__ __forceinline__ T load(const uint8_t* p) {
    T v;
    if constexpr (sizeof(T) == 16)
      asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                   : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                   : "l"(p));
    else
      v = __ldg(reinterpret_cast<const T*>(p));
    return v;
  }
};

/// Registers of a load unit, and its fragments: weights rounded to f16, or (kLow) what that leaves of them, as f16
/// again. kSteps: groups of 64 columns in a unit; 4 / kSteps units make a tile.
template <Format F>
struct Halves;

/// Codes of block b of a pair in row g + 8 r8, in formats of four bits.
__device__ __forceinline__ uint32_t code_word(const uint4& w, int b, int r8) {
  return b == 0 ? (r8 == 0 ? w.x : w.y) : (r8 == 0 ? w.z : w.w);
}
/// What rounding to `high` left of codes · scale + offset.
__device__ __forceinline__ __half2 low_part(__half2 codes, float scale, float offset, __half2 high) {
  const float2 c = __half22float2(codes), h = __half22float2(high);
  return __floats2half2_rn(fmaf(c.x, scale, offset) - h.x, fmaf(c.y, scale, offset) - h.y);
}

template <>
struct Halves<Format::kQ4_0> {
  static constexpr int kSteps = 4;
  uint4 w[4], s[2];

  __device__ __forceinline__ void load(const uint8_t* tile, int, int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = WeightLoad::load<uint4>(tile + i * 512 + lane * 16);
#pragma unroll
    for (int r8 = 0; r8 < 2; ++r8) s[r8] = WeightLoad::load<uint4>(tile + 2048 + lane / 4 * 32 + 16 * r8);
  }
  template <bool kLow>
  __device__ __forceinline__ void prepare(const RowFactors&) {}
  template <bool kLow>
  __device__ __forceinline__ void fragments(uint32_t (&a)[4][4], int q, const RowFactors& f, int) const {
    const auto product = [](__half2 codes, __half2 scale) {
      const __half2 high = __hmul2(codes, scale);
      return as_word(kLow ? __hfma2(codes, scale, __hneg2(high)) : high);
    };
    uint32_t scales[2];
#pragma unroll
    for (int r8 = 0; r8 < 2; ++r8) {
      const uint32_t word = q == 0 ? s[r8].x : q == 1 ? s[r8].y : q == 2 ? s[r8].z : s[r8].w;
      scales[r8] = as_word(__hmul2(__hmul2(as_halves(word), as_halves(f.half[r8][0])), as_halves(f.half[r8][1])));
    }
#pragma unroll
    for (int b = 0; b < 2; ++b)
#pragma unroll
      for (int r8 = 0; r8 < 2; ++r8) {
        const uint32_t v = code_word(w[q], b, r8);
        const __half2 scale = as_halves(b == 0 ? both_low(scales[r8]) : both_high(scales[r8]));
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const uint32_t codes = e == 0 ? v : v >> 8;
          a[2 * b][2 * e + r8] = product(centred<8>(codes), scale);
          a[2 * b + 1][2 * e + r8] = product(centred16<8>(codes), scale);
        }
      }
  }
};

template <>
struct Halves<Format::kQ8_0> {
  static constexpr int kSteps = 2;
  uint4 w[4];
  uint2 s[2];

  __device__ __forceinline__ void load(const uint8_t* tile, int part, int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = WeightLoad::load<uint4>(tile + (part * 4 + i) * 512 + lane * 16);
#pragma unroll
    for (int r8 = 0; r8 < 2; ++r8) s[r8] = WeightLoad::load<uint2>(tile + 4096 + lane / 4 * 32 + 16 * r8 + part * 8);
  }
  template <bool kLow>
  __device__ __forceinline__ void prepare(const RowFactors&) {}
  template <bool kLow>
  __device__ __forceinline__ void fragments(uint32_t (&a)[4][4], int q, const RowFactors& f, int) const {
#pragma unroll
    for (int r8 = 0; r8 < 2; ++r8) {
      const uint32_t word = q == 0 ? s[r8].x : s[r8].y;
      const uint32_t scales =
          as_word(__hmul2(__hmul2(as_halves(word), as_halves(f.half[r8][0])), as_halves(f.half[r8][1])));
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const uint4& v = w[2 * q + b];
        const __half2 scale = as_halves(b == 0 ? both_low(scales) : both_high(scales));
#pragma unroll
        for (int high = 0; high < 2; ++high) {
          const uint32_t codes = high == 0 ? (r8 == 0 ? v.x : v.y) : (r8 == 0 ? v.z : v.w);
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const __half2 code =
                __hsub2(as_halves(__byte_perm(codes, 0x64646464, e == 0 ? 0x4240 : 0x4341)), twice(1024 + 128));
            const __half2 product = __hmul2(code, scale);
            a[2 * b + high][2 * e + r8] = as_word(kLow ? __hfma2(code, scale, __hneg2(product)) : product);
          }
        }
      }
    }
  }
};

template <>
struct Halves<Format::kQ4_K> {
  static constexpr int kSteps = 4;
  uint4 w[4];
  uint32_t sm, sh, d[2];
  uint32_t scales[2][2];  // [row][block of the lane's pair]{scale, minus the centred minimum}
  float2 exact[2][2];     // the same, where low parts are wanted

  __device__ __forceinline__ void load(const uint8_t* tile, int, int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = WeightLoad::load<uint4>(tile + i * 512 + lane * 16);
    sm = WeightLoad::load<uint32_t>(tile + 2048 + lane * 4);
    sh = WeightLoad::load<uint16_t>(tile + 2176 + lane * 2);
#pragma unroll
    for (int r8 = 0; r8 < 2; ++r8) d[r8] = WeightLoad::load<uint32_t>(tile + 2240 + (lane / 4 + 8 * r8) * 4);
  }
  template <bool kLow>
  __device__ __forceinline__ void prepare(const RowFactors& f) {
#pragma unroll
    for (int r8 = 0; r8 < 2; ++r8) {
      const uint32_t fields = r8 == 0 ? sm & 0xffffff : (sm >> 24) | (sh << 8);
      const float2 both = halves(d[r8]);
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const float scale = both.x * float(fields >> (12 * b) & 63);
        const float offset = both.y * float(fields >> (12 * b + 6) & 63) - 8 * scale;
        scales[r8][b] = pack_halves(scale * f.whole[r8], -(offset * f.whole[r8]));
        if (kLow) exact[r8][b] = {scale * f.whole[r8], -(offset * f.whole[r8])};
      }
    }
  }
  template <bool kLow>
  __device__ __forceinline__ void fragments(uint32_t (&a)[4][4], int q, const RowFactors&, int lane) const {
#pragma unroll
    for (int b = 0; b < 2; ++b)
#pragma unroll
      for (int r8 = 0; r8 < 2; ++r8) {
        const uint32_t v = code_word(w[q], b, r8);
        const uint32_t both = __shfl_sync(~0u, scales[r8][b], (lane & 28) | q);
        const __half2 scale = as_halves(both_low(both)), offset = as_halves(both_high(both));
        float2 whole;
        if (kLow)
          whole = {__shfl_sync(~0u, exact[r8][b].x, (lane & 28) | q),
                   __shfl_sync(~0u, exact[r8][b].y, (lane & 28) | q)};
        const auto product = [&](__half2 c) {
          const __half2 high = __hfma2(c, scale, offset);
          return as_word(kLow ? low_part(c, whole.x, whole.y, high) : high);
        };
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const uint32_t codes = e == 0 ? v : v >> 8;
          a[2 * b][2 * e + r8] = product(centred<8>(codes));
          a[2 * b + 1][2 * e + r8] = product(centred16<8>(codes));
        }
      }
  }
};

template <>
struct Halves<Format::kQ6_K> {
  static constexpr int kSteps = 4;
  uint4 w[4];
  uint2 h[4], sc;
  uint32_t d;
  uint32_t scales[2][2];  // [row][block of the lane's pair]{low 16 columns, high}
  float2 exact[2][2];     // the same, where low parts are wanted

  __device__ __forceinline__ void load(const uint8_t* tile, int, int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = WeightLoad::load<uint4>(tile + i * 512 + lane * 16);
#pragma unroll
    for (int i = 0; i < 4; ++i) h[i] = WeightLoad::load<uint2>(tile + 2048 + i * 256 + lane * 8);
    sc = WeightLoad::load<uint2>(tile + 3072 + lane * 8);
    d = WeightLoad::load<uint16_t>(tile + 3328 + lane / 4 * 2) |
        uint32_t(WeightLoad::load<uint16_t>(tile + 3328 + (lane / 4 + 8) * 2)) << 16;
  }
  template <bool kLow>
  __device__ __forceinline__ void prepare(const RowFactors& f) {
#pragma unroll
    for (int r8 = 0; r8 < 2; ++r8) {
      const uint32_t codes = r8 == 0 ? sc.x : sc.y;
      const float whole = (r8 == 0 ? halves(d).x : halves(d).y) * f.whole[r8];
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const float2 both = {whole * float(int8_t(codes >> (16 * b))), whole * float(int8_t(codes >> (16 * b + 8)))};
        scales[r8][b] = pack_halves(both.x, both.y);
        if (kLow) exact[r8][b] = both;
      }
    }
  }
  template <bool kLow>
  __device__ __forceinline__ void fragments(uint32_t (&a)[4][4], int q, const RowFactors&, int lane) const {
#pragma unroll
    for (int b = 0; b < 2; ++b)
#pragma unroll
      for (int r8 = 0; r8 < 2; ++r8) {
        const uint32_t v = code_word(w[q], b, r8);
        const uint32_t bits = two_bits_of(b == 0 ? h[q].x : h[q].y, r8);
        const uint32_t both = __shfl_sync(~0u, scales[r8][b], (lane & 28) | q);
        const __half2 low = as_halves(both_low(both)), high = as_halves(both_high(both));
        float2 whole;
        if (kLow)
          whole = {__shfl_sync(~0u, exact[r8][b].x, (lane & 28) | q),
                   __shfl_sync(~0u, exact[r8][b].y, (lane & 28) | q)};
        const auto product = [&](__half2 c, __half2 scale, float exact_scale) {
          const __half2 rounded = __hmul2(c, scale);
          return as_word(kLow ? low_part(c, exact_scale, 0, rounded) : rounded);
        };
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const uint32_t codes = e == 0 ? v : v >> 8, top = e == 0 ? bits : bits >> 8;
          a[2 * b][2 * e + r8] = product(centred<32>(merged(codes, top, 0x000f000f), 0x003f003f), low, whole.x);
          a[2 * b + 1][2 * e + r8] = product(centred4<32>(merged(codes, top, 0x00f000f0), 0x00fc00fc), high, whole.y);
        }
      }
  }
};

/// The fragments of a step (64 columns) from half tiles.
__device__ __forceinline__ void load_half_step(uint32_t (&a)[4][4], const uint8_t* tiles, int step, int lane) {
  const uint8_t* from = tiles + size_t(step) * 2048 + lane * 16;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto v = WeightLoad::load<uint4>(from + i * 512);
    a[i][0] = v.x;
    a[i][1] = v.y;
    a[i][2] = v.z;
    a[i][3] = v.w;
  }
}

}  // namespace honeycrisp::backend::cuda
