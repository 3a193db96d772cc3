// One fault at a time in what the host encodes for a step of small models: a barrier left out, two bindings exchanged,
// a view shorter than what the kernel touches, or late. Each must be reported by the checking device or show in the
// logits.
#include "backend/metal/executor.h"
#include "backend/metal/soft_device.h"
#include "model/model.h"
#include "support/golden_families.h"
#include "support/sequence_logits.h"
#include "traced_device.h"

#include <fmt/format.h>
#include <numeric>

namespace honeycrisp::backend::metal::testing {
namespace {

using Kind = Edit::Kind;

constexpr uint32_t kPromptRows = 5, kPositions = 8;

struct Outcome {
  std::string reports;  // empty: none
  std::vector<float> logits;
  std::vector<Trace::Dispatch> dispatches;
  uint32_t barriers = 0, n_pools = 0;
};

/// A model whose weights an edit may overwrite: each run reads them anew.
class Bench {
 public:
  explicit Bench(const char* family) : path_(test_support::golden_path(family, ".gguf")) {}

  /// kGenerated: a prompt, then the edited step of one row. kPrompt: the prompt is edited.
  Outcome run(Role role, const Edit& edit) const {
    Outcome out;
    const auto file = gguf::File::open(path_, {.mmap = false});
    EXPECT_TRUE(file.has_value()) << file.error().message;
    const auto model = model::load(*file);
    EXPECT_TRUE(model.has_value()) << model.error().message;
    const program::Program& program = model->program;
    CompileOptions options;
    options.max_rows = kPromptRows;
    options.max_positions = kPositions;
    auto soft = soft_device({.check = true});
    EXPECT_TRUE(soft.has_value()) << soft.error().message;
    const auto device = std::make_shared<TracedDevice>(std::move(*soft));
    auto executor = make_executor(device, program, options);
    EXPECT_TRUE(executor.has_value()) << executor.error().message;
    // Each pool's page has another id, and none is the place of its entry among the tables' (a start of a table taken
    // for a page would go unseen).
    const uint32_t n_pools = out.n_pools = uint32_t(program.pools.size());
    std::vector<PageId> pages(n_pools);
    SequencePages sequence;
    for (uint32_t pool = 0; pool < n_pools; ++pool) {
      pages[pool] = n_pools + 1 - pool;
      EXPECT_TRUE((*executor)->reserve_pages(pool, n_pools + 2).has_value());
      sequence.tables.push_back({&pages[pool], 1});
    }
    const auto step = [&](uint32_t first, uint32_t n, Role of) {
      std::vector<Row> rows;
      for (uint32_t i = 0; i < n; ++i) rows.push_back({int32_t(7 * (first + i) + 3), first + i, 0, i + 1 == n, of});
      out.logits.assign(program.vocabulary, 0);
      return (*executor)->step({rows, {&sequence, 1}}, out.logits);
    };
    const auto edited = [&](uint32_t first, uint32_t n) {
      device->trace.clear();
      device->trace.edit = edit;
      if (const auto done = step(first, n, role); !done) out.reports = done.error().message;
      out.dispatches = device->trace.dispatches;
      out.barriers = device->trace.barriers;
    };
    if (role == Role::kPrompt) {
      edited(0, kPromptRows);
    } else {
      const auto done = step(0, kPromptRows, Role::kPrompt);
      EXPECT_TRUE(done.has_value()) << done.error().message;
      edited(kPromptRows, 1);
    }
    return out;
  }

