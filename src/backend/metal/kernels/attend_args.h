// What the kernels of Attend are given besides buffers, and the numbers that host and kernels share. Read by MSL and by
// C++.
#pragma once

#ifndef __METAL_VERSION__
#include <cstdint>
#endif

struct CacheArgs {  // of CacheView, in bytes
  uint64_t page_bytes;
  uint64_t head_bytes;    // from one KV head of a page to the next
  uint64_t value_offset;  // from a head's keys to its values
};

struct AttendArgs {
  CacheArgs cache;
  uint32_t n_rows;
  uint32_t q_stride, k_stride, v_stride, out_stride;  // floats from one row to the next
  uint32_t n_pools, pool;                             // of the page tables
  uint32_t n_pairs, pair_distance;                    // of the rope
  uint32_t window;                                    // 0: none
  uint32_t n_slots;                                   // chunks of a row that a split launch has partial results for
  float scale, softcap;
  float beta;       // of the temperature
  uint32_t period;  // of the temperature
  float q_eps, k_eps, v_eps;
};

enum AttendNorm : uint32_t { kNoNorm, kHeadNorm, kWholeNorm };         // none, of each head, over all heads together
enum AttendRope : uint32_t { kNoRope, kInterleavedRope, kSplitRope };  // pairs (2i, 2i + 1), or (i, i + distance)

#define HC_ATTEND_THREADS 256  // of a threadgroup
#define HC_ATTEND_QUERIES 4    // most queries of a threadgroup: pairs of a row and a head
#define HC_ATTEND_OUTPUTS 512  // most quads of output elements of a threadgroup: two for a thread
#define HC_PREPARE_SIMDGROUPS 4
