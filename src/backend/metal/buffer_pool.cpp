#include "backend/metal/buffer_pool.h"

#include "base/check.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>

namespace honeycrisp::backend::metal {
namespace {

constexpr uint64_t kSmallestClass = 4096, kLargestClass = uint64_t{1} << 62;

}  // namespace

Result<View> BufferPool::take(uint64_t bytes) {
  if (bytes > kLargestClass) return fail(ErrorCode::kOutOfMemory, "scratch memory of {} bytes", bytes);
  const uint64_t size = std::bit_ceil(std::max(bytes, kSmallestClass));
  std::vector<Entry>& entries = classes_[size];
  const auto free = std::find_if(entries.rbegin(), entries.rend(), [](const Entry& e) { return !e.out; });
  if (free != entries.rend()) {
    free->out = true;
    return View{free->buffer.get(), 0, bytes};
  }
  HC_ASSIGN(auto buffer, device_.allocate(size, fmt::format("scratch of {} bytes", size)));
  bytes_ += size;
  entries.push_back({std::move(buffer), true});
  return View{entries.back().buffer.get(), 0, bytes};
}

void BufferPool::give_back(const View& view) {
  const auto at = classes_.find(view.buffer->bytes());
  HC_CHECK(at != classes_.end(), "scratch of {} bytes", view.buffer->bytes());
  std::vector<Entry>& entries = at->second;
  const auto entry =
      std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.buffer.get() == view.buffer; });
  HC_CHECK(entry != entries.end() && entry->out, "scratch of {} bytes", view.buffer->bytes());
  entry->out = false;
  std::rotate(entry, entry + 1, entries.end());  // to the end: given out next
}

void BufferPool::take_all_back() {
  for (auto& [size, entries] : classes_)
    for (Entry& e : entries) e.out = false;
}

}  // namespace honeycrisp::backend::metal