 private:
  std::string path_;
};

/// Bindings of a dispatch that its kernel uses: what the constants switch off is bound to a view that comes before. An
/// attend that finds its queries prepared (3) leaves the projection (0) and the rope table (10) alone.
std::vector<uint32_t> used(const Trace::Dispatch& d) {
  const bool prepared =
      d.kernel.starts_with("attend_") && !d.kernel.starts_with("attend_prepare") && d.views.contains(3);
  std::vector<uint32_t> indices;
  for (const auto& [index, view] : d.views) {
    if (prepared && (index == 0 || index == 10)) continue;
    const bool again = std::any_of(indices.begin(), indices.end(), [&, v = view](uint32_t i) {
      const View& other = d.views.at(i);
      return other.buffer == v.buffer && other.offset == v.offset && other.bytes == v.bytes;
    });
    if (!again) indices.push_back(index);
  }
  return indices;
}

struct Mutant {
  std::string name;
  Edit edit;
};

std::vector<Mutant> mutants_of(const Outcome& plain) {
  std::vector<Mutant> all;
  for (uint32_t b = 0; b < plain.barriers; ++b)
    all.push_back({fmt::format("without barrier {}", b), {.kind = Kind::kDropBarrier, .at = b}});
  std::set<std::pair<std::string, std::vector<uint32_t>>> seen;  // a layer's dispatches are like another's
  for (uint32_t n = 0; n < plain.dispatches.size(); ++n) {
    const Trace::Dispatch& d = plain.dispatches[n];
    const std::vector<uint32_t> indices = used(d);
    if (!seen.emplace(d.kernel, indices).second) continue;
    for (size_t i = 0; i < indices.size(); ++i) {
      const uint32_t index = indices[i];
      if (i + 1 < indices.size())
        all.push_back(
            {fmt::format("dispatch {} ({}): bindings {} and {} exchanged", n, d.kernel, index, indices[i + 1]),
             {.kind = Kind::kSwap, .at = n, .index = index, .other = indices[i + 1]}});
      const uint64_t bytes = d.views.at(index).bytes;
      // A word for each pool, of which a layer reads its own: cut, the others' would not be missed.
      if (bytes > 4 && bytes == 4 * plain.n_pools)
        all.push_back({fmt::format("dispatch {} ({}): binding {} begins a word late", n, d.kernel, index),
                       {.kind = Kind::kAdvance, .at = n, .index = index, .bytes = 4}});
      // To its first word: of a page table or a rope table little more is read here.
      else if (bytes > 4)
        all.push_back({fmt::format("dispatch {} ({}): binding {} of {} bytes cut to 4", n, d.kernel, index, bytes),
                       {.kind = Kind::kShorten, .at = n, .index = index, .bytes = 4}});
    }
  }
  return all;
}

struct Tested {
  const char* family;
  Role role;
};

class MetalHostMutations : public ::testing::TestWithParam<Tested> {};

TEST_P(MetalHostMutations, are_reported_or_show) {
  const auto [family, role] = GetParam();
  const Bench bench(family);
  const Outcome plain = bench.run(role, {});
  ASSERT_EQ(plain.reports, "");
  const std::vector<Mutant> mutants = mutants_of(plain);
  ASSERT_GT(plain.barriers, 0u);
  size_t reported = 0, shown = 0;
  for (const Mutant& m : mutants) {
    const Outcome o = bench.run(role, m.edit);
    const bool report = !o.reports.empty(), result = !honeycrisp::testing::same_bits(o.logits, plain.logits);
    reported += report;
    shown += !report && result;
    EXPECT_TRUE(report || result) << m.name << ": neither a report nor other logits";
    // Which of two dispatches runs first is chance: only a report finds a barrier that is missing.
    if (m.edit.kind == Kind::kDropBarrier) {
      EXPECT_TRUE(report) << m.name;
    }
  }
  std::printf("%s, %s: %zu mutations of the host: %zu reported, %zu seen in the logits, %zu missed\n", family,
              honeycrisp::testing::name_of(role), mutants.size(), reported, shown, mutants.size() - reported - shown);
}

constexpr Tested kTested[] = {
    {"llama", Role::kGenerated}, {"llama", Role::kPrompt}, {"qwen3", Role::kGenerated}, {"gemma3", Role::kGenerated}};
INSTANTIATE_TEST_SUITE_P(All, MetalHostMutations, ::testing::ValuesIn(kTested), [](const auto& tested) {
  return std::string(tested.param.family) + "_" + honeycrisp::testing::name_of(tested.param.role);
});

}  // namespace
}  // namespace honeycrisp::backend::metal::testing
