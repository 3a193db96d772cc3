#include "backend/metal/top_k.h"

#include "backend/metal/kernels/project_args.h"

#include <algorithm>

namespace honeycrisp::backend::metal {
namespace {

uint32_t slices_of(uint32_t count) { return (count + kTopKSlice - 1) / kTopKSlice; }

}  // namespace

uint64_t top_k_scratch_bytes(uint32_t rows, uint32_t count, uint32_t k) {
  return uint64_t{8} * rows * slices_of(count) * k;
}

Result<void> encode_top_k(Pipelines& pipelines, StepEncoder& e, const View& logits, uint32_t rows, uint32_t count,
                          uint32_t k, const View& scratch, const TopK& out) {
  if (k == 0 || k > kMostTopK || rows == 0 || count == 0)
    return invalid("top_k: {} of {} values in {} rows; k goes from 1 to {}", k, count, rows, uint32_t(kMostTopK));
  const uint64_t row_results = uint64_t{4} * rows * k, half = top_k_scratch_bytes(rows, count, k) / 2;
  for (const auto& [name, view, need] :
       {std::tuple{"logits", &logits, uint64_t{4} * rows * count}, std::tuple{"scratch", &scratch, 2 * half},
        std::tuple{"values", &out.values, row_results}, std::tuple{"indices", &out.indices, row_results}})
    if (view->bytes < need) return invalid("top_k: {} has {} bytes and needs {}", name, view->bytes, need);

  const View values{scratch.buffer, scratch.offset, half}, indices{scratch.buffer, scratch.offset + half, half};
  const auto launch = [&](bool indexed, const View& from, const View& from_indices, const TopK& to,
                          const TopKArgs& args, uint32_t slices) -> Result<void> {
    HC_ASSIGN(const Pipeline* pipeline, pipelines.get("top_k", "top_k", {constant(0, indexed)}));
    e.pipeline(*pipeline);
    e.read(0, from);
    e.read(1, from_indices);
    e.write(2, to.values);
    e.write(3, to.indices);
    e.args(4, args);
    e.dispatch({slices, rows}, {uint32_t(kTopKThreads)});
    return {};
  };
  const uint32_t slices = slices_of(count), candidates = slices * k;
  HC_TRY(launch(false, logits, logits, {values, indices}, {count, count, uint32_t(kTopKSlice), k}, slices));
  return launch(true, values, indices, out, {candidates, candidates, candidates, k}, 1);
}

}  // namespace honeycrisp::backend::metal
