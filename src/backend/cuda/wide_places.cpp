#include "backend/cuda/wide_places.h"

#include "base/checked.h"

#include <algorithm>

namespace honeycrisp::backend::cuda {
namespace {

constexpr uint32_t kPlaceAlignment = 4;  // floats

// Columns of a plane that an op reads or writes, and where the op says where they begin.
struct Use {
  uint32_t* place;
  uint32_t width;
};
std::vector<Use> uses_of(StepOp& op) {
  std::vector<Use> uses;
  const auto add = [&](uint32_t& place, uint32_t width) {
    if (place != kNoPlace) uses.push_back({&place, width});
  };
  const bool attends = op.kind == StepOpKind::kAttend;
  if (attends) {
    add(op.q, op.n_heads * op.cache.key_dim * (op.output_gate ? 2 : 1));
    add(op.k, op.cache.n_kv_heads * op.cache.key_dim);
    if (!op.v_is_k) add(op.v, op.cache.n_kv_heads * op.cache.value_dim);
  } else {
    if (op.fragments_in == kNoPlace) add(op.in, op.cols);
    add(op.fragments_in, fragment_words(op.cols));
    add(op.add, op.rows[0]);
  }
  if (op.ending == EndingKind::kLogits) return uses;
  for (uint32_t part = 0; part < (op.ending == EndingKind::kGate ? 1 : op.n_parts); ++part)
    add(op.out[part], op.rows[part]);
  add(op.fragments_out, fragment_words(op.rows[0]));
  return uses;
}

}  // namespace

uint32_t share_places(std::vector<StepOp>& ops, uint32_t& embedded, uint32_t embedded_width) {
  struct Region {
    uint32_t begin, end;
    size_t first, last;  // ops that use it
    uint32_t place = 0;
  };
  std::vector<std::vector<Use>> uses;
  std::vector<Region> regions = {{embedded, embedded + embedded_width, 0, 0}};
  for (size_t i = 0; i < ops.size(); ++i) {
    uses.push_back(uses_of(ops[i]));
    for (const Use& use : uses.back()) regions.push_back({*use.place, *use.place + use.width, i, i});
  }
  // Uses that overlap share a region.
  std::sort(regions.begin(), regions.end(), [](const Region& a, const Region& b) { return a.begin < b.begin; });
  std::vector<Region> merged;
  for (const Region& r : regions) {
    if (merged.empty() || r.begin >= merged.back().end) {
      merged.push_back(r);
      continue;
    }
    Region& before = merged.back();
    before.end = std::max(before.end, r.end);
    before.first = std::min(before.first, r.first);
    before.last = std::max(before.last, r.last);
  }
  std::vector<Region*> by_time;
  for (Region& r : merged) by_time.push_back(&r);
  std::stable_sort(by_time.begin(), by_time.end(),
                   [](const Region* a, const Region* b) { return a->first < b->first; });
  uint32_t plane = 0;
  std::vector<Region*> live;  // by place
  for (Region* r : by_time) {
    std::erase_if(live, [&](const Region* other) { return other->last < r->first; });
    const uint32_t width = round_up(r->end - r->begin, kPlaceAlignment);
    uint32_t place = 0;
    auto at = live.begin();
    for (; at != live.end() && (*at)->place - place < width; ++at)
      place = (*at)->place + round_up((*at)->end - (*at)->begin, kPlaceAlignment);
    r->place = place;
    live.insert(at, r);
    plane = std::max(plane, place + width);
  }
  const auto moved = [&](uint32_t place) {
    const auto after =
        std::upper_bound(merged.begin(), merged.end(), place, [](uint32_t p, const Region& r) { return p < r.begin; });
    return std::prev(after)->place + place - std::prev(after)->begin;
  };
  for (const auto& of_op : uses)
    for (const Use& use : of_op) *use.place = moved(*use.place);
  embedded = moved(embedded);
  return plane;
}

}  // namespace honeycrisp::backend::cuda
