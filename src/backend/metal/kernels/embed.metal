// out = scale · row `token` of the table, for every row of the batch. A thread decodes one part of 32 elements: threads
// of x take the parts of a row, y counts the batch's rows. Reads each row of the table that is wanted once, and writes
// 4 bytes per element. Tokens are rows of the table: the host has checked them.
#include "formats.h"
#include "project_args.h"

constant uint kFormat [[function_constant(0)]];

template <typename F>
static inline void embed_part(device const uchar* row, device float* out, uint part, uint columns, float scale) {
  const uint count = min(kPart, columns - part * kPart);
  Part p;
  F::load_tail(row, part, count, p);
  expand<F>(p);
  for (uint i = 0; i < kPart; ++i) {
    if (i < count) {
      out[i] = p.w[i / 4][i % 4] * scale;
    }
  }
}

kernel void embed(device const uchar* table [[buffer(0)]],
                  device const int* tokens [[buffer(1)]],  // [rows]
                  device float* out [[buffer(2)]],         // [rows][out_stride]
                  constant EmbedArgs& args [[buffer(3)]], uint2 at [[thread_position_in_grid]]) {
  const uint part = at.x;
  if (part * kPart >= args.columns) {
    return;
  }
  device const uchar* row = table + row_offset(uint(tokens[at.y]), args.row_bytes);
  device float* part_out = out + batch_offset(at.y, args.out_stride) + part * kPart;
  switch (kFormat) {
#define HC_CASE(id, F) \
  case id: embed_part<F>(row, part_out, part, args.columns, args.scale); break;
    HC_METAL_FORMATS(HC_CASE)
#undef HC_CASE
  }
}
