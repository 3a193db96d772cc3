// Attention on the software device against `reference`: geometries, cache types, windows at the edges of pages and
// chunks, several sequences, and the same bits however rows are grouped.
#include "op_harness.h"
#include "support/tiny_program.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <numeric>

namespace honeycrisp::backend::metal::testing {
namespace {

using program::Attend;
using test_support::Random;
using test_support::TinyProgram;

struct Shape {
  const char* name;
  uint32_t key_dim, value_dim, n_heads, n_kv_heads;
  uint32_t window = 0;
  uint32_t positions = 70;
  std::function<void(TinyProgram&, Attend&)> change = {};
  bool rounds_alike = true;  // keys and values reach the cache without arithmetic, so they are rounded to the same
};
void PrintTo(const Shape& s, std::ostream* out) { *out << s.name; }

void norms(TinyProgram& t, Attend& a, bool whole, uint32_t dim, uint32_t heads, uint32_t kv_heads) {
  a.q_norm = t.norm(whole ? heads * dim : dim);
  a.k_norm = t.norm(whole ? kv_heads * dim : dim);
  a.norm_whole_projection = whole;
}

const Shape kShapes[] = {
    {"heads_of_64_in_threes", 64, 64, 9, 3},
    {"heads_of_4", 4, 4, 2, 1},
    {"heads_of_20_and_12", 20, 12, 3, 3},
    {"heads_of_80", 80, 80, 4, 4},
    {"heads_of_96_in_sevens", 96, 96, 7, 1},
    {"heads_of_128_in_fives", 128, 128, 10, 2},
    {"heads_of_192_and_128", 192, 128, 4, 2},
    {"heads_of_256", 256, 256, 4, 1},
    {"heads_of_512", 512, 512, 4, 2},
    {"heads_of_576_and_1024", 576, 1024, 3, 1},
    {"four_chunks", 32, 32, 4, 2, 0, 780},
    {"window_of_a_page", 32, 32, 2, 1, 64, 330},
    {"window_of_a_chunk", 32, 32, 2, 1, 256, 520},
    {"window_past_a_chunk", 32, 32, 2, 1, 257, 520},
    {"window_of_one", 32, 32, 2, 1, 1, 70},
    {"window_of_many_chunks", 32, 32, 2, 1, 600, 1100},
    {"softcap_and_sinks", 32, 32, 6, 2, 0, 530,
     [](TinyProgram& t, Attend& a) {
       a.softcap = 2;
       a.sinks = t.vector(6, -2, 4);
     }},
    {"temperature", 32, 32, 2, 1, 0, 70, [](TinyProgram&, Attend& a) { a.temperature = {.beta = 0.5, .period = 10}; }},
    {"output_gate", 32, 32, 6, 2, 0, 530, [](TinyProgram&, Attend& a) { a.output_gate = true; }},
    {"head_norms_and_half_split_rope", 64, 32, 6, 2, 0, 70,
     [](TinyProgram& t, Attend& a) {
       norms(t, a, false, 64, 6, 2);
       a.rope = t.rope(false, 32, 32);
     },
     false},
    {"whole_norms_and_interleaved_rope", 64, 64, 6, 2, 0, 70,
     [](TinyProgram& t, Attend& a) {
       norms(t, a, true, 64, 6, 2);
       a.rope = t.rope(true, 32, 0);
     },
     false},
    {"partial_rope_v_norm_and_v_of_k", 64, 64, 4, 2, 0, 70,
     [](TinyProgram& t, Attend& a) {
       a.v.reset();
       a.k_norm = t.norm(64);
       a.v_norm = program::Norm{std::nullopt, 1e-6f};
       a.rope = t.rope(false, 5, 32);
     },
     false},
};

/// The program of a shape: one buffer that all inputs are columns of (no multiples of four), and one for the output.
struct Attention {
  TinyProgram tiny{5};
  Attend op;

  explicit Attention(const Shape& s) {
    tiny.program.caches.push_back(
        {.n_kv_heads = s.n_kv_heads, .key_dim = s.key_dim, .value_dim = s.value_dim, .window = s.window});
    tiny.program.caches.push_back(tiny.program.caches[0]);  // so that layers are told apart
    program::assign_pools(tiny.program);
    op.n_heads = s.n_heads;
    op.cache = 1;
    op.window = s.window;
    op.scale = 1 / std::sqrt(float(s.key_dim));
    op.k = program::Slice{};
    op.v = program::Slice{};
    if (s.change) s.change(tiny, op);
    uint32_t column = 3;
    const auto place = [&](program::Slice& slice, uint32_t width) {
      slice = {1, column, width};
      column += width + 1;
    };
    place(op.q, s.n_heads * s.key_dim * (op.output_gate ? 2 : 1));
    place(*op.k, s.n_kv_heads * s.key_dim);
    if (op.v) place(*op.v, s.n_kv_heads * s.value_dim);
    tiny.buffer(column);
    op.out = {tiny.buffer(s.n_heads * s.value_dim + 7), 5, s.n_heads * s.value_dim};
  }

