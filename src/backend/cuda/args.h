// The structs that cross from the host to kernels, and the functions that launch kernels (defined in kernels/*.cu).
// Plain data with pointers into device memory; no CUDA header, so that every C++ file of the room can include it.
// A launch returns the CUDA error code of the launch (0: accepted); kernels run in the order of their stream.
#pragma once

#include "program/program.h"
#include "quant/formats.h"

#include <cstdint>

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace honeycrisp::backend::cuda {

using Stream = CUstream_st*;

// Formats that are kept as packed tiles for the tensor cores (kernels/packed.cuh); all others keep the file's layout.
// The first are those of most files.
#define HC_CUDA_PACKED_OFTEN(X) X(kQ4_0) X(kQ8_0) X(kQ4_K) X(kQ6_K)
// clang-format off: one format a time is no easier to read
#define HC_CUDA_PACKED_SELDOM(X) \
  X(kQ4_1) X(kQ5_0) X(kQ5_1) X(kQ2_K) X(kQ3_K) X(kQ5_K) X(kIQ4_NL) X(kIQ4_XS) X(kMXFP4) X(kNVFP4)
// clang-format on
#define HC_CUDA_PACKED_CODES(X) HC_CUDA_PACKED_OFTEN(X) HC_CUDA_PACKED_SELDOM(X)
// Whose tiles the graph multiplies as it does a file's rows, in f32.
#define HC_CUDA_PACKED_FLOATS(X) X(kF16) X(kBF16)
#define HC_CUDA_PACKED(X) HC_CUDA_PACKED_CODES(X) HC_CUDA_PACKED_FLOATS(X)

constexpr bool has_packed_tiles(quant::Format f) {
#define HC_X(e) \
  if (f == quant::Format::e) return true;
  HC_CUDA_PACKED(HC_X)
#undef HC_X
  return false;
}

constexpr bool is_packed_float(quant::Format f) {
#define HC_X(e) \
  if (f == quant::Format::e) return true;
  HC_CUDA_PACKED_FLOATS(HC_X)
#undef HC_X
  return false;
}

// Packed formats that the product of prompts unpacks in registers (kernels/halves.cuh); all others are made half tiles.
#define HC_CUDA_UNPACKED_IN_REGISTERS(X) X(kQ4_0) X(kQ8_0) X(kQ4_K) X(kQ6_K)

constexpr bool is_unpacked_in_registers(quant::Format f) {
#define HC_X(e) \
  if (f == quant::Format::e) return true;
  HC_CUDA_UNPACKED_IN_REGISTERS(HC_X)
#undef HC_X
  return false;
}

/// The formats that an instance of the persistent kernel has: a program runs in the first set that has all of its own.
enum class FormatSet : uint8_t { kOften, kAll };
inline constexpr uint32_t kFormatSets = 2;

constexpr bool has_format(FormatSet set, quant::Format f) {
#define HC_X(e) \
  if (f == quant::Format::e) return true;
  HC_CUDA_PACKED_OFTEN(HC_X)
#undef HC_X
  return set == FormatSet::kAll && has_packed_tiles(f);
}

inline constexpr uint32_t kTileRows = 16, kTileCols = 256;  // of a packed tile
inline constexpr uint32_t kMatVecRows = 4;  // rows of the batch that one pass over packed weights serves
inline constexpr uint32_t kGemmDepth = 32;  // columns of split operands are padded to a multiple of this

/// Bytes of a packed tile: the bits of the blocks it covers, reordered; of IQ4_XS with scales of a byte.
constexpr uint32_t tile_bytes(quant::Format f) {
  const uint32_t of_blocks = kTileRows * kTileCols / quant::info(f).block_elements * quant::info(f).block_bytes;
  return f == quant::Format::kIQ4_XS ? of_blocks + kTileRows * 2 : of_blocks;
}

/// A weight in device memory. Of a mixture's experts ("slices"): rows are those of the first one that is meant.
struct DeviceMatrix {
  const uint8_t* data = nullptr;
  quant::Format format = quant::Format::kF32;
  bool packed = false;     // tiles [rows / 16][cols / 256], both rounded up; else the file's rows
  uint32_t first_row = 0;  // of the range that is meant; a multiple of 16 when packed
  uint32_t rows = 0;       // of the range
  uint32_t cols = 0;
  uint64_t row_bytes = 0;   // file layout
  uint32_t slice_rows = 0;  // from one expert to the next; of tiles: whole row tiles
};

/// Rows of f32 in a buffer of the batch: row r begins at data + r · stride.
struct Rows {
  float* data = nullptr;
  uint32_t stride = 0;
};

/// Rows of a batch that a launch works on: `index[i]` is the row of the buffers, i < n. Results that do not lie in
/// buffers (products, logits) are rows `dest[i]`, or i where there is no dest.
struct RowList {
  const uint32_t* index = nullptr;
  const uint32_t* dest = nullptr;
  uint32_t n = 0;
};

struct NormArgs {
  bool present = false;
  const float* weight = nullptr;  // may be absent
  float eps = 0;
};

/// Products of a mixture run over pairs of a listed row and one of its experts: pair = i · top_k + rank.
struct Pairs {
  const uint32_t* experts = nullptr;  // [n], made in the step; null: no mixture
  uint32_t n = 0;
  uint32_t per_row =
      0;  // top_k: a pair reads the listed row pair / top_k; 0: it reads row `pair`. It writes row `pair`
};

/// Pairs of one expert that a block of the grouped product takes: slots of the same index, the first n of them.
struct ExpertTile {
  uint32_t expert, n;
};
/// Pairs sorted by expert, each expert's padded to whole tiles; made in the step.
struct SortedPairs {
  const uint32_t* slots = nullptr;    // [tiles][tile_slots] pairs; null: no mixture
  const ExpertTile* tiles = nullptr;  // [n_tiles]
  uint32_t n_tiles = 0;               // room for any choice; those past the last have n = 0
  uint32_t tile_slots = 0;
};

enum class EndingKind : uint8_t { kProduct, kStore, kGate, kGateOperand, kResidual, kLogits };

/// What happens to the products y of a Project or Logits; see program.h for the formulas.
struct EndingArgs {
  EndingKind kind = EndingKind::kProduct;
  program::Activation activation = program::Activation::kSilu;
  uint32_t n_parts = 0;  // matrices
  uint32_t rows[program::kMaxMatrices] = {};
  const float* bias[program::kMaxMatrices] = {};
  Rows out[program::kMaxMatrices];
  Rows add;  // Store's addend or the gate's operand; data may be absent
  float scale = 1, out_scale = 1, softcap = 0;
  NormArgs norm;            // Store's norm or the residual's post norm: only the ending kernel has it
  uint32_t norm_width = 0;  // 0: the whole row
};

/// y = W · norm(x) for generated rows over packed tiles, and its ending without a norm.
struct MatVecArgs {
  quant::Format format = quant::Format::kQ4_0;
  Rows in;
  uint32_t cols = 0;
  NormArgs input_norm;
  const uint8_t* tiles[program::kMaxMatrices] = {};  // of each part, from its first row on
  EndingArgs ending;                                 // biases of a mixture: [experts][rows]
  RowList rows;
  uint32_t n_blocks = 0;  // (of a pair) that share the work; no bit depends on it
  Pairs pairs;
  uint64_t slice_bytes[program::kMaxMatrices] = {};  // from one expert's tiles to the next
};

/// A matrix of a product in halves.
struct HalfGemmPart {
  const uint8_t* tiles = nullptr;              // packed, or half tiles: from its first row on
  const int8_t* exponents = nullptr;           // of its rows, up to a whole row tile; aligned to four
  quant::Format format = quant::Format::kF16;  // kF16: half tiles
  uint64_t slice_bytes = 0;                    // from one expert's tiles to the next
  uint32_t slice_rows = 0;                     // ... and exponents
};

inline constexpr uint32_t kArrangedRows = 64;         // arranged activations are padded to a multiple of this
inline constexpr uint32_t kArrangedSlack = 256 * 64;  // values behind them that a product may read, and does not use

/// Products of arranged activations, ending (without a norm) included. A gate's two matrices have the same format.
struct HalfGemmArgs {
  HalfGemmPart parts[program::kMaxMatrices];
  uint32_t k_tiles = 0;
  bool two_halves = false;      // x and half tiles are two f16 each
  const uint16_t* x = nullptr;  // arranged: [steps of 64 columns][n_arranged][64], of two halves: the low ones behind
  const float* x_scales = nullptr;
  uint32_t n_arranged = 0;
  EndingArgs ending;
  RowList rows;
  uint32_t n_multiprocessors = 0;
  SortedPairs pairs;                         // present: rows are not used
  uint32_t first_expert = 0, n_experts = 0;  // whose weights `parts` begin with; other experts' tiles are passed over
};

// Types of the KV cache as kernels know them: the values of CacheType.
inline constexpr uint8_t kCacheF16 = 0, kCacheF32 = 1, kCacheQ8_0 = 2;

/// One head geometry of the KV cache in one layer.
struct CacheView {
  uint8_t* const* chunks = nullptr;  // device array of allocations
  uint32_t chunk_shift = 0;          // pages of an allocation, as a power of two
  uint64_t page_bytes = 0;
  uint64_t layer_offset = 0;  // within a page
  uint64_t head_bytes = 0;    // keys [64][key_dim], their scales, values [64][value_dim], their scales
  uint64_t value_offset = 0;  // of the values within a head
  uint32_t n_kv_heads = 0, key_dim = 0, value_dim = 0;
  uint8_t type = kCacheF16;
};

inline constexpr uint32_t kAttendSpan = 2048;  // positions that one block of a prompt's attention walks

struct AttendArgs {
  CacheView cache;
  Rows q, k, v, out;
  bool appends = false, v_is_k = false, output_gate = false, norm_whole = false;
  bool prepares = false;  // launch_attend() does what launch_attend_prepare() would: for a step of one row
  NormArgs q_norm, k_norm, v_norm;
  uint32_t n_heads = 0;
  const float* rope = nullptr;  // [positions][n_pairs]{cos, sin}; absent: no rope
  bool interleaved = false;
  uint32_t n_pairs = 0, pair_distance = 0;
  uint32_t window = 0;
  float scale = 1, softcap = 0;
  program::Temperature temperature;  // beta = 0: none
  const float* sinks = nullptr;
  const uint32_t* positions = nullptr;    // [batch rows]
  const uint32_t* table_start = nullptr;  // [batch rows][n_pools]: where the row's page table begins in `tables`
  const uint32_t* tables = nullptr;
  uint32_t n_pools = 0, pool = 0;
  float* queries = nullptr;       // [batch rows][n_heads][key_dim], normed and rotated
  float* query_scales = nullptr;  // [batch rows][n_heads]; present: queries are stored in two parts, after scaling
  float* partials = nullptr;      // [rows of a launch][n_heads][n_chunks][value_dim + 2]: values, largest score, sum
  uint32_t n_chunks = 0;          // or spans: that the launch provides for
  uint32_t first_row = 0, n_rows = 0;
};

int launch_embed(const DeviceMatrix& table, const int32_t* tokens, uint32_t n_rows, Rows out, float scale, Stream);
/// Rows of the matrix as the sum of two bf16 numbers: high, low [rows][depth], zero beyond cols.
int launch_split_weights(const DeviceMatrix&, uint16_t* high, uint16_t* low, uint32_t depth, Stream);
/// products[i][0..rows) = W · x[i] for a matrix in the file's layout; x: [n][cols].
int launch_plain_mat_vec(const DeviceMatrix&, const float* x, uint32_t n, Rows products, Stream);
/// y = W · x in f32 of matrices of F16, BF16 or F32, all of one format and in rows of whole octets, and their ending
/// without a norm.
struct FloatMatVecArgs {
  DeviceMatrix parts[program::kMaxMatrices];
  const float* x = nullptr;  // [rows.n][cols], normed
  EndingArgs ending;         // kProduct: row i of the list goes to row i
  RowList rows;
  uint32_t n_multiprocessors = 0;  // no bit depends on it
};
int launch_float_mat_vec(const FloatMatVecArgs&, Stream);
/// The same for every pair of a mixture: x: [pairs.per_row != 0 ? listed rows : pairs][cols], products: [pairs].
int launch_plain_expert_mat_vec(const DeviceMatrix&, const float* x, Pairs, Rows products, Stream);
/// The file's rows in `source` into tiles; row_tile counts from the beginning of the weight.
int launch_pack(quant::Format, const uint8_t* source, uint32_t rows, uint32_t cols, uint8_t* tiles, uint32_t row_tile,
                Stream);
/// The grids of the IQ formats; once per device.
int upload_grids();

/// The normed input, as f32 [n][cols] and as two bf16 [n][depth]; either may be absent.
int launch_prepare_input(Rows in, uint32_t cols, const NormArgs&, RowList, float* x, uint16_t* high, uint16_t* low,
                         uint32_t depth, Stream);
/// Endings with or without norms over products [n][all parts' rows one after another].
int launch_ending(const EndingArgs&, Rows products, RowList, Stream);

int launch_mat_vec(const MatVecArgs&, Stream);
int prepare_mat_vec();  // once per device: large shared memory

/// products[i][n] = Σ_k x[i][k] · w[n][k] with both split in two bf16: three products, f32 sums.
int launch_gemm(const uint16_t* x_high, const uint16_t* x_low, uint32_t n_x, const uint16_t* w_high,
                const uint16_t* w_low, uint32_t n_w, uint32_t depth, Rows products, Stream);
int prepare_gemm();

/// Activations for launch_half_gemm; n_arranged: rows.n rounded up to kArrangedRows.
int launch_arrange_input(Rows in, uint32_t cols, const NormArgs&, RowList rows, uint32_t n_arranged, bool two_halves,
                         uint16_t* x, float* scales, Stream);
/// The same for slots of sorted pairs, in two halves; per_row as in Pairs.
int launch_arrange_pairs(Rows in, uint32_t cols, const NormArgs&, RowList rows, const SortedPairs&, uint32_t per_row,
                         uint16_t* x, float* scales, Stream);
/// Exponents of all rows of a weight, up to a whole row tile.
int launch_row_exponents(const DeviceMatrix&, int8_t* exponents, Stream);
/// Half tiles of the matrix's rows, and their exponents beside them, up to a whole row tile.
/// Of n_slices experts one after another, each padded to whole row tiles. two_halves: each row of tiles is followed by
/// that of what rounding left.
int launch_half_tiles(const DeviceMatrix&, const int8_t* exponents, uint32_t n_slices, bool two_halves, uint8_t* tiles,
                      int8_t* tile_exponents, Stream);
int launch_half_gemm(const HalfGemmArgs&, Stream);
int prepare_half_gemm();
/// Whether this build has it: it takes code for sm_90a.
bool has_half_gemm();

int launch_attend_prepare(const AttendArgs&, Stream);  // queries and appended keys and values of all rows
int launch_attend(const AttendArgs&, Stream);          // rows [first_row, first_row + n_rows)
/// The same for prompts, on tensor cores; n_chunks counts spans of kAttendSpan positions.
int launch_attend_tiles(const AttendArgs&, Stream);
/// Dynamic shared memory that it takes of a block.
uint32_t attend_tile_bytes(const AttendArgs&);
int prepare_attend_tiles(uint32_t shared_bytes);  // once per device: the most that a block may have

}  // namespace honeycrisp::backend::cuda
