// hc_metal_token_speed [threads [seconds]]: one decoded token of a 135M-shaped model in Q4_0 (30 layers of width 576, 9
// heads, 3 KV heads, 1536 hidden, 49152 logits, 128 cached positions) by the test kernels, in one command buffer.
// Prints the median of its times. A measurement, not a test.
#include "cases.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

using namespace honeycrisp::backend::metal::soft;
using testing::buffer_of;

int main(int argc, char** argv) {
  const uint32_t threads = argc > 1 ? uint32_t(std::atoi(argv[1])) : 0;
  const double limit = argc > 2 ? std::atof(argv[2]) : 5;
  constexpr uint32_t kWidth = 576, kHidden = 1536, kHeads = 9, kKvHeads = 3, kHead = 64, kPositions = 128,
                     kLogits = 49152, kLayers = 30;
  const auto device = Device::create({.threads = threads}).value();
  const auto library = device->open_library("test_kernels").value();
  FunctionConstants constants;
  constants.set<bool>(0, false);
  const auto mat_vec = device->new_pipeline(library, "q4_0_mat_vec", constants).value();
  const auto attend = device->new_pipeline(library, "attend_decode_f16_64").value();
  const auto norm = device->new_pipeline(library, "rms_norm").value();
  const auto add = device->new_pipeline(library, "add").value();
  const auto weights = buffer_of(*device, std::vector<uint8_t>(size_t(kLogits) * kWidth / 32 * 18, 0x11));
  const auto cache = buffer_of(*device, std::vector<uint16_t>(kPositions * kKvHeads * kHead, 0x3c00));
  const auto vector = [&](uint32_t n) { return buffer_of(*device, std::vector<float>(n, 0.01f)); };
  const auto x = vector(kWidth), gain = vector(kWidth), normed = vector(kWidth),
             q = vector(kWidth + 2 * kKvHeads * kHead), attended = vector(kWidth), gate = vector(2 * kHidden),
             out = vector(kWidth), logits = vector(kLogits);

  std::vector<double> times;
  for (double total = 0; total < limit;) {
    const auto commands = device->new_command_buffer();
    const auto e = commands->new_encoder(DispatchType::kConcurrent);
    const auto project = [&](uint32_t rows, uint32_t columns, const auto& from, const auto& to) {
      const uint32_t args[] = {rows, columns};
      e->set_pipeline(mat_vec);
      e->set_buffer(weights, 0, 0);
      e->set_buffer(from, 0, 1);
      e->set_buffer(to, 0, 2);
      e->set_value(args, 4);
      e->set_threadgroup_memory(columns * 4, 0);
      e->dispatch_threadgroups({(rows + 7) / 8}, {64});
      e->memory_barrier();
    };
    const auto normalize = [&] {
      const struct {
        uint32_t width;
        float epsilon;
      } args{kWidth, 1e-5f};
      e->set_pipeline(norm);
      e->set_buffer(x, 0, 0);
      e->set_buffer(gain, 0, 1);
      e->set_buffer(normed, 0, 2);
      e->set_value(args, 3);
      e->dispatch_threadgroups({1}, {256});
      e->memory_barrier();
    };
    const auto accumulate = [&] {
      e->set_pipeline(add);
      e->set_buffer(x, 0, 0);
      e->set_buffer(out, 0, 1);
      e->set_value(kWidth, 2);
      e->dispatch_threads({kWidth}, {64});
      e->memory_barrier();
    };
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      normalize();
      project(kWidth + 2 * kKvHeads * kHead, kWidth, normed, q);
      const struct {
        uint32_t positions, kv_heads, per_kv;
        float scale;
      } args{kPositions, kKvHeads, kHeads / kKvHeads, 0.125f};
      e->set_pipeline(attend);
      e->set_buffer(q, 0, 0);
      e->set_buffer(cache, 0, 1);
      e->set_buffer(cache, 0, 2);
      e->set_buffer(attended, 0, 3);
      e->set_value(args, 4);
      e->dispatch_threadgroups({kHeads}, {128});
      e->memory_barrier();
      project(kWidth, kWidth, attended, out);
      accumulate();
      normalize();
      project(2 * kHidden, kWidth, normed, gate);
      project(kWidth, kHidden, gate, out);
      accumulate();
    }
    normalize();
    project(kLogits, kWidth, normed, logits);
    e->end();
    const auto start = std::chrono::steady_clock::now();
    commands->commit();
    commands->wait();
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    total += times.back();
  }
  std::sort(times.begin(), times.end());
  std::printf("%u threads: %.1f ms a token (median of %zu; %.1f to %.1f)\n", threads, times[times.size() / 2] * 1e3,
              times.size(), times.front() * 1e3, times.back() * 1e3);
}
