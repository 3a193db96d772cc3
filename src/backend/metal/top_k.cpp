#include "backend/metal/top_k.h"

#include "backend/metal/kernels/project_args.h"

#include <algorithm>

namespace honeycrisp::backend::metal {
namespace {

uint32_t slices_of(uint32_t count) { return (count + kTopKSlice - 1) / kTopKSlice; }

}  // namespace

uint64_t top_k_scratch_bytes(const TopKShape& shape) {
  return uint64_t{4} * shape.rows * slices_of(shape.count) * (2 * shape.k + 1);
}

Result<void> encode_top_k(Pipelines& pipelines, StepEncoder& e, const View& logits, const TopKShape& shape,
                          const View& scratch, const TopK& out) {
  const auto [rows, count, stride, k] = shape;
  if (k == 0 || k > kMostTopK || rows == 0 || count == 0 || stride < count)
    return invalid("top_k: {} of {} values in {} rows of {}; k goes from 1 to {}", k, count, rows, stride,
                   uint32_t(kMostTopK));
  const uint64_t row_results = uint64_t{4} * rows * k;
  for (const auto& [name, view, need] :
       {std::tuple{"logits", &logits, uint64_t{4} * rows * stride},
        std::tuple{"scratch", &scratch, top_k_scratch_bytes(shape)}, std::tuple{"values", &out.values, row_results},
        std::tuple{"indices", &out.indices, row_results}, std::tuple{"unusable", &out.unusable, uint64_t{4} * rows}})
    if (view->bytes < need) return invalid("top_k: {} has {} bytes and needs {}", name, view->bytes, need);

  const uint32_t slices = slices_of(count), candidates = slices * k;
  const uint64_t part = uint64_t{4} * rows * candidates;
  const TopK between{.values = {scratch.buffer, scratch.offset, part},
                     .indices = {scratch.buffer, scratch.offset + part, part},
                     .unusable = {scratch.buffer, scratch.offset + 2 * part, uint64_t{4} * rows * slices}};
  const auto launch = [&](bool indexed, const TopK& from, const TopK& to, const TopKArgs& args,
                          uint32_t groups) -> Result<void> {
    HC_ASSIGN(const Pipeline* pipeline,
              pipelines.get("top_k", "top_k", uint32_t(kTopKThreads), {constant(0, indexed)}));
    e.pipeline(*pipeline);
    e.read(0, from.values);
    e.read(1, from.indices);
    e.read(2, from.unusable);
    e.write(3, to.values);
    e.write(4, to.indices);
    e.write(5, to.unusable);
    e.args(6, args);
    e.dispatch({groups, rows}, {uint32_t(kTopKThreads)});
    return {};
  };
  HC_TRY(launch(false, {logits, logits, logits}, between, {count, stride, uint32_t(kTopKSlice), k}, slices));
  return launch(true, between, out, {candidates, candidates, candidates, k}, 1);
}

}  // namespace honeycrisp::backend::metal
