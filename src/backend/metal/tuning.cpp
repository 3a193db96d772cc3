#include "backend/metal/tuning.h"

#include "base/check.h"

#include <algorithm>
#include <iterator>

namespace honeycrisp::backend::metal {
namespace {

constexpr uint32_t kAny = UINT32_MAX;
enum class Want : uint8_t { kNo, kYes, kEither };
constexpr bool meets(Want want, bool is) { return want == Want::kEither || (want == Want::kYes) == is; }

/// The first row that a shape meets is taken. Parts are 32 columns.
struct MatVecRule {
  uint32_t most_batch, most_parts, least_rows;
  Want gate, norm;
  MatVecVariant variant;
};
constexpr MatVecRule kMatVecRules[] = {
    // One row of the batch.
    {1,
     32,
     16384,
     Want::kNo,
     Want::kEither,
     {1, 16, 0, "a great many rows (output tables): lanes hold their one part of the input for 16 rows"}},
    {1,
     kAny,
     16384,
     Want::kNo,
     Want::kEither,
     {1, 8, 0,
      "a great many rows (output tables): enough threadgroups without a cache, which would bound their number"}},
    {1,
     32,
     0,
     Want::kEither,
     Want::kEither,
     {1, 8, 32, "a lane has one part of a row: eight rows outweigh the norm and its barrier"}},
    {1, 48, 0, Want::kYes, Want::kEither, {1, 4, 48, "gate and up share an input of 1.5 KiB times 4"}},
    {1, 64, 0, Want::kEither, Want::kEither, {1, 4, 64, "the input is read once per threadgroup, 8 KiB"}},
    {1,
     96,
     0,
     Want::kEither,
     Want::kYes,
     {1, 4, 96, "normed: the cache saves the product with the norm's weight in each simdgroup; 12 KiB"}},
    {1, 128, 0, Want::kEither, Want::kYes, {1, 4, 128, "as above; 16 KiB, two threadgroups of a core"}},
    {1, 192, 0, Want::kEither, Want::kYes, {1, 4, 192, "as above, inputs up to 6144; 24 KiB"}},
    {1, 96, 0, Want::kEither, Want::kEither, {1, 4, 0, "not normed: lanes read the input through the L1 cache"}},
    {1,
     kAny,
     4096,
     Want::kNo,
     Want::kNo,
     {1, 8, 0, "down projections of large models: a lane's input serves eight rows"}},
    {1, kAny, 0, Want::kEither, Want::kEither, {1, 4, 0, "long inputs: no cache holds them"}},
    // Several rows: staged in threadgroup memory, 4 KiB for each.
    {2, kAny, 0, Want::kEither, Want::kEither, {2, 4, 0, "decoded once for two rows"}},
    {4, kAny, 0, Want::kEither, Want::kEither, {4, 4, 0, "decoded once for four rows; 16 KiB"}},
    {kAny,
     kAny,
     0,
     Want::kEither,
     Want::kEither,
     {8, 4, 0, "decoded once for eight rows: 32 sums, one for each lane; 32 KiB"}},
};

}  // namespace

MatVecVariant choose_mat_vec(const MatVecShape& shape) {
  const uint32_t parts = (shape.columns + 31) / 32;
  const auto* rule = std::find_if(std::begin(kMatVecRules), std::end(kMatVecRules), [&](const MatVecRule& r) {
    return shape.batch <= r.most_batch && parts <= r.most_parts && shape.rows >= r.least_rows &&
           meets(r.gate, shape.gate) && meets(r.norm, shape.norm);
  });
  HC_CHECK(rule != std::end(kMatVecRules), "the last rule takes everything");
  return rule->variant;
}

}  // namespace honeycrisp::backend::metal
