// The public single operations: every argument that will not do, by its exact text; fused and single launches with the
// same bits; results against double precision; and the same on the checking device.
#include "honeycrisp/metal_ops.h"

#include "project_case.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <unistd.h>

namespace honeycrisp::metal {
namespace {

using backend::metal::testing::Expected;
using backend::metal::testing::kernel_formats;
using backend::metal::testing::normals;
using backend::metal::testing::random_weights;

std::string error_of(const Result<void>& result) { return result ? "" : result.error().message; }

Device software(bool check = false) { return Device::software({.check = check}).value(); }

Buffer filled(const Device& device, std::span<const std::byte> bytes) {
  Buffer buffer = device.allocate(bytes.size(), "data").value();
  std::memcpy(buffer.data(), bytes.data(), bytes.size());
  return buffer;
}
Buffer filled(const Device& device, const std::vector<float>& values) {
  return filled(device, std::as_bytes(std::span(values)));
}
std::vector<float> floats(const Buffer& buffer, size_t first, size_t count) {
  const auto* begin = reinterpret_cast<const float*>(buffer.data()) + first;
  return {begin, begin + count};
}
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Two matrices, their input and an output of each, with an element of NaN after what is written.
struct Pair {
  Device device;
  ProjectionArgs args;
  Format first, second;
  std::vector<float> x = normals(size_t(args.rows) * args.hidden_size, 7);
  std::vector<std::byte> first_bytes = random_weights(quant::Format(first), args.output_size, args.hidden_size, 1);
  std::vector<std::byte> second_bytes = random_weights(quant::Format(second), args.output_size, args.hidden_size, 2);
  Buffer input = filled(device, x), first_weights = filled(device, first_bytes),
         second_weights = filled(device, second_bytes), first_output = output(), second_output = output();

  size_t outputs() const { return size_t(args.rows) * args.output_size; }
  Buffer output() const { return filled(device, std::vector<float>(outputs() + 1, NAN)); }
  DualProjection dual() const {
    return {.args = args,
            .input = {input},
            .first_weights = {first, {first_weights}},
            .second_weights = {second, {second_weights}},
            .first_output = {first_output},
            .second_output = {second_output}};
  }
  GatedProjection gated() const {
    return {.args = args,
            .input = {input},
            .gate_weights = {first, {first_weights}},
            .up_weights = {second, {second_weights}},
            .output = {first_output}};
  }
  Projection single() const {
    return {.args = args, .input = {input}, .weights = {first, {first_weights}}, .output = {first_output}};
  }
  Commands commands() const { return device.new_commands("test").value(); }
};

Pair small(const Device& device) {
  return {device, {.rows = 2, .output_size = 5, .hidden_size = 256}, Format::kQ4_0, Format::kQ6_K};
}

// ---- arguments
// -------------------------------------------------------------------------------------------------------

class Arguments : public ::testing::Test {
 public:
  const Device device = software();
  const Pair p = small(device);
  Commands commands = p.commands();

  std::string dual(const std::function<void(DualProjection&)>& change) {
    DualProjection d = p.dual();
    change(d);
    return error_of(commands.project_dual(d));
  }
  std::string gated(const std::function<void(GatedProjection&)>& change) {
    GatedProjection g = p.gated();
    change(g);
    return error_of(commands.project_gated(g));
  }
  std::string single(const std::function<void(Projection&)>& change) {
    Projection s = p.single();
    change(s);
    return error_of(commands.project(s));
  }
  View of_bytes(uint64_t bytes) const { return {device.allocate(bytes, "short").value()}; }

