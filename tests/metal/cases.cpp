#include "cases.h"

#include "base/half.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <random>

namespace honeycrisp::backend::metal::soft::testing {
namespace {

using LibraryRef = std::shared_ptr<const Library>;
using BufferRef = std::shared_ptr<Buffer>;

std::vector<float> normals(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& x : v) x = normal(random);
  return v;
}

/// Runs what `encode` records in one concurrent encoder; empty, or why it failed.
template <class Encode>
std::string submit(Device& device, Encode encode) {
  auto commands = device.new_command_buffer();
  auto encoder = commands->new_encoder(DispatchType::kConcurrent);
  encode(*encoder);
  encoder->end();
  commands->commit();
  commands->wait();
  const auto result = commands->result();
  return result ? "" : result.error().message;
}

/// A sum of n products, each rounded, in any order: n + 2 roundings of 2^-24 each, relative to the sum of magnitudes.
double tolerance(size_t n, double magnitudes) { return double(n + 2) * magnitudes * 0x1p-24; }

std::string compare(const char* what, size_t i, double got, double want, double allowed) {
  if (std::abs(got - want) <= allowed) return "";  // not so if NaN
  return fmt::format("{}: element {}: {} instead of {} (allowed {})", what, i, got, want, allowed);
}

// ---- q4_0_mat_vec ----

struct BlockQ40 {
  uint16_t d;
  uint8_t qs[16];
};

std::string mat_vec(Device& device, const LibraryRef& library, uint32_t rows, uint32_t columns, bool has_bias,
                    uint32_t per_simdgroup, uint32_t simdgroups) {
  FunctionConstants constants;
  constants.set<bool>(0, has_bias);
  if (per_simdgroup != 0) constants.set<uint32_t>(1, per_simdgroup);
  const uint32_t rows_of_threadgroup = simdgroups * (per_simdgroup ? per_simdgroup : 4), blocks = columns / 32;
  std::mt19937 random(rows * 31 + columns);
  std::vector<BlockQ40> w(size_t(rows) * blocks);
  for (BlockQ40& b : w) {
    b.d = f32_to_f16(float(random() % 1000) * 1e-3f - 0.5f);
    for (uint8_t& q : b.qs) q = uint8_t(random());
  }
  const auto x = normals(columns, columns), bias = normals(rows, rows);
  const BufferRef bw = buffer_of(device, w), bx = buffer_of(device, x), bb = buffer_of(device, bias);
  const BufferRef by = device.new_buffer(rows * sizeof(float)).value();
  const auto pipeline = device.new_pipeline(library, "q4_0_mat_vec", constants);
  if (!pipeline) return pipeline.error().message;
  const uint32_t args[] = {rows, columns};
  const std::string failed = submit(device, [&](Encoder& e) {
    e.set_pipeline(*pipeline);
    e.set_buffer(bw, 0, 0);
    e.set_buffer(bx, 0, 1);
    e.set_buffer(by, 0, 2);
    if (has_bias) e.set_buffer(bb, 0, 3);
    e.set_value(args, 4);
    e.set_threadgroup_memory(columns * 4, 0);
    e.dispatch_threadgroups({(rows + rows_of_threadgroup - 1) / rows_of_threadgroup}, {simdgroups * 32});
  });
  if (!failed.empty()) return failed;
  for (uint32_t r = 0; r < rows; ++r) {
    double sum = has_bias ? double(bias[r]) : 0, magnitudes = std::abs(sum);
    for (uint32_t c = 0; c < columns; ++c) {
      const BlockQ40& b = w[size_t(r) * blocks + c / 32];
      const int q = c % 32 < 16 ? b.qs[c % 16] & 15 : b.qs[c % 16] >> 4;
      sum += double(f16_to_f32(b.d)) * (q - 8) * double(x[c]);
      // the kernel subtracts 8 times the sum of x from the sum of products with 0..15
      magnitudes += std::abs(double(f16_to_f32(b.d)) * (q + 8) * double(x[c]));
    }
    const std::string wrong =
        compare("q4_0_mat_vec", r, double(static_cast<float*>(by->contents())[r]), sum, tolerance(columns, magnitudes));
    if (!wrong.empty()) return wrong;
  }
  return "";
}

std::string q4_0_mat_vec(Device& device, const LibraryRef& library) {
  struct Shape {
    uint32_t rows, columns;
    bool bias;
    uint32_t per_simdgroup, simdgroups;
  };
  for (const Shape& s : std::initializer_list<Shape>{
           {1, 32, false, 0, 1}, {9, 96, true, 0, 2}, {33, 576, false, 8, 2}, {31, 1056, true, 1, 4}})
    if (std::string wrong = mat_vec(device, library, s.rows, s.columns, s.bias, s.per_simdgroup, s.simdgroups);
        !wrong.empty())
      return wrong;
  return "";
}

// ---- attend_decode ----

template <class T, class ToFloat>
std::string attend(Device& device, const LibraryRef& library, const char* kernel, uint32_t d, uint32_t positions,
                   uint32_t kv_heads, uint32_t per_kv, uint32_t simdgroups, T (*from_float)(float), ToFloat to_float) {
  const uint32_t heads = kv_heads * per_kv;
  const auto q = normals(heads * d, 1), kf = normals(size_t(positions) * kv_heads * d, 2), vf = normals(kf.size(), 3);
  std::vector<T> k(kf.size()), v(kf.size());
  std::transform(kf.begin(), kf.end(), k.begin(), from_float);
  std::transform(vf.begin(), vf.end(), v.begin(), from_float);
  const BufferRef bq = buffer_of(device, q), bk = buffer_of(device, k), bv = buffer_of(device, v);
  const BufferRef out = device.new_buffer(q.size() * sizeof(float)).value();
  const auto pipeline = device.new_pipeline(library, kernel);
  if (!pipeline) return pipeline.error().message;
  const float scale = 1 / std::sqrt(float(d));
  struct {
    uint32_t positions, kv_heads, per_kv;
    float scale;
  } args{positions, kv_heads, per_kv, scale};
  const std::string failed = submit(device, [&](Encoder& e) {
    e.set_pipeline(*pipeline);
    e.set_buffer(bq, 0, 0);
    e.set_buffer(bk, 0, 1);
    e.set_buffer(bv, 0, 2);
    e.set_buffer(out, 0, 3);
    e.set_value(args, 4);
    e.dispatch_threadgroups({heads}, {simdgroups * 32});
  });
  if (!failed.empty()) return failed;
  for (uint32_t h = 0; h < heads; ++h) {
    std::vector<double> score(positions);
    double largest_sum = 0, maximum = -INFINITY, total = 0;
    const auto at = [&](uint32_t p, uint32_t i) { return (size_t(p) * kv_heads + h / per_kv) * d + i; };
    for (uint32_t p = 0; p < positions; ++p) {
      double magnitudes = 0;
      for (uint32_t i = 0; i < d; ++i) {
        const double product = double(q[h * d + i]) * double(scale) * double(to_float(k[at(p, i)]));
        score[p] += product;
        magnitudes += std::abs(product);
      }
      largest_sum = std::max(largest_sum, magnitudes);
      maximum = std::max(maximum, score[p]);
    }
    for (double& s : score) total += s = std::exp(s - maximum);
    for (uint32_t i = 0; i < d; ++i) {
      double want = 0, magnitudes = 0;
      for (uint32_t p = 0; p < positions; ++p) {
        want += score[p] / total * double(to_float(v[at(p, i)]));
        magnitudes += std::abs(score[p] / total * double(to_float(v[at(p, i)])));
      }
      // an error e of a score is a relative error e of its weight, in the sum and in the total; then the sums over
      // positions, each with a rescale by exp (2 ulp) for each new maximum
      const double allowed = magnitudes * (2 * tolerance(d, largest_sum) + 8 * double(positions + 8) * 0x1p-24);
      const std::string wrong =
          compare(kernel, h * d + i, double(static_cast<float*>(out->contents())[h * d + i]), want, allowed);
      if (!wrong.empty()) return wrong;
    }
  }
  return "";
}

std::string attend_decode(Device& device, const LibraryRef& library) {
  const auto same = [](float f) { return f; };
  for (const uint32_t positions : {1u, 7u, 67u}) {
    std::string wrong =
        attend<uint16_t>(device, library, "attend_decode_f16_64", 64, positions, 3, 3, 8, f32_to_f16, f16_to_f32);
    if (wrong.empty())
      wrong =
          attend<uint16_t>(device, library, "attend_decode_bf16_96", 96, positions, 1, 2, 5, f32_to_bf16, bf16_to_f32);
    if (wrong.empty())
      wrong = attend<float>(device, library, "attend_decode_f32_128", 128, positions, 2, 1, 1, same, same);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

// ---- rms_norm, then add to a residual: two dispatches with a barrier ----

std::string norm_and_add(Device& device, const LibraryRef& library, uint32_t rows, uint32_t width, uint32_t threads) {
  const auto x = normals(size_t(rows) * width, width), gain = normals(width, 5), residual = normals(x.size(), 6);
  const BufferRef bx = buffer_of(device, x), bg = buffer_of(device, gain), br = buffer_of(device, residual);
  // y is a view in the middle of a larger buffer
  const size_t begin = 256, bytes = x.size() * sizeof(float);
  const BufferRef slab = device.new_buffer(bytes + 2 * begin).value();
  const auto norm = device.new_pipeline(library, "rms_norm"), add = device.new_pipeline(library, "add");
  if (!norm || !add) return "no pipeline";
  const float epsilon = 1e-5f;
  struct {
    uint32_t width;
    float epsilon;
  } args{width, epsilon};
  const uint32_t count = rows * width;
  const std::string failed = submit(device, [&](Encoder& e) {
    e.set_pipeline(*norm);
    e.set_buffer(bx, 0, 0);
    e.set_buffer(bg, 0, 1);
    e.set_buffer(slab, begin, 2, bytes);
    e.set_value(args, 3);
    e.dispatch_threadgroups({rows}, {threads});
    e.memory_barrier();
    e.set_pipeline(*add);
    e.set_buffer(br, 0, 0);
    e.set_buffer(slab, begin, 1, bytes);
    e.set_value(count, 2);
    e.dispatch_threads({(count + 31) / 32 * 32}, {96});
  });
  if (!failed.empty()) return failed;
  for (uint32_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (uint32_t i = 0; i < width; ++i) squares += double(x[r * width + i]) * double(x[r * width + i]);
    const double scale = 1 / std::sqrt(squares / width + double(epsilon));
    for (uint32_t i = 0; i < width; ++i) {
      const size_t at = size_t(r) * width + i;
      const double normed = double(x[at]) * scale * double(gain[i]), want = normed + double(residual[at]);
      const double allowed = (double(width) / 2 + 8) * 0x1p-24 * std::abs(normed) + std::abs(want) * 0x1p-23;
      const std::string wrong =
          compare("rms_norm and add", at, double(static_cast<float*>(br->contents())[at]), want, allowed);
      if (!wrong.empty()) return wrong;
    }
  }
  return "";
}

std::string rms_norm(Device& device, const LibraryRef& library) {
  for (const auto& [rows, width, threads] :
       {std::array{1u, 1u, 32u}, std::array{3u, 577u, 256u}, std::array{2u, 100u, 512u}})
    if (std::string wrong = norm_and_add(device, library, rows, width, threads); !wrong.empty()) return wrong;
  return "";
}

// ---- histogram ----

std::string histogram(Device& device, const LibraryRef& library) {
  const uint32_t count = 1001;
  std::vector<uint8_t> values(count);
  std::vector<uint32_t> want(16);
  std::mt19937 random(3);
  for (uint8_t& v : values) ++want[(v = uint8_t(random())) % 16];
  const BufferRef in = buffer_of(device, values), counts = buffer_of(device, std::vector<uint32_t>(16));
  const auto pipeline = device.new_pipeline(library, "histogram");
  if (!pipeline) return pipeline.error().message;
  const std::string failed = submit(device, [&](Encoder& e) {
    e.set_pipeline(*pipeline);
    e.set_buffer(in, 0, 0);
    e.set_buffer(counts, 0, 1);
    e.set_value(count, 2);
    e.dispatch_threadgroups({16}, {64});
  });
  if (!failed.empty()) return failed;
  for (uint32_t i = 0; i < 16; ++i)
    if (std::string wrong = compare("histogram", i, static_cast<uint32_t*>(counts->contents())[i], want[i], 0);
        !wrong.empty())
      return wrong;
  return "";
}

std::string prefix_sum(Device& device, const LibraryRef& library) {
  const uint32_t threads = 160;
  std::vector<uint32_t> values(threads);
  std::mt19937 random(4);
  for (uint32_t& v : values) v = random() % 1000;
  const BufferRef in = buffer_of(device, values), out = device.new_buffer(threads * 4).value(),
                  totals = device.new_buffer(20).value();
  const auto pipeline = device.new_pipeline(library, "prefix_sum");
  if (!pipeline) return pipeline.error().message;
  const std::string failed = submit(device, [&](Encoder& e) {
    e.set_pipeline(*pipeline);
    e.set_buffer(in, 0, 0);
    e.set_buffer(out, 0, 1);
    e.set_buffer(totals, 0, 2);
    e.dispatch_threadgroups({1}, {threads});
  });
  if (!failed.empty()) return failed;
  uint32_t sum = 0;
  for (uint32_t i = 0; i < threads; ++i, sum += values[i - 1])
    if (std::string wrong = compare("prefix_sum", i, static_cast<uint32_t*>(out->contents())[i], sum, 0);
        !wrong.empty())
      return wrong;
  return "";
}

// ---- gemm ----

/// `round_*`: the rounding of an element on its way into a tile.
template <class T>
std::string multiply(Device& device, const LibraryRef& library, const char* kernel, uint32_t m, uint32_t n, uint32_t k,
                     T (*from_float)(float), float (*used)(T)) {
  const auto af = normals(size_t(m) * k, m), bf = normals(size_t(k) * n, n);
  std::vector<T> a(af.size()), b(bf.size());
  std::transform(af.begin(), af.end(), a.begin(), from_float);
  std::transform(bf.begin(), bf.end(), b.begin(), from_float);
  const BufferRef ba = buffer_of(device, a), bb = buffer_of(device, b),
                  bc = device.new_buffer(size_t(m) * n * 4).value();
  const auto pipeline = device.new_pipeline(library, kernel);
  if (!pipeline) return pipeline.error().message;
  const uint32_t args[] = {m, n, k};
  const std::string failed = submit(device, [&](Encoder& e) {
    e.set_pipeline(*pipeline);
    e.set_buffer(ba, 0, 0);
    e.set_buffer(bb, 0, 1);
    e.set_buffer(bc, 0, 2);
    e.set_value(args, 3);
    e.dispatch_threadgroups({(n + 15) / 16, (m + 15) / 16}, {128});
  });
  if (!failed.empty()) return failed;
  for (uint32_t i = 0; i < m; ++i)
    for (uint32_t j = 0; j < n; ++j) {
      double want = 0, magnitudes = 0;
      for (uint32_t l = 0; l < k; ++l) {
        const double product = double(used(a[i * k + l])) * double(used(b[l * n + j]));
        want += product;
        magnitudes += std::abs(product);
      }
      const std::string wrong =
          compare(kernel, size_t(i) * n + j, double(static_cast<float*>(bc->contents())[i * n + j]), want,
                  tolerance(k, magnitudes));
      if (!wrong.empty()) return wrong;
    }
  return "";
}

std::string gemm(Device& device, const LibraryRef& library) {
  const auto same = [](float f) { return f; };
  for (const auto& [m, n, k] : {std::array{1u, 1u, 1u}, std::array{17u, 9u, 33u}, std::array{16u, 32u, 16u}}) {
    std::string wrong = multiply<uint16_t>(device, library, "gemm_f16", m, n, k, f32_to_f16, f16_to_f32);
    if (wrong.empty()) wrong = multiply<float>(device, library, "gemm_f32", m, n, k, same, same);
    if (wrong.empty())
      wrong = multiply<float>(device, library, "gemm_f32_as_bf16", m, n, k, same,
                              [](float f) { return bf16_to_f32(f32_to_bf16(f)); });
    if (!wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"q4_0_mat_vec", "q4_0_mat_vec", q4_0_mat_vec},
      {"attend_decode", "attend_decode", attend_decode},
      {"rms_norm", "rms_norm", rms_norm},
      {"histogram", "histogram", histogram},
      {"prefix_sum", "histogram", prefix_sum},
      {"gemm", "gemm", gemm},
  };
  return all;
}

}  // namespace honeycrisp::backend::metal::soft::testing
