// Places that serve again: whatever an op reads is still there.
#include "backend/cuda/wide_places.h"

#include "support/random_weights.h"

#include <gtest/gtest.h>

namespace honeycrisp::backend::cuda {
namespace {

using test_support::Random;

// A place as it was, who writes it, and how long it is.
struct Written {
  uint32_t width;
  int by;
};

// Random ops that each read what earlier ones wrote, and keep an addend alive for long.
TEST(WidePlaces, what_an_op_reads_is_there_until_then) {
  Random random(11);
  for (int round = 0; round < 50; ++round) {
    const auto any = [&](uint32_t n) { return uint32_t(random.bits() % n); };
    std::vector<StepOp> ops(2 + any(40));
    std::vector<std::pair<uint32_t, Written>> floats = {{0, {4 + any(60), -1}}};
    const uint32_t embedded_width = floats[0].second.width;
    uint32_t plane = (embedded_width + 3) / 4 * 4;
    struct Reads {
      size_t in, add;  // into floats; SIZE_MAX: none
    };
    std::vector<Reads> reads;
    for (size_t i = 0; i < ops.size(); ++i) {
      StepOp& op = ops[i];
      Reads r{floats.size() - 1 - any(uint32_t(std::min<size_t>(floats.size(), 3))), SIZE_MAX};
      op.in = floats[r.in].first;
      op.cols = floats[r.in].second.width;
      op.n_parts = 1;
      op.rows[0] = 4 + any(60);
      if (any(3) == 0) {
        r.add = any(uint32_t(floats.size()));
        op.add = floats[r.add].first;
        op.rows[0] = floats[r.add].second.width;
      }
      reads.push_back(r);
      op.out[0] = plane;
      plane += (op.rows[0] + 3) / 4 * 4;
      if (any(2) == 0) {
        op.fragments_out = plane;
        plane += fragment_words(op.rows[0]);
      }
      floats.push_back({op.out[0], {op.rows[0], int(i)}});
    }
    uint32_t embedded = 0;
    const uint32_t shared = share_places(ops, embedded, embedded_width);
    EXPECT_LE(shared, plane);
    std::vector<int> content(shared, -2);
    const auto write = [&](uint32_t place, uint32_t width, int who) {
      EXPECT_EQ(place % 4, 0u);
      ASSERT_LE(place + width, shared);
      std::fill_n(content.begin() + place, width, who);
    };
    const auto expect_there = [&](uint32_t place, const Written& what) {
      for (uint32_t at = place; at < place + what.width; ++at) ASSERT_EQ(content[at], what.by);
    };
    write(embedded, embedded_width, -1);
    for (size_t i = 0; i < ops.size(); ++i) {
      expect_there(ops[i].in, floats[reads[i].in].second);
      write(ops[i].out[0], ops[i].rows[0], int(i));
      if (ops[i].fragments_out != kNoPlace) write(ops[i].fragments_out, fragment_words(ops[i].rows[0]), 1000);
      // Outputs are written while inputs are read.
      expect_there(ops[i].in, floats[reads[i].in].second);
      if (reads[i].add != SIZE_MAX) expect_there(ops[i].add, floats[reads[i].add].second);
    }
  }
}

// A chain of layers needs the room of few of them.
TEST(WidePlaces, layers_use_the_same_places) {
  constexpr uint32_t kWidth = 64;
  std::vector<StepOp> ops(100);
  for (uint32_t i = 0; i < ops.size(); ++i) {
    ops[i].in = i * kWidth;
    ops[i].cols = ops[i].rows[0] = kWidth;
    ops[i].n_parts = 1;
    ops[i].out[0] = (i + 1) * kWidth;
  }
  uint32_t embedded = 0;
  EXPECT_EQ(share_places(ops, embedded, kWidth), 2 * kWidth);
}

}  // namespace
}  // namespace honeycrisp::backend::cuda
