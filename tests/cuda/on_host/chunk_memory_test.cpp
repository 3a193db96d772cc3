// Rows that run together stay below the limit of what their chunks of attention take.
#include "backend/cuda/chunk_memory.h"

#include <gtest/gtest.h>

namespace honeycrisp::backend::cuda {
namespace {

TEST(ChunkMemory, rows_together_never_take_more_than_the_limit) {
  for (uint64_t row = 1; row < 2 * kMostChunkBytes; row += 1 + row / 3)
    for (const uint32_t most : {1u, 4u, 8u}) {
      const uint32_t rows = rows_together(row, most);
      ASSERT_GE(rows, 1u);
      ASSERT_LE(rows, most);
      EXPECT_GE(chunk_bytes(rows * row), rows * row);
      if (row <= kMostChunkBytes) {
        EXPECT_LE(chunk_bytes(rows * row), kMostChunkBytes) << row;
      } else {
        EXPECT_EQ(chunk_bytes(rows * row), row) << "one row, and not a byte more";
      }
      EXPECT_TRUE(rows == most || (rows + 1) * row > kMostChunkBytes) << "another would have had room";
    }
  EXPECT_EQ(rows_together(0, 8), 8u) << "a single chunk is not kept";
}

}  // namespace
}  // namespace honeycrisp::backend::cuda
