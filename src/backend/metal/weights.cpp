#include "backend/metal/weights.h"

#include "base/checked.h"

#include <algorithm>
#include <numeric>
#include <unistd.h>

namespace honeycrisp::backend::metal {
namespace {

struct Pages {
  uintptr_t begin = 0, end = 0;
};

Pages pages_of(const program::Weight& w, uintptr_t page) {
  const auto data = reinterpret_cast<uintptr_t>(w.data);
  return {data / page * page, round_up(data + w.bytes, page)};
}

}  // namespace

Result<Weights> Weights::wrap(Device& device, const program::Program& program) {
  const auto page = uintptr_t(sysconf(_SC_PAGESIZE));
  std::vector<size_t> order(program.weights.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return std::less<>()(program.weights[a].data, program.weights[b].data); });
  Weights made;
  made.views_.resize(program.weights.size());
  for (size_t first = 0, next; first < order.size(); first = next) {
    Pages pages = pages_of(program.weights[order[first]], page);
    for (next = first; next < order.size(); ++next) {
      const program::Weight& w = program.weights[order[next]];
      const Pages more = pages_of(w, page);
      if (more.end - more.begin > device.most_buffer_bytes())
        return unsupported("tensor '{}' takes {} bytes, a buffer of this device at most {}", w.name,
                           more.end - more.begin, device.most_buffer_bytes());
      // Tensors of a file share pages; what only touches may be another mapping, which one buffer must not span.
      if (more.begin >= pages.end || std::max(more.end, pages.end) - pages.begin > device.most_buffer_bytes()) break;
      pages.end = std::max(more.end, pages.end);
    }
    // The device only reads: kernels take weights as const.
    HC_ASSIGN(auto buffer, device.wrap(
                               reinterpret_cast<std::byte*>(pages.begin), pages.end - pages.begin, [] {},
                               "weights from " + program.weights[order[first]].name));
    for (size_t i = first; i < next; ++i) {
      const program::Weight& w = program.weights[order[i]];
      made.views_[order[i]] = {buffer.get(), reinterpret_cast<uintptr_t>(w.data) - pages.begin, w.bytes};
    }
    made.buffers_.push_back(std::move(buffer));
  }
  return made;
}

WeightView Weights::view(const program::Program& program, const program::Matrix& matrix) const {
  const program::Weight& w = program.weight(matrix);
  const View& whole = views_[matrix.weight];
  const uint64_t row_bytes = w.row_bytes(), slice_bytes = row_bytes * w.rows;
  const uint64_t begin = row_bytes * matrix.first_row;
  const uint64_t end = slice_bytes * (w.slices - 1) + begin + row_bytes * matrix.rows;
  return {{whole.buffer, whole.offset + begin, end - begin}, row_bytes, slice_bytes};
}

}  // namespace honeycrisp::backend::metal
