// Small runs of whole ops that lead through every launch and every tail of their kernels, for the mutants.
#include "cases.h"
#include "op_harness.h"
#include "support/op_cases.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace honeycrisp::backend::metal::soft::testing {
namespace {

using metal::testing::Buffers;
using metal::testing::DeviceOps;
using metal::testing::ReferenceOps;
using program::Attend;
using test_support::Random;
using test_support::TinyProgram;
using LibraryRef = std::shared_ptr<const Library>;

Buffers random_inputs(const program::Program& program, size_t n_rows, uint64_t seed) {
  Buffers b;
  for (const program::Buffer& buffer : program.buffers)
    b.push_back(Random(seed + b.size()).floats(n_rows * buffer.width, -2, 2));
  return b;
}

/// Runs the steps on both, in turn. Empty, or what went wrong first; what needs positions that no step computed is no
/// number on either side.
std::string compare_steps(DeviceOps& device, ReferenceOps& reference, const program::Program& program,
                          const program::Op& op, program::BufferId out, std::span<const SequencePages> sequences,
                          const std::vector<std::vector<Row>>& steps, uint32_t checked_sequence) {
  for (size_t i = 0; i < steps.size(); ++i) {
    Buffers got = random_inputs(program, steps[i].size(), 100 * i + 1), want = got;
    reference.run(op, {steps[i], sequences}, want);
    if (const auto done = device.run(op, {steps[i], sequences}, got); !done) return done.error().message;
    const size_t width = program.buffers[out].width;
    for (size_t e = 0; e < got[out].size(); ++e) {
      if (steps[i][e / width].sequence != checked_sequence) continue;
      const double w = double(want[out][e]), g = double(got[out][e]);
      if (!(std::abs(g - w) <= 1e-3 * (1 + std::abs(w))))
        return fmt::format("step {}, row {}, column {}: {} instead of {}", i, e / width, e % width, g, w);
    }
  }
  return "";
}

struct Heads {
  uint32_t key_dim, value_dim, n_heads, n_kv_heads;
};

std::string attend_heads(Device& device, const LibraryRef& library, const Heads& h) {
  TinyProgram tiny(5);
  tiny.program.caches.push_back({.n_kv_heads = h.n_kv_heads, .key_dim = h.key_dim, .value_dim = h.value_dim});
  program::assign_pools(tiny.program);
  Attend op;
  op.n_heads = h.n_heads;
  op.scale = 1 / std::sqrt(float(h.key_dim));
  op.q_norm = tiny.norm(h.key_dim);
  op.k_norm = tiny.norm(h.key_dim);
  op.rope = tiny.rope(false, h.key_dim / 2, h.key_dim / 2);
  op.sinks = tiny.vector(h.n_heads, -1, 1);
  op.q = tiny.all(tiny.buffer(h.n_heads * h.key_dim));
  op.k = tiny.all(tiny.buffer(h.n_kv_heads * h.key_dim));
  op.v = tiny.all(tiny.buffer(h.n_kv_heads * h.value_dim));
  op.out = tiny.all(tiny.buffer(h.n_heads * h.value_dim));

  constexpr uint32_t kPositions = 640;  // ten pages
  std::vector<PageId> pages[2];
  SequencePages sequences[2];
  for (uint32_t s = 0; s < 2; ++s) {
    for (uint32_t i = 0; i < kPositions / program::kPagePositions; ++i) pages[s].push_back(2 * i + s);
    sequences[s].tables = {pages[s]};
  }
  // Rows that see each other, rows that do not, and few enough of a long context that its chunks are spread.
  const std::vector<std::vector<Row>> steps = {
      {{0, 0, 0}, {0, 1, 0}, {0, 2, 0}}, {{0, 3, 0}, {0, 63, 1}}, {{0, kPositions - 1, 1}}};
  DeviceOps ops(tiny.program, CacheType::kF16, device.shared_from_this(), {library}, 20, 0, kPositions);
  ReferenceOps reference(tiny.program, CacheType::kF16, 20, 0);
  return compare_steps(ops, reference, tiny.program, op, op.out.buffer, sequences, steps, 0);
}

std::string attend(Device& device, const LibraryRef& library) {
  std::string wrong = attend_heads(device, library, {32, 96, 6, 1});       // two groups of heads, parts left over
  if (wrong.empty()) wrong = attend_heads(device, library, {8, 8, 3, 3});  // rows attend together
  return wrong;
}

// The op of its kind in a case of op_cases.h, whose buffers are filled at random.
template <class Op>
std::string run_case(Device& device, const LibraryRef& library, const char* name, program::Slice Op::* out,
                     const std::vector<std::vector<Row>>& steps) {
  const auto& all = test_support::op_cases();
  const auto c = std::find_if(all.begin(), all.end(), [&](const auto& k) { return k.name == name; });
  if (c == all.end()) return fmt::format("no case {}", name);
  const TinyProgram tiny = c->build();
  const auto step = std::find_if(tiny.program.steps.begin(), tiny.program.steps.end(),
                                 [](const program::Step& s) { return std::holds_alternative<Op>(s.op); });
  SequencePages sequences[2];
  sequences[0].state = 1;
  sequences[1].state = 0;
  DeviceOps ops(tiny.program, CacheType::kF32, device.shared_from_this(), {library}, 0, 2, 0);
  ReferenceOps reference(tiny.program, CacheType::kF32, 0, 2);
  const program::BufferId buffer = out ? (std::get<Op>(step->op).*out).buffer : 0;
  for (uint32_t s = 0; s < 2; ++s)
    if (std::string wrong = compare_steps(ops, reference, tiny.program, step->op, buffer, sequences, steps, s);
        !wrong.empty())
      return wrong;
  return "";
}

std::string delta_net(Device& device, const LibraryRef& library) {
  return run_case<program::DeltaNet>(device, library, "delta_net_five_heads_of_odd_sizes", &program::DeltaNet::out,
                                     {{{0, 0, 0}, {0, 1, 0}, {0, 2, 0}, {0, 0, 1}}, {{0, 3, 0}, {0, 1, 1}}});
}

std::string mix_experts(Device& device, const LibraryRef& library) {
  std::vector<Row> rows(11);
  for (const char* name : {"mix_experts_norms_dense_branch_and_scales", "mix_experts_shared_expert"})
    if (std::string wrong = run_case<program::MixExperts>(device, library, name, nullptr, {rows, {Row{}}});
        !wrong.empty())
      return wrong;
  return "";
}

}  // namespace

const std::vector<Case>& op_cases() {
  static const std::vector<Case> all = {
      {"attend", "attend", attend},
      {"attend_prepare", "attend_prepare", attend},
      {"mix_experts", "mix_experts", mix_experts},
      {"delta_net", "delta_net", delta_net},
  };
  return all;
}

}  // namespace honeycrisp::backend::metal::soft::testing
