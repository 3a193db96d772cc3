#include "backend/cuda/persistent_step.h"

#include "backend/cuda/chunk_memory.h"
#include "backend/cuda/step_rows.h"
#include "base/check.h"
#include "base/checked.h"
#include "base/log.h"

#include <algorithm>
#include <cuda_runtime_api.h>

namespace honeycrisp::backend::cuda {
namespace {

constexpr uint64_t kPatienceNs = 2'000'000'000;
constexpr uint32_t kWideFrom = kStepRows + 1;  // rows that are quicker in a kernel an op, all together

struct StepKernel {
  int (*prepare)(uint32_t* shared_bytes);
  int (*launch)(const StepArgs&, uint32_t n_blocks, Stream);
};
template <FormatSet kSet, int kRows>
constexpr StepKernel kKernel = {prepare_step<kSet, kRows>, launch_step<kSet, kRows>};
using enum FormatSet;
constexpr StepKernel kKernels[kFormatSets][kRowCounts.size()] = {
    {kKernel<kOften, 1>, kKernel<kOften, 4>, kKernel<kOften, 8>},
    {kKernel<kAll, 1>, kKernel<kAll, 4>, kKernel<kAll, 8>}};

Result<uint32_t> shared_bytes(FormatSet set) {
  uint32_t bytes = UINT32_MAX;
  for (const StepKernel& kernel : kKernels[size_t(set)])
    HC_TRY(check_cuda(kernel.prepare(&bytes), "preparing the persistent kernel"));
  return bytes;
}

// Where a kernel's lists lie, one after another.
struct ListPlaces {
  uint64_t ops, passes, pass_start, stages, stage_start;
};
ListPlaces place_lists(const StepLists& lists, Layout& layout) {
  const auto place = [&](const auto& list) { return layout.add(list.size(), sizeof(list[0])); };
  return {place(lists.ops), place(lists.passes), place(lists.pass_start), place(lists.stages),
          place(lists.stage_start)};
}
uint64_t plane_bytes(const PersistentPlan& plan) { return uint64_t{2} * kStepRows * plan.plane * sizeof(float); }
uint64_t arrivals_of(const PersistentPlan& plan) {  // of each set
  return uint64_t{plan.n_attends} * kStepRows * plan.most_kv_heads;
}
uint64_t arrival_bytes(const PersistentPlan& plan) {
  return std::max<uint64_t>(1, 2 * arrivals_of(plan)) * sizeof(uint32_t);
}

uint32_t most_rows(const PersistentPlan& plan) {
  size_t i = kRowCounts.size() - 1;
  while (plan.lists[i].shared.ring == 0) --i;  // the first fits
  return kRowCounts[i];
}

}  // namespace

Result<uint64_t> PersistentStep::needed_bytes(const program::Program& program, const CompileOptions& options,
                                              const DeviceInfo& device) {
  const FormatSet formats = format_set(program, options.cache_type);
  HC_ASSIGN(const uint32_t shared, shared_bytes(formats));
  HC_ASSIGN(const PersistentPlan plan,
            make_persistent_plan(program, options.cache_type, nullptr, nullptr, device.multiprocessors, shared));
  if (plan.lists[0].shared.ring == 0) return 0;
  Layout lists;
  for (const StepLists& of_kernel : plan.lists) place_lists(of_kernel, lists);
  const uint32_t n_chunks = ceil_div(context_length(options), program::kAttentionChunk);
  const uint64_t row_bytes = n_chunks == 1 ? 0 : 2 * n_chunks * plan.partial_floats * sizeof(float);
  const uint32_t together = rows_together(row_bytes, std::min(most_rows(plan), options.max_rows));
  uint64_t bytes = lists.total() + plane_bytes(plan) + arrival_bytes(plan);
  if (row_bytes != 0) bytes += chunk_bytes(together * row_bytes);
  if (options.max_rows >= kWideFrom) {
    HC_ASSIGN(const uint64_t wide, WideStep::needed_bytes(program, plan, device, options));
    bytes += wide;
  }
  return bytes;
}

std::string persistent_device_obstacle(const DeviceInfo& device) {
  if (!has_persistent_kernels()) return "this build has the persistent kernel for no architecture (it is for 90a)";
  if (device.major == 9 && device.minor == 0) return {};
  return fmt::format("the persistent kernel is for compute capability 9.0, this device has {}.{}", device.major,
                     device.minor);
}

Result<PersistentStep> PersistentStep::make(const program::Program& program, const CompileOptions& options,
                                            const Weights& weights, const KvCache& cache, const DeviceInfo& device,
                                            Stream stream) {
  PersistentStep p;
  p.device_ = device;
  p.n_pools_ = uint32_t(program.pools.size());
  p.formats_ = format_set(program, options.cache_type);
  HC_ASSIGN(const uint32_t shared, shared_bytes(p.formats_));
  HC_ASSIGN(p.plan_,
            make_persistent_plan(program, options.cache_type, &weights, &cache, device.multiprocessors, shared));
  const PersistentPlan& plan = p.plan_;
  if (plan.lists[0].shared.ring == 0)
    return unsupported("the persistent kernel has no room for this program in shared memory");
  const auto& embed = std::get<program::Embed>(program.steps[0].op);
  p.embedding_ = weights.matrix(embed.table);
  p.embedding_scale_ = embed.scale;

  Layout layout;
  std::array<ListPlaces, kRowCounts.size()> places;
  for (size_t i = 0; i < places.size(); ++i) places[i] = place_lists(plan.lists[i], layout);
  HC_ASSIGN(p.lists_, Memory::allocate(layout.total(), "the persistent kernel's lists"));
  const auto send = [&](const auto& list, uint64_t at) {
    return check_cuda(cudaMemcpy(p.lists_.as(at), list.data(), list.size() * sizeof(list[0]), cudaMemcpyHostToDevice),
                      "uploading the persistent kernel's lists");
  };
  for (size_t i = 0; i < places.size(); ++i) {
    StepLists& lists = p.plan_.lists[i];
    HC_TRY(send(lists.ops, places[i].ops));
    HC_TRY(send(lists.passes, places[i].passes));
    HC_TRY(send(lists.pass_start, places[i].pass_start));
    HC_TRY(send(lists.stages, places[i].stages));
    HC_TRY(send(lists.stage_start, places[i].stage_start));
    p.kernels_[i] = {p.lists_.as<StepOp>(places[i].ops),           p.lists_.as<StepPass>(places[i].passes),
                     p.lists_.as<uint32_t>(places[i].pass_start),  p.lists_.as<StepStage>(places[i].stages),
                     p.lists_.as<uint32_t>(places[i].stage_start), lists.shared};
    lists = {};
  }
  HC_ASSIGN(p.planes_, Memory::allocate(plane_bytes(plan), "vectors of a step"));
  const uint64_t arrivals = arrivals_of(plan);
  HC_ASSIGN(p.arrivals_, Memory::allocate(arrival_bytes(plan), "attention's counts"));
  HC_ASSIGN(p.failed_, Memory::allocate(sizeof(uint32_t), "the watchdog's flag", Memory::Place::kHost));

  StepArgs& a = p.args_;
  a.head_dim = plan.head_dim;
  a.plane = plan.plane;
  a.n_arrivals = uint32_t(arrivals);
  a.arrival_heads = plan.most_kv_heads;
  a.n_pools = p.n_pools_;
  a.failed = p.failed_.as<uint32_t>();
  a.patience_ns = kPatienceNs;
  HC_TRY(p.reset(stream));
  if (options.max_rows >= kWideFrom) {
    auto wide = WideStep::make(program, plan, p.formats_, weights, device, options.max_rows);
    if (wide)
      p.wide_ = std::move(*wide);
    else if (wide.error().code == ErrorCode::kOutOfMemory)
      log_warning("batches of many generated rows run {} at a time: {}", kStepRows, wide.error().message);
    else
      return tl::unexpected(wide.error());
  }
  return p;
}

// Both sets as a launch expects to find them.
Result<void> PersistentStep::reset(Stream stream) {
  HC_TRY(check_cuda(cudaMemsetAsync(planes_.as(), 0xff, planes_.bytes(), stream), "clearing vectors"));
  HC_TRY(check_cuda(cudaMemsetAsync(arrivals_.as(), 0, arrivals_.bytes(), stream), "clearing attention's counts"));
  HC_TRY(check_cuda(cudaStreamSynchronize(stream), "clearing vectors"));
  *failed_.as<uint32_t>() = 0;
  used_rows_[0] = used_rows_[1] = 0;
  return {};
}

uint32_t PersistentStep::rows_per_launch() const {
  size_t i = kRowCounts.size() - 1;
  while (kernels_[i].shared.ring == 0) --i;  // the first fits
  return kRowCounts[i];
}

Result<void> PersistentStep::issue(const Batch& batch, const StepRows& rows, const std::vector<const float*>& ropes,
                                   float* logits, Stream stream, StepTimes* times) {
  StepArgs of_all = args_;
  std::copy(ropes.begin(), ropes.end(), of_all.ropes);
  of_all.table_start = rows.table_start;
  of_all.tables = rows.tables;
  if (wide_ && batch.rows.size() >= kWideFrom && wide_->has_room(rows.n_positions))
    return wide_->issue(batch, rows, of_all, logits, stream, times);
  const uint32_t n_chunks = ceil_div(rows.n_positions, program::kAttentionChunk);
  const uint64_t row_floats = n_chunks == 1 ? 0 : n_chunks * plan_.partial_floats;
  const uint32_t together =
      rows_together(2 * row_floats * sizeof(float), std::min(rows_per_launch(), uint32_t(batch.rows.size())));
  const uint64_t partial_floats = together * row_floats;
  if (const uint64_t bytes = 2 * partial_floats * sizeof(float); bytes > partials_.bytes()) {
    HC_TRY(check_cuda(cudaStreamSynchronize(stream), "growing attention's memory"));
    partials_ = {};  // never both
    HC_ASSIGN(partials_, Memory::allocate(chunk_bytes(bytes), "chunks of attention"));
  }
  const uint64_t end_bytes = (1 + plan_.ops.size()) * device_.multiprocessors * sizeof(uint64_t);
  if (times != nullptr && ends_.bytes() == 0) {
    HC_ASSIGN(ends_, Memory::allocate(end_bytes, "times of the persistent kernel"));
  }
  int32_t dest = 0;
  for (uint32_t first = 0; first < batch.rows.size(); first += together) {
    StepArgs a = of_all;
    a.n_rows = std::min(together, uint32_t(batch.rows.size()) - first);
    size_t kernel = 0;
    while (kRowCounts[kernel] < a.n_rows || kernels_[kernel].shared.ring == 0) ++kernel;
    const Kernel& lists = kernels_[kernel];
    a.ops = lists.ops;
    a.passes = lists.passes;
    a.pass_start = lists.pass_start;
    a.stages = lists.stages;
    a.stage_start = lists.stage_start;
    a.shared = lists.shared;
    a.planes = planes_.as<float>() + uint64_t{set_} * kStepRows * plan_.plane;
    a.other = planes_.as<float>() + uint64_t{1 - set_} * kStepRows * plan_.plane;
    a.poison_words = used_rows_[1 - set_] * (plan_.plane / 4);
    a.poison_share = ceil_div(a.poison_words, device_.multiprocessors);
    a.arrivals = arrivals_.as<uint32_t>() + uint64_t{set_} * a.n_arrivals;
    a.other_arrivals = arrivals_.as<uint32_t>() + uint64_t{1 - set_} * a.n_arrivals;
    a.partials = partials_.as<float>();
    a.partial_floats = partial_floats;
    a.n_chunks = n_chunks;
    a.logits = logits;
    put_rows(a, batch, first, dest);
    if (times != nullptr) {
      a.ends = ends_.as<uint64_t>();
      HC_TRY(check_cuda(cudaMemsetAsync(ends_.as(), 0, end_bytes, stream), "clearing times"));
      HC_TRY(times->mark(0, stream));
    }
    HC_TRY(check_cuda(launch_embed(embedding_, rows.tokens + first, a.n_rows, {a.planes + plan_.embedded, plan_.plane},
                                   embedding_scale_, stream),
                      fmt::format("embedding {} rows", a.n_rows)));
    if (times != nullptr) HC_TRY(times->mark(1, stream));
    HC_TRY(check_cuda(kKernels[size_t(formats_)][kernel].launch(a, device_.multiprocessors, stream),
                      fmt::format("the persistent kernel for {} rows", a.n_rows)));
    used_rows_[set_] = a.n_rows;
    used_rows_[1 - set_] = 0;
    set_ = 1 - set_;
    if (times != nullptr) HC_TRY(add_times(*times, stream));
  }
  return {};
}

// An op ends when its last block has left it.
Result<void> PersistentStep::add_times(StepTimes& times, Stream stream) {
  const size_t n = device_.multiprocessors;
  std::vector<uint64_t> ends((1 + plan_.ops.size()) * n);
  HC_TRY(check_cuda(
      cudaMemcpyAsync(ends.data(), ends_.as(), ends.size() * sizeof(ends[0]), cudaMemcpyDeviceToHost, stream),
      "reading times"));
  HC_TRY(check_cuda(cudaStreamSynchronize(stream), "a profiled step"));
  HC_TRY(times.add(0, 1));
  uint64_t before = *std::min_element(ends.begin(), ends.begin() + ptrdiff_t(n));
  for (size_t op = 0; op < plan_.ops.size(); ++op) {
    const auto of_op = ends.begin() + ptrdiff_t((1 + op) * n);
    const uint64_t end = std::max(before, *std::max_element(of_op, of_op + ptrdiff_t(n)));
    times.add_seconds(plan_.steps[op], double(end - before) / 1e9);
    before = end;
  }
  return {};
}

Result<void> PersistentStep::finish(Stream stream) {
  if (!hung()) return {};
  HC_TRY(reset(stream));
  return fail(ErrorCode::kInternal,
              "CUDA: the blocks of a step's kernel waited {} s for each other, and gave up: the step is void; a "
              "multiprocessor that is held by another program can cause this",
              kPatienceNs / 1'000'000'000);
}

}  // namespace honeycrisp::backend::cuda
