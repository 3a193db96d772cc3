// What the host hands to the kernels of Project and Logits: argument structs, buffer indices, function constants and
// sizes. Plain C++ that is MSL too: one definition for both sides.
#pragma once

#ifdef __METAL_VERSION__
#include <metal_stdlib>
using namespace metal;
#else
#include <cstdint>
namespace honeycrisp::backend::metal {
#endif

// ---- sizes, which the numeric result depends on (norms) or which the host must know to size grids -------------------

enum ProjectSizes {
  kProjectSimdgroups = 4,  // of a threadgroup: 128 threads, which share the sums of a norm
  kProjectThreads = 32 * kProjectSimdgroups,
  kStagedParts = 32,   // of each batch row, in threadgroup memory at a time (mat_vec of several rows)
  kMatMulRows = 64,    // weight rows of a mat_mul tile
  kMatMulBatch = 32,   // batch rows of a mat_mul tile
  kMatMulStride = 36,  // floats from one row of a staged plane to the next: no two rows begin in one bank
};

/// Floats of threadgroup memory in which a norm's partial sums lie, after the cached input.
constexpr uint32_t mat_vec_memory(uint32_t batch, uint32_t cached_parts) {
  const uint32_t input = 32u * (batch > 1 ? batch * uint32_t(kStagedParts) : cached_parts);
  return batch > 1 ? input : input + uint32_t(kProjectSimdgroups);
}
/// Floats of a mat_mul's threadgroup memory: two planes of weights and one or two of the input.
constexpr uint32_t mat_mul_memory(bool gate) {
  return uint32_t(kMatMulStride) * (2u * uint32_t(kMatMulRows) + (gate ? 1u : 2u) * uint32_t(kMatMulBatch));
}

// ---- what is compiled in --------------------------------------------------------------------------------------------

enum ProjectConstant {
  kConstantFormats = 0,  // four: of each matrix, by GGUF id
  kConstantMatrices = 4,
  kConstantRows = 5,         // per simdgroup
  kConstantCachedParts = 6,  // ceiling of the input's parts that threadgroup memory holds; 0: not cached
  kConstantNorm = 7,         // of the input
  kConstantNormWeight = 8,
  kConstantPending = 9,  // the input is x, on which a residual waits
  kConstantPendingWeight = 10,
  kConstantFlush = 11,  // one threadgroup per tile of the batch ends a waiting residual of a buffer that nobody reads
  kConstantEnding = 12,
  kConstantActivation = 13,
  kConstantBiases = 14,  // bit i: matrix i has one
  kConstantAdd = 15,
  kConstantSoftcap = 16,
  kConstantGather = 17,  // batch row i is row gather[i] of the input
};

enum ProjectEnding {
  kEndStore = 0,
  kEndGate = 1,         // of two matrices' products
  kEndGateOperand = 2,  // of one matrix' products and given values
  kEndResidual = 3,
};

// In the order of program::Activation.
enum ProjectActivation { kActivationSilu = 0, kActivationGeluTanh = 1, kActivationClampedSwiglu = 2 };

enum ProjectBuffer {
  kBufferWeights = 0,  // four
  kBufferIn = 4,
  kBufferNorm = 5,
  kBufferPendingY = 6,
  kBufferPendingNorm = 7,
  kBufferFlushX = 8,
  kBufferOut = 9,    // four
  kBufferBias = 13,  // four
  kBufferAdd = 17,   // what a Store adds, or the operand of a gate
  kBufferGather = 18,
  kBufferArgs = 19,
};

// ---- arguments ------------------------------------------------------------------------------------------------------

struct ProjectMatrix {
  uint64_t row_bytes;
  uint32_t rows;
  uint32_t end_tile;    // threadgroups [end_tile of the matrix before, end_tile) work on this matrix
  uint32_t out_stride;  // floats from one batch row to the next
  uint32_t reserved;
};

struct PendingArgs {
  float eps;
  float branch_scale;
  float residual_scale;
  uint32_t width;     // of x and y
  uint32_t y_stride;  // floats from one batch row to the next
  uint32_t x_stride;  // of the buffer to flush
};

struct ProjectArgs {
  ProjectMatrix matrices[4];
  PendingArgs pending;
  uint32_t columns;     // of every matrix
  uint32_t in_stride;   // floats from one batch row to the next
  uint32_t batch;       // rows
  uint32_t flush_tile;  // threadgroup that flushes
  uint32_t add_stride;
  float norm_eps;
  float scale;      // of the product: Store's, or a residual's branch scale
  float out_scale;  // of the result: Store's, a residual's, or of logits
  float softcap;
  uint32_t reserved;
};

// rows.metal
struct PrepareRowsArgs {
  PendingArgs pending;
  uint32_t width;
  uint32_t in_stride;
  float norm_eps;
  uint32_t reserved;
};
struct FinishRowsArgs {
  uint32_t run;  // elements of a norm
  uint32_t y_stride;
  uint32_t out_stride;
  uint32_t add_stride;
  float eps;
  float scale;
  float out_scale;
  uint32_t reserved;
};

struct EmbedArgs {
  uint64_t row_bytes;   // of the table
  uint32_t columns;     // of the table and of an output row
  uint32_t out_stride;  // floats from one output row to the next
  float scale;
  uint32_t reserved;
};

// top_k.metal
enum TopKSizes { kTopKThreads = 128, kTopKSlice = 4096, kMostTopK = 256 };
struct TopKArgs {
  uint32_t count;   // values of a row that are looked at; of candidates k from each slice
  uint32_t stride;  // from one row to the next
  uint32_t slice;   // values of a threadgroup
  uint32_t k;
};

#ifndef __METAL_VERSION__
}  // namespace honeycrisp::backend::metal
#endif
