// The ring that weights stream through, on the host: a stage lies inside it and over none that is still in use.
#include "backend/cuda/kernels/ring_room.cuh"

#include <deque>
#include <gtest/gtest.h>
#include <random>

namespace honeycrisp::backend::cuda {
namespace {

struct Stage {
  uint32_t begin, end, taken;
};

TEST(CudaRingRoom, stages_lie_inside_the_ring_and_never_over_each_other) {
  std::mt19937 random(1);
  size_t n_at_end = 0;  // stages that end where the ring does: the next one skips nothing, and begins at 0
  for (const uint32_t tile : {16u, 2304u, 3360u, 4352u})
    for (const uint32_t ring : {32 * tile, 40 * tile, 69 * tile, 69 * tile + 128, 74 * tile - 16}) {
      RingRoom room{ring};
      std::deque<Stage> used;
      const auto give_back = [&] {
        room.give_back(used.front().taken);
        used.pop_front();
      };
      for (int i = 0; i < 5000; ++i) {
        const uint32_t size = tile * (random() % 4 == 0 ? 1 + uint32_t(random() % 16) : 16);
        while (!used.empty() && random() % 4 == 0) give_back();
        uint32_t at = 0, taken = 0;
        while (!room.place(size, at, taken)) {
          ASSERT_FALSE(used.empty()) << "a stage of " << size << " finds no room in an empty ring of " << ring;
          give_back();
        }
        ASSERT_LE(at + size, ring);
        for (const Stage& other : used) ASSERT_TRUE(at + size <= other.begin || other.end <= at);
        used.push_back({at, at + size, taken});
        n_at_end += at + size == ring ? 1 : 0;
      }
    }
  EXPECT_GT(n_at_end, 100u);
}

}  // namespace
}  // namespace honeycrisp::backend::cuda