  void TearDown() override {
    EXPECT_EQ(commands.launches(), 0u) << "what is refused is not encoded";
    EXPECT_EQ(error_of(commands.project_dual(p.dual())), "");
    EXPECT_EQ(error_of(commands.run()), "");
    EXPECT_FALSE(std::isnan(floats(p.second_output, p.outputs() - 1, 1)[0]));
  }
};

TEST_F(Arguments, sizes_of_zero) {
  EXPECT_EQ(dual([](auto& d) { d.args.rows = 0; }), "project_dual: rows is 0");
  EXPECT_EQ(dual([](auto& d) { d.args.output_size = 0; }), "project_dual: output_size is 0");
  EXPECT_EQ(dual([](auto& d) { d.args.hidden_size = 0; }), "project_dual: hidden_size is 0");
  EXPECT_EQ(dual([](auto& d) { d.args = {}; }), "project_dual: rows is 0");
  EXPECT_EQ(gated([](auto& g) { g.args.rows = 0; }), "project_gated: rows is 0");
  EXPECT_EQ(single([](auto& s) { s.args.output_size = 0; }), "project: output_size is 0");
}

TEST_F(Arguments, sizes_beyond_what_kernels_count) {
  EXPECT_EQ(dual([](auto& d) { d.args.rows = 1u << 31; }),
            "project_dual: rows is 2147483648, at most 2147483647 can be");
  EXPECT_EQ(single([](auto& s) { s.args.hidden_size = UINT32_MAX; }),
            "project: hidden_size is 4294967295, at most 2147483647 can be");
  // a product beyond 2^64 is told as what it is
  EXPECT_EQ(single([](auto& s) {
              s.args = {.rows = 1, .output_size = 2147483647, .hidden_size = 2147483647};
              s.weights.format = Format::kF32;
              s.input.offset = 0;
            }),
            "project: input needs 8589934588 bytes, has 2048");
  EXPECT_EQ(single([](auto& s) {
              s.args = {.rows = 2147483647, .output_size = 1, .hidden_size = 2147483647};
              s.weights.format = Format::kF32;
            }),
            "project: input needs 18446744056529682436 bytes, has 2048");
}

TEST_F(Arguments, hidden_sizes_that_are_not_whole_blocks) {
  EXPECT_EQ(dual([](auto& d) { d.args.hidden_size = 100; }),
            "project_dual: hidden_size 100 is no multiple of 32, the block of first_weights's Q4_0");
  EXPECT_EQ(dual([](auto& d) { d.args.hidden_size = 288; }),
            "project_dual: hidden_size 288 is no multiple of 256, the block of second_weights's Q6_K");
  EXPECT_EQ(gated([](auto& g) { g.args.hidden_size = 31; }),
            "project_gated: hidden_size 31 is no multiple of 32, the block of gate_weights's Q4_0");
  EXPECT_EQ(gated([](auto& g) { g.args.hidden_size = 32; }),
            "project_gated: hidden_size 32 is no multiple of 256, the block of up_weights's Q6_K");
  EXPECT_EQ(single([](auto& s) {
              s.args.hidden_size = 96;
              s.weights.format = Format::kNVFP4;
            }),
            "project: hidden_size 96 is no multiple of 64, the block of weights's NVFP4");
}

TEST_F(Arguments, buffers_that_are_too_short) {
  // 2 rows, 5 outputs, 256 columns: input 2·256·4, Q4_0 5·8·18, Q6_K 5·210, outputs 2·5·4
  EXPECT_EQ(dual([&](auto& d) { d.input = of_bytes(2047); }), "project_dual: input needs 2048 bytes, has 2047");
  EXPECT_EQ(dual([&](auto& d) { d.first_weights.view = of_bytes(719); }),
            "project_dual: first_weights needs 720 bytes, has 719");
  EXPECT_EQ(dual([&](auto& d) { d.second_weights.view = of_bytes(1049); }),
            "project_dual: second_weights needs 1050 bytes, has 1049");
  EXPECT_EQ(dual([&](auto& d) { d.first_output = of_bytes(39); }), "project_dual: first_output needs 40 bytes, has 39");
  EXPECT_EQ(dual([&](auto& d) { d.second_output = of_bytes(1); }), "project_dual: second_output needs 40 bytes, has 1");
  EXPECT_EQ(gated([&](auto& g) { g.input = of_bytes(4); }), "project_gated: input needs 2048 bytes, has 4");
  EXPECT_EQ(gated([&](auto& g) { g.gate_weights.view = of_bytes(18); }),
            "project_gated: gate_weights needs 720 bytes, has 18");
  EXPECT_EQ(gated([&](auto& g) { g.up_weights.view = of_bytes(1048); }),
            "project_gated: up_weights needs 1050 bytes, has 1048");
  EXPECT_EQ(gated([&](auto& g) { g.output = of_bytes(36); }), "project_gated: output needs 40 bytes, has 36");
  EXPECT_EQ(single([&](auto& s) { s.input = of_bytes(1024); }), "project: input needs 2048 bytes, has 1024");
  EXPECT_EQ(single([&](auto& s) { s.weights.view = of_bytes(702); }), "project: weights needs 720 bytes, has 702");
  EXPECT_EQ(single([&](auto& s) { s.output = of_bytes(20); }), "project: output needs 40 bytes, has 20");
  // more rows need more
  EXPECT_EQ(dual([](auto& d) { d.args.rows = 3; }), "project_dual: input needs 3072 bytes, has 2048");
}

TEST_F(Arguments, views_that_leave_too_little_or_begin_in_between) {
  EXPECT_EQ(dual([](auto& d) { d.input.offset = 4; }), "project_dual: input needs 2048 bytes, has 2044 from byte 4 on");
  EXPECT_EQ(dual([](auto& d) { d.second_output.offset = UINT64_MAX; }),
            "project_dual: second_output needs 40 bytes, has 0 from byte 18446744073709551615 on");
  EXPECT_EQ(dual([](auto& d) { d.first_output.offset = 2; }),
            "project_dual: first_output begins at byte 2 of its buffer, which is no multiple of 4");
  EXPECT_EQ(single([&](auto& s) { s.weights.view = {of_bytes(1000).buffer, 3}; }),
            "project: weights begins at byte 3 of its buffer, which is no multiple of 2");
  EXPECT_EQ(single([](auto& s) { s.input = {}; }), "project: input needs 2048 bytes, has 0");
}

TEST_F(Arguments, formats_without_a_kernel) {
  EXPECT_EQ(dual([](auto& d) { d.first_weights.format = Format(28); }),
            "project_dual: first_weights is of F64, for which there is no kernel");
  EXPECT_EQ(dual([](auto& d) { d.second_weights.format = Format(24); }),
            "project_dual: second_weights is of I8, for which there is no kernel");
  EXPECT_EQ(gated([](auto& g) { g.up_weights.format = Format(99); }),
            "project_gated: up_weights has the unknown format 99");
}

TEST_F(Arguments, buffers_of_another_device_and_outputs_that_overlap) {
  const Device other = software();
  EXPECT_EQ(dual([&](auto& d) { d.input = {other.allocate(4096, "x").value()}; }),
            "project_dual: input is a buffer of another device");
  EXPECT_EQ(dual([](auto& d) { d.second_output = d.first_output; }),
            "project_dual: first_output overlaps second_output");
  EXPECT_EQ(dual([](auto& d) { d.first_output = d.input; }), "project_dual: first_output overlaps input");
  EXPECT_EQ(gated([](auto& g) { g.output = {g.up_weights.view.buffer, 1008}; }),
            "project_gated: output overlaps up_weights");
  EXPECT_EQ(single([](auto& s) { s.output = {s.input.buffer, 2008}; }), "project: output overlaps input");
}

TEST(MetalOps, commands_run_once) {
  const Pair p = small(software());
  Commands commands = p.commands();
  EXPECT_EQ(error_of(commands.run()), "");
  EXPECT_EQ(error_of(commands.run()), "run: these commands have run already");
  EXPECT_EQ(error_of(commands.project_dual(p.dual())), "project_dual: these commands have run already");
  Commands fresh = p.commands();
  Commands taken = std::move(fresh);
  EXPECT_EQ(error_of(fresh.project(p.single())), "project: these commands have run already");
  EXPECT_EQ(error_of(taken.project(p.single())), "");  // and dropped without having run
}

TEST(MetalOps, memory_that_cannot_be) {
  const Device device = software();
  EXPECT_EQ(device.describe(), "software Metal device");
  EXPECT_EQ(device.allocate(0, "nothing").error().message, "nothing: a buffer cannot have 0 bytes");
  EXPECT_EQ(device.allocate(device.most_buffer_bytes() + 1, "all").error().message,
            "all: 1099511627777 bytes are more than the 1099511627776 of the device's largest buffer");
  const auto page = size_t(sysconf(_SC_PAGESIZE));
  std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(page, page), std::free);
  auto* bytes = static_cast<std::byte*>(memory.get());
  int released = 0;
  const auto release = [&] { ++released; };
  EXPECT_EQ(device.wrap(bytes, 0, release, "none").error().message, "none: a buffer cannot have 0 bytes");
  EXPECT_EQ(device.wrap(nullptr, 4, release, "null").error().message.substr(0, 45),
            "null: memory to wrap must begin at a multiple");
  EXPECT_EQ(device.wrap(bytes + 4, 4, release, "odd").error().message,
            fmt::format("odd: memory to wrap must begin at a multiple of {} bytes, not at {}", page,
                        static_cast<void*>(bytes + 4)));
  EXPECT_EQ(released, 0) << "what could not be wrapped is still the caller's";
  Buffer wrapped = device.wrap(bytes, 100, release, "caller's").value();
  EXPECT_EQ(wrapped.bytes(), 100u);
  EXPECT_EQ(wrapped.data(), bytes);
  wrapped = {};
  EXPECT_EQ(released, 1);
}

#ifndef __APPLE__
TEST(MetalOps, a_system_without_metal_says_so) {
  const auto device = Device::system();
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(device.error().message, "Metal is there on Apple systems only");
}
#endif

// ---- results
// ---------------------------------------------------------------------------------------------------------

/// Both outputs of a fused launch; the single ones must be the same bits, for all rows together and row by row.
void expect_fused_is_single(const Pair& p) {
  const auto& [rows, output_size, hidden_size] = p.args;
  SCOPED_TRACE(fmt::format("{} rows, {}x{}, formats {} and {}", rows, output_size, hidden_size, uint32_t(p.first),
                           uint32_t(p.second)));
  Commands fused = p.commands();
  ASSERT_EQ(error_of(fused.project_dual(p.dual())), "");
  EXPECT_EQ(fused.launches(), 1u);
  ASSERT_EQ(error_of(fused.run()), "");

  const Buffer first = p.output(), second = p.output(), first_rows = p.output(), second_rows = p.output();
  Commands apart = p.commands();
  const Weights weights[] = {{p.first, {p.first_weights}}, {p.second, {p.second_weights}}};
  const Buffer together[] = {first, second}, by_row[] = {first_rows, second_rows};
  for (int m = 0; m < 2; ++m) {
    ASSERT_EQ(error_of(apart.project({p.args, {p.input}, weights[m], {together[m]}})), "");
    for (uint32_t r = 0; r < rows; ++r)
      ASSERT_EQ(error_of(apart.project({{1, output_size, hidden_size},
                                        {p.input, 4ull * r * hidden_size},
                                        weights[m],
                                        {by_row[m], 4ull * r * output_size}})),
                "");
  }
  EXPECT_EQ(apart.launches(), 2 * (1 + rows));
  ASSERT_EQ(error_of(apart.run()), "");
  const Buffer fused_outputs[] = {p.first_output, p.second_output};
  for (int m = 0; m < 2; ++m) {
    const auto all = floats(fused_outputs[m], 0, p.outputs());
    EXPECT_TRUE(same_bits(all, floats(together[m], 0, p.outputs()))) << "matrix " << m;
    EXPECT_TRUE(same_bits(all, floats(by_row[m], 0, p.outputs()))) << "matrix " << m << ", row by row";
    for (const Buffer& b : {fused_outputs[m], together[m], by_row[m]})
      EXPECT_TRUE(std::isnan(floats(b, p.outputs(), 1)[0])) << "past the end";
  }
}

TEST(MetalOps, dual_projections_are_two_single_ones_for_any_rows_and_formats) {
  const Device device = software();
  constexpr std::pair<Format, Format> kPairs[] = {{Format::kQ4_0, Format::kQ4_0},  {Format::kQ4_1, Format::kQ8_0},
                                                  {Format::kQ4_K, Format::kQ6_K},  {Format::kF16, Format::kBF16},
                                                  {Format::kMXFP4, Format::kQ5_1}, {Format::kF32, Format::kIQ4_XS},
                                                  {Format::kIQ1_M, Format::kIQ3_S}};
  for (uint32_t rows = 1; rows <= 9; ++rows)  // one more than a launch holds at a time
    for (const auto& [first, second] : kPairs) expect_fused_is_single({device, {rows, 67, 512}, first, second});
  expect_fused_is_single({device, {8, 1, 32}, Format::kQ4_0, Format::kQ5_0});
  expect_fused_is_single({device, {3, 33, 41}, Format::kF32, Format::kF16});       // columns that end within a part
  expect_fused_is_single({device, {2, 130, 6176}, Format::kQ4_0, Format::kQ4_0});  // beyond every cache of the input
}

TEST(MetalOps, nothing_is_reported_of_any_format) {
  const Device device = software(true);
  EXPECT_EQ(device.describe(), "software Metal device, checking");
  for (const quant::Format f : kernel_formats())
    expect_fused_is_single({device, {3, 9, 256}, Format(f), Format::kQ4_0});
}

/// W · x of every row and output, in double precision.
std::vector<Expected> products_of(const Pair& p, Format format, const std::vector<std::byte>& bytes) {
  program::Program program;
  program.weights.push_back(
      {"w", quant::Format(format), p.args.hidden_size, p.args.output_size, 1, bytes.data(), bytes.size()});
  const program::Matrix m{0, 0, p.args.output_size};
  const auto w = backend::metal::testing::dequantized(program, m);
  std::vector<Expected> all;
  for (uint32_t r = 0; r < p.args.rows; ++r) {
    const auto row = backend::metal::testing::products(program, m, w, std::nullopt,
                                                       p.x.data() + size_t(r) * p.args.hidden_size, false);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

TEST(MetalOps, every_format_is_near_double_precision) {
  const Device device = software();
  for (const quant::Format f : kernel_formats()) {
    const Pair p{device, {5, 34, 768}, Format(f), Format::kQ4_1};
    Commands commands = p.commands();
    ASSERT_EQ(error_of(commands.project_dual(p.dual())), "");
    ASSERT_EQ(error_of(commands.run()), "");
    const std::string name(quant::to_string(f));
    const auto first = products_of(p, p.first, p.first_bytes), second = products_of(p, p.second, p.second_bytes);
    for (size_t i = 0; i < p.outputs(); ++i) {
      ASSERT_EQ(backend::metal::testing::compare(name, i, floats(p.first_output, i, 1)[0], first[i]), "");
      ASSERT_EQ(backend::metal::testing::compare("Q4_1", i, floats(p.second_output, i, 1)[0], second[i]), "");
    }
  }
}

TEST(MetalOps, gated_projections_are_the_unit_of_two_single_ones) {
  const Device device = software(true);
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    const Pair p{device, {4, 37, 512}, Format::kQ8_0, Format::kQ5_K};
    const Buffer output = p.output();
    Commands commands = p.commands();
    GatedProjection gated = p.gated();
    gated.activation = activation;
    gated.output = {output};
    ASSERT_EQ(error_of(commands.project_gated(gated)), "");
    EXPECT_EQ(commands.launches(), 1u);
    ASSERT_EQ(error_of(commands.project_dual(p.dual())), "");
    ASSERT_EQ(error_of(commands.run()), "");
    for (size_t i = 0; i < p.outputs(); ++i) {
      const double g = double(floats(p.first_output, i, 1)[0]), u = double(floats(p.second_output, i, 1)[0]);
      const double share = activation == Activation::kSilu
                               ? 1 / (1 + std::exp(-g))
                               : 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
      // some ten roundings, each at most of a share of 1 (a tanh near −1 leaves little of what it was rounded with)
      ASSERT_NEAR(double(floats(output, i, 1)[0]), g * share * u, std::abs(g * u) * 10 * 0x1p-24) << i;
    }
    EXPECT_TRUE(std::isnan(floats(output, p.outputs(), 1)[0]));
  }
}

TEST(MetalOps, what_one_projection_writes_the_next_may_read_even_as_weights) {
  const Device device = software(true);  // reports a barrier that is missing
  // y = (1 2; 3 4) · (5 6) = (17 39), read as a matrix of one row; then y = (1 2; 3 4) · (7 8), read as an input
  const Buffer w = filled(device, {1, 2, 3, 4}), x = filled(device, {5, 6}), other = filled(device, {7, 8});
  const Buffer y = filled(device, {0, 0}), z = filled(device, {0, 0}), dot = filled(device, {0});
  Commands commands = device.new_commands("chain").value();
  ASSERT_EQ(error_of(commands.project({{1, 2, 2}, {x}, {Format::kF32, {w}}, {y}})), "");
  ASSERT_EQ(error_of(commands.project({{1, 1, 2}, {x}, {Format::kF32, {y}}, {dot}})), "");
  ASSERT_EQ(error_of(commands.project({{1, 2, 2}, {other}, {Format::kF32, {w}}, {y}})), "");
  ASSERT_EQ(error_of(commands.project({{1, 2, 2}, {y}, {Format::kF32, {w}}, {z}})), "");
  ASSERT_EQ(error_of(commands.run()), "");
  EXPECT_EQ(floats(dot, 0, 1), std::vector<float>{319});
  EXPECT_EQ(floats(y, 0, 2), (std::vector<float>{23, 53}));
  EXPECT_EQ(floats(z, 0, 2), (std::vector<float>{129, 281}));
}

TEST(MetalOps, views_of_one_buffer_and_memory_of_the_caller) {
  const Device device = software();
  const Pair p = small(device);
  const auto page = size_t(sysconf(_SC_PAGESIZE));
  std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(page, page), std::free);
  // a file's tensors, one after the other, and buffers that go before the commands run
  auto* bytes = static_cast<std::byte*>(memory.get());
  std::memcpy(bytes + 32, p.first_bytes.data(), p.first_bytes.size());
  std::memcpy(bytes + 1024, p.second_bytes.data(), p.second_bytes.size());
  Commands commands = p.commands(), expected = p.commands();
  ASSERT_EQ(error_of(expected.project_dual(p.dual())), "");
  ASSERT_EQ(error_of(expected.run()), "");
  const Buffer outputs = device.allocate(2 * 40, "both").value();
  int released = 0;
  {
    DualProjection d = p.dual();
    const Buffer layer = device.wrap(bytes, page, [&] { ++released; }, "layer").value();
    d.first_weights.view = {layer, 32};
    d.second_weights.view = {layer, 1024};
    d.first_output = {outputs, 40};
    d.second_output = {outputs};
    ASSERT_EQ(error_of(commands.project_dual(d)), "");
  }
  EXPECT_EQ(released, 0) << "the commands use it";
  ASSERT_EQ(error_of(commands.run()), "");
  EXPECT_TRUE(same_bits(floats(outputs, 10, 10), floats(p.first_output, 0, 10)));
  EXPECT_TRUE(same_bits(floats(outputs, 0, 10), floats(p.second_output, 0, 10)));
  {
    const Commands done = std::move(commands);
  }
  EXPECT_EQ(released, 1);
}

}  // namespace
}  // namespace honeycrisp::metal
