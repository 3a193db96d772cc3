// A merge sort whose order of equal elements is kept, and which stays within bounds whatever the comparison answers
// (NaN has no order) or throws. std::stable_sort would do, but libstdc++ 12 warns about itself under clang.
#pragma once

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace honeycrisp::text::jinja {

template <class T, class Less>
void stable_sort(std::vector<T>& items, Less less) {
  std::vector<T> merged;
  for (size_t width = 1; width < items.size(); width *= 2) {
    merged.clear();
    merged.reserve(items.size());
    for (size_t begin = 0; begin < items.size(); begin += 2 * width) {
      size_t left = begin, right = std::min(begin + width, items.size());
      const size_t left_end = right, right_end = std::min(begin + 2 * width, items.size());
      while (left < left_end && right < right_end) {
        merged.push_back(std::move(less(items[right], items[left]) ? items[right++] : items[left++]));
      }
      std::move(items.begin() + static_cast<ptrdiff_t>(left), items.begin() + static_cast<ptrdiff_t>(left_end),
                std::back_inserter(merged));
      std::move(items.begin() + static_cast<ptrdiff_t>(right), items.begin() + static_cast<ptrdiff_t>(right_end),
                std::back_inserter(merged));
    }
    items.swap(merged);
  }
}

}  // namespace honeycrisp::text::jinja