  Buffers inputs(const std::vector<Row>& rows) const {
    Buffers b(tiny.program.buffers.size());
    for (size_t i = 0; i < b.size(); ++i) b[i].resize(rows.size() * tiny.program.buffers[i].width, 9.0f);
    const size_t width = tiny.program.buffers[1].width;
    for (size_t r = 0; r < rows.size(); ++r) {
      Random random(rows[r].position * 31 + rows[r].sequence * 7919 + 1);
      const auto x = random.floats(width, -2, 2);
      std::copy(x.begin(), x.end(), b[1].begin() + r * width);
    }
    return b;
  }
};

/// Two sequences whose pages take turns, in descending order.
struct Sequences {
  std::vector<PageId> pages[2];
  SequencePages of[2];
  explicit Sequences(uint32_t positions) {
    const uint32_t n = positions / program::kPagePositions + 1;
    for (uint32_t s = 0; s < 2; ++s) {
      for (uint32_t i = n; i-- > 0;) pages[s].push_back(2 * i + s);
      of[s].tables = {pages[s]};
    }
  }
  uint32_t n_pages() const { return uint32_t(2 * pages[0].size()); }
};

// Of the columns that attention writes.
double relative_error(const Attention& a, const std::vector<float>& got, const std::vector<float>& want) {
  const size_t width = a.tiny.program.buffers[a.op.out.buffer].width;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (i % width < a.op.out.column || i % width >= a.op.out.column + a.op.out.width) continue;
    difference += std::pow(double(got[i]) - double(want[i]), 2);
    norm += std::pow(double(want[i]), 2);
  }
  return std::sqrt(difference / norm);
}

// Sums of up to 512 products of numbers near 1 in several chains err by some 2^-22, and exp() makes that relative.
// Where the cache's input was computed, a value near a tie is rounded the other way: a step of 2^-11, or of 1/127.
double bar_of(CacheType type, bool rounds_alike) {
  constexpr double arithmetic = 3e-6;
  if (rounds_alike || type == CacheType::kF32) return arithmetic;
  return type == CacheType::kF16 ? 1e-4 : 2e-3;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

using Case = std::tuple<Shape, CacheType>;
class MetalAttend : public ::testing::TestWithParam<Case> {
 protected:
  const Shape& shape() const { return std::get<0>(GetParam()); }
  CacheType type() const { return std::get<1>(GetParam()); }
  void SetUp() override {
    if (type() == CacheType::kQ8_0 && (shape().key_dim % 32 != 0 || shape().value_dim % 32 != 0))
      GTEST_SKIP() << "heads are not whole blocks of q8_0";
  }
};

// The last `decoded` positions of two sequences one by one, all others in steps of `chunk`. The outputs of all rows of
// either sequence.
Buffers outputs(DeviceOps& device, const Attention& a, const Sequences& sequences, uint32_t positions, uint32_t chunk,
                uint32_t decoded) {
  const size_t width = a.tiny.program.buffers[a.op.out.buffer].width;
  Buffers all(2);
  for (uint32_t first = 0; first < positions;) {
    const uint32_t n = first < positions - decoded ? std::min(chunk, positions - decoded - first) : 1;
    std::vector<Row> rows;
    for (uint32_t s = 0; s < 2; ++s)
      for (uint32_t i = 0; i < n; ++i) rows.push_back({0, first + i, s});
    Buffers b = a.inputs(rows);
    const auto done = device.run(a.op, {rows, sequences.of}, b);
    EXPECT_TRUE(done.has_value()) << done.error().message;
    const std::vector<float>& out = b[a.op.out.buffer];
    for (uint32_t s = 0; s < 2; ++s)
      all[s].insert(all[s].end(), out.begin() + s * n * width, out.begin() + (s + 1) * n * width);
    first += n;
  }
  return all;
}

TEST_P(MetalAttend, near_the_reference_and_the_same_bits_in_any_grouping) {
  const Attention a(shape());
  const uint32_t positions = shape().positions;
  const Sequences sequences(positions);

  std::vector<Row> rows;
  for (uint32_t s = 0; s < 2; ++s)
    for (uint32_t i = 0; i < positions; ++i) rows.push_back({0, i, s});
  Buffers want = a.inputs(rows);
  ReferenceOps(a.tiny.program, type(), sequences.n_pages(), 0).run(a.op, {rows, sequences.of}, want);

  const auto device = [&] {
    return std::make_unique<DeviceOps>(a.tiny.program, type(), soft::DeviceOptions{}, sequences.n_pages(), 0,
                                       positions);
  };
  const Buffers whole = outputs(*device(), a, sequences, positions, positions, 0);
  std::vector<float> both = whole[0];
  both.insert(both.end(), whole[1].begin(), whole[1].end());
  const double error = relative_error(a, both, want[a.op.out.buffer]);
  EXPECT_LT(error, bar_of(type(), shape().rounds_alike));
  RecordProperty("relative_error", fmt::format("{:.2e}", error));

  for (const uint32_t chunk : {positions < 100 ? 1u : 50u, 64u}) {
    const Buffers parts = outputs(*device(), a, sequences, positions, chunk, 3);
    for (uint32_t s = 0; s < 2; ++s) EXPECT_TRUE(same_bits(parts[s], whole[s])) << "chunks of " << chunk;
  }
}

// What the cache holds does not matter here, so most positions are left out.
TEST_P(MetalAttend, nothing_is_reported) {
  const Attention a(shape());
  const uint32_t positions = shape().positions;
  const Sequences sequences(positions);
  DeviceOps device(a.tiny.program, type(), {.check = true, .seed = 3}, sequences.n_pages(), 0, positions);
  const std::vector<Row> steps[] = {{{0, 0, 0}, {0, 1, 0}, {0, 2, 0}, {0, positions - 3, 1}, {0, positions - 2, 1}},
                                    {{0, 3, 0}, {0, positions - 1, 1}},
                                    {{0, positions - 1, 0}}};
  for (const auto& rows : steps) {
    Buffers b = a.inputs(rows);
    const auto done = device.run(a.op, {rows, sequences.of}, b);
    EXPECT_TRUE(done.has_value()) << done.error().message;
  }
  EXPECT_EQ(device.reports(), "");
}

INSTANTIATE_TEST_SUITE_P(All, MetalAttend,
                         ::testing::Combine(::testing::ValuesIn(kShapes),
                                            ::testing::Values(CacheType::kF32, CacheType::kF16, CacheType::kQ8_0)),
                         [](const auto& p) {
                           return std::string(std::get<0>(p.param).name) + "_" +
                                  std::string(to_string(std::get<1>(p.param)));
                         });

// A row that is no number, or infinite, spoils what sees it and nothing else, not even in the same tile.
TEST(MetalAttendRows, numbers_that_are_none_stay_where_they_are_seen) {
  for (const CacheType type : {CacheType::kF32, CacheType::kF16, CacheType::kQ8_0})
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      const Attention a({"", 32, 32, 4, 2, 20, 60});
      const uint32_t positions = 60, spoiled = 30;
      const Sequences sequences(positions);
      std::vector<Row> rows;
      for (uint32_t s = 0; s < 2; ++s)
        for (uint32_t i = 0; i < positions; ++i) rows.push_back({0, i, s});
      Buffers clean = a.inputs(rows), dirty = clean;
      const size_t in = a.tiny.program.buffers[1].width, width = a.tiny.program.buffers[a.op.out.buffer].width;
      std::fill_n(dirty[1].begin() + spoiled * in, in, bad);
      for (Buffers* b : {&clean, &dirty}) {
        DeviceOps device(a.tiny.program, type, {}, sequences.n_pages(), 0, positions);
        ASSERT_TRUE(device.run(a.op, {rows, sequences.of}, *b).has_value());
      }
      for (size_t r = 0; r < rows.size(); ++r) {
        const std::span row = std::span(dirty[a.op.out.buffer]).subspan(r * width + 5, a.op.out.width);
        const std::span want = std::span(clean[a.op.out.buffer]).subspan(r * width + 5, a.op.out.width);
        if (rows[r].sequence == 0 && rows[r].position >= spoiled && rows[r].position < spoiled + 20)
          EXPECT_TRUE(std::any_of(row.begin(), row.end(), [](float v) { return !std::isfinite(v); })) << "row " << r;
        else
          EXPECT_TRUE(same_bits(row, want)) << "row " << r;
      }
    }
}

TEST(MetalAttendLaunches, as_few_as_the_rows_allow) {
  const auto launches = [](uint32_t window, std::vector<Row> rows) {
    const Attention a({"", 32, 32, 4, 2, window});
    const Sequences sequences(1300);
    DeviceOps device(a.tiny.program, CacheType::kF16, {}, sequences.n_pages(), 0, 1300);
    Buffers b = a.inputs(rows);
    EXPECT_TRUE(device.run(a.op, {rows, sequences.of}, b).has_value());
    return device.launches();
  };
  EXPECT_EQ(launches(0, {{0, 511, 0}}), 1u);
  EXPECT_EQ(launches(0, {{0, 511, 0}, {0, 3, 1}}), 1u);
  EXPECT_EQ(launches(0, {{0, 510, 0}, {0, 511, 0}}), 2u);
  EXPECT_EQ(launches(0, {{0, 512, 0}}), 2u);
  EXPECT_EQ(launches(0, {{0, 1298, 0}, {0, 1299, 0}}), 3u);
  EXPECT_EQ(launches(256, {{0, 1299, 0}}), 1u);
}

TEST(MetalAttendObstacle, names_heads_that_no_kernel_takes) {
  const auto reason = [](uint32_t key_dim, uint32_t value_dim) {
    const Attention a({"", key_dim, value_dim, 2, 1});
    return obstacle(a.tiny.program, a.op, CacheType::kF32);
  };
  EXPECT_EQ(reason(32, 32), "");
  EXPECT_NE(reason(30, 32).find("30"), std::string::npos);
  EXPECT_NE(reason(32, 1028).find("1028"), std::string::npos);
}

}  // namespace
}  // namespace honeycrisp::backend::metal::testing
