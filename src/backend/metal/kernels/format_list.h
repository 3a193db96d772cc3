// The weight formats that have a trait in formats.h, by GGUF id (quant/formats.h), for kernels and host: all but
// integers and F64, which are no formats of weights.
#pragma once

#define HC_METAL_FORMATS(X) \
  X(0, F32)                 \
  X(1, F16)                 \
  X(2, Q4_0)                \
  X(3, Q4_1)                \
  X(6, Q5_0)                \
  X(7, Q5_1)                \
  X(8, Q8_0)                \
  X(10, Q2_K)               \
  X(11, Q3_K)               \
  X(12, Q4_K)               \
  X(13, Q5_K)               \
  X(14, Q6_K)               \
  X(16, IQ2_XXS)            \
  X(17, IQ2_XS)             \
  X(18, IQ3_XXS)            \
  X(19, IQ1_S)              \
  X(20, IQ4_NL)             \
  X(21, IQ3_S)              \
  X(22, IQ2_S)              \
  X(23, IQ4_XS)             \
  X(29, IQ1_M)              \
  X(30, BF16)               \
  X(34, TQ1_0)              \
  X(35, TQ2_0)              \
  X(39, MXFP4)              \
  X(40, NVFP4)
