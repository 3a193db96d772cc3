// The block of Q4_0: 32 weights, each 4 bits less 8, times d.
#pragma once

struct block_q4_0 {
  half d;
  uchar qs[16];  // low nibbles: weights 0..15, high ones: 16..31
};
static_assert(sizeof(block_q4_0) == 18, "a Q4_0 block has 18 bytes");
